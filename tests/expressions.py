"""What PromQL expressions read, taken from their text: enough to know whether it exists.

No parser: names, selectors and lists of labels are found by their form. Whether an expression is
one is for Prometheus to say, in `tests/promql`.
"""

import re
from typing import Final

from rollout_operator.telemetry.exposition import MetricFamily, Rebuilt
from tests.own_metrics import make_all_metrics

FUNCTIONS: Final = {
    *("avg_over_time", "changes", "rate", "sum", "max", "min", "count", "topk", "time", "vector"),
    *("histogram_quantile", "label_replace"),
}
WORDS: Final = {"by", "on", "or", "unless"}
# Labels that Prometheus gives to all series of a target; a series that has one of them itself keeps
# it under a longer name.
OF_TARGET: Final = {"cluster", "namespace", "job", "pod", "exported_namespace"}
# Set by the operator at each scrape, from what it is given when webhooks are served.
POLICIES: Final = "kube_validating_webhook_failure_policy"
_SUFFIXES: Final = ("_bucket", "_count", "_sum", "_total")


def map_own_metrics() -> dict[str, set[str]]:
    """Return the labels of our metrics by name, also of what is off by default."""
    collectors = make_all_metrics().registry._collector_to_names  # there is no public list of them
    return {
        str(one._name if isinstance(one, Rebuilt) else one.name): set(
            one._labels if isinstance(one, Rebuilt) else one.label_names
        )
        for one in collectors
        if isinstance(one, MetricFamily | Rebuilt)
    } | {
        POLICIES: {"type", "webhook", "policy"},
        "process_cpu_seconds": set(),
        "process_resident_memory_bytes": set(),
    }


def bare(expression: str) -> str:
    """Return an expression without its texts, in which anything may stand."""
    return re.sub(r'"[^"]*"', '""', expression)


def metrics_of(expression: str) -> set[str]:
    """Return the names that an expression reads, selectors and lists of labels left out."""
    text = re.sub(r"\{[^}]*\}", "", bare(expression))
    text = re.sub(r"\b(by|on)\s*\([^)]*\)", r"\1", text)
    words = set(re.findall(r"(?<![\w.$])[a-z_]\w*", re.sub(r"\[[\w$]+\]", "", text)))
    return words - FUNCTIONS - WORDS


def assert_known(expression: str, others: set[str]) -> None:
    """Raise AssertionError where a metric, or a label by which it is selected, does not exist.

    `others` are metrics that other exporters have.
    """
    own = map_own_metrics()
    for name in metrics_of(expression) - others:
        known = next((each for each in (name, *_cut(name)) if each in own), None)
        assert known is not None, name
        selected = re.findall(rf"{name}\{{([^}}]*)\}}", expression)
        keys = {key for part in selected for key in re.findall(r"(\w+)[=!]~?\"", part)}
        assert keys <= own[known] | OF_TARGET, name


def _cut(name: str) -> list[str]:
    return [name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)]
