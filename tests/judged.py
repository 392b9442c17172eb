"""A check of an endpoint whose true answers are known. A busy machine may leave one open; then it is asked again."""

from __future__ import annotations

from collections.abc import Mapping

from kvdemo.backend import Backend
from kvdemo.facts.endpoint import Endpoint
from kvdemo.questions.endpoint.spec import EndpointResult, EndpointSpec, Subject
from kvdemo.questions.endpoint.timings import judgements

__all__ = ["checked", "found_in"]

TRIES = 3


def checked(backend: Backend, endpoint: Endpoint, spec: EndpointSpec) -> EndpointResult:
    *_, result = backend.ask(spec, owner="test", endpoint=endpoint)
    assert isinstance(result, EndpointResult)
    return result


def found_in(
    backend: Backend, endpoint: Endpoint, spec: EndpointSpec, expected: Mapping[Subject, str], tries: int = TRIES
) -> None:
    """Each of these in the end, and never the opposite."""
    left = dict(expected)
    for _ in range(tries):
        judged = judgements(checked(backend, endpoint, spec))
        for subject, verdict in list(left.items()):
            assert judged[subject].verdict in (verdict, "cannot tell"), judged[subject]
            if judged[subject].verdict == verdict:
                del left[subject]
        if not left:
            return
    raise AssertionError(judged)
