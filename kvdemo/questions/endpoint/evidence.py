"""What a check of an endpoint says to "Ready to decide?": is a cache in use where the work is really done?"""

from __future__ import annotations

from collections.abc import Sequence

from kvdemo.experiments.evidence import Evidence, rounds_words
from kvdemo.facts.workload import Workload
from kvdemo.questions.endpoint.spec import EndpointResult
from kvdemo.questions.endpoint.timings import cache_pairs, judgements

__all__ = ["evidence"]


def evidence(result: EndpointResult, workload: Workload) -> Sequence[Evidence]:
    """Rows 1 and 2. Who set it so, only whoever runs it can say; that a cache is off is known all the same."""
    judged = judgements(result)["kv_cache"]
    rests_on = rounds_words(len(cache_pairs(result)))
    if judged.verdict == "cannot tell":
        words = f"Behind a URL; from outside it cannot be told. {judged.settle}"
        return (Evidence(1, "not yet", words), Evidence(2, "not yet", words, endpoint=True))
    on = judged.verdict == "in use"
    setting = f"Behind a URL, the cache is {judged.verdict}, by its times. Who set it so, whoever runs it can say."
    return (
        Evidence(1, "yes", setting, rests_on, in_use=on),
        Evidence(2, "yes" if on else "no", judged.evidence, rests_on, in_use=on, endpoint=True),
    )
