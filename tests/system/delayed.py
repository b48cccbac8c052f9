"""Zones whose pods have a say before they go, and a judge of whether they were heard."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from rollout_lab.zones import ZoneSpec

from tests.judge.book import Write
from tests.judge.objects import Pod, Set
from tests.system.scaled import annotated
from tests.world.webpods import DELAYED_PATH, PodCall, WebPods

DELAY: Final = "grafana.com/rollout-delayed-downscale"
URL: Final = "grafana.com/rollout-prepare-delayed-downscale-url"
# Pods answer whole seconds, rounded down.
ROUNDING: Final = timedelta(seconds=1)


def delay(pods: WebPods, zone: ZoneSpec, span: str) -> ZoneSpec:
    """Return the zone with a delayed downscale; the host of the URL is replaced by each pod's."""
    return annotated(zone, {DELAY: span, URL: f"http://any-host:{pods.port}{DELAYED_PATH}"})


def say(pods: WebPods, name: str) -> list[str]:
    """Return the calls to the delay's endpoint of a pod: methods, in their order."""
    return [call.method for call in pods.calls_to(name) if call.is_delayed]


def list_hasty(
    changes: Sequence[Write], calls: Sequence[PodCall], span: timedelta
) -> Iterator[str]:
    """Yield, in words, each pod that a downscale took before it was prepared for so long.

    SEED-073: from its first POST after its last DELETE, both answered with success.
    """
    living: dict[str, Pod] = {}
    for change in changes:
        match change.before, change.now:
            case Set() as before, Set() as now if now.replicas < before.replicas:
                gone = [name for name in before.pod_names if name not in now.pod_names]
                for pod in (living[name] for name in gone if name in living):
                    at = change.at.total_seconds()
                    since = _prepared_since(pod, at, calls)
                    if since is None or timedelta(seconds=at - since) < span - ROUNDING:
                        yield f"{pod.name} ({pod.uid}) went at {at}, prepared {since}"
            case _, Pod() as pod:
                living[pod.name] = pod


def _prepared_since(pod: Pod, at: float, calls: Sequence[PodCall]) -> float | None:
    since = None
    for call in calls:
        if call.uid == pod.uid and call.is_delayed and call.is_success and call.at <= at:
            since = None if call.method == "DELETE" else since or call.at
    return since
