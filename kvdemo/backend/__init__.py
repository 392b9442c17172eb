"""The one door that the page, the command line and the tests use.

It knows no page: requests come in as facts, events and results go out as facts. What guards the model is in engine.py.
"""

from kvdemo.backend.chat import Chat
from kvdemo.backend.memory import Memory
from kvdemo.backend.model import check_model
from kvdemo.backend.questions import Questions

__all__ = ["Backend", "check_model"]


class Backend(Chat, Questions, Memory):
    """Build it, `start` it, ask; `close` it at the end."""
