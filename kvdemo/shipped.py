"""Where the program lies: its files that are no code, and the checkout it runs from.

A wheel carries assets/ inside the package; in a checkout the folder stands beside it.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["assets_folder", "checkout"]

PACKAGE = Path(__file__).resolve().parent


def assets_folder(package: Path = PACKAGE) -> Path:
    """The folder of style sheet, script, templates, known models, prompts and recorded results."""
    return (checkout(package) or package) / "assets"


def checkout(package: Path = PACKAGE) -> Path | None:
    """The folder of the checkout that this code runs from; None where it is installed."""
    return None if (package / "assets").is_dir() else package.parent
