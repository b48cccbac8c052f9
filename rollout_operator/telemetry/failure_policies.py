"""The gauge of the failure policies that webhooks have, made anew at each scrape."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from rollout_operator.telemetry.families import Rebuilt

FAMILY: Final = "kube_validating_webhook_failure_policy"
FAILURE_POLICIES: Final = ("Fail", "Ignore")


def make_failure_policies(read: Callable[[], Iterable[tuple[str, str, str]]]) -> Rebuilt:
    """Return a gauge of what `read()` returns: type, name and failure policy of each hook."""
    return Rebuilt(
        FAMILY,
        "1 for the failure policy that a webhook has, 0 for the other.",
        ("type", "webhook", "policy"),
        lambda: _policy_series(read()),
    )


def _policy_series(hooks: Iterable[tuple[str, str, str]]) -> Iterator[tuple[Sequence[str], float]]:
    series: dict[tuple[str, str], str] = {}
    for kind, hook, policy in hooks:
        if series.get((kind, hook)) != "Fail":
            series[kind, hook] = policy
    for (kind, hook), policy in series.items():
        for each in FAILURE_POLICIES:
            yield (kind, hook, each), each == policy
