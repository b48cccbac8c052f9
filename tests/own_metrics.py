"""All families that a process may expose, also of what is not enabled by default."""

from typing import Final

from rollout_operator.gates.metrics import GateMetrics
from rollout_operator.releases.metrics import ReleaseCounters, show_releases, show_schedules
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.policies import PolicyMetrics

_NAMESPACE: Final = "default"


def make_all_metrics() -> Metrics:
    """Return metrics as of a process with all features."""
    metrics = Metrics()
    PolicyMetrics(metrics.registry, _NAMESPACE, ())
    GateMetrics(metrics.registry)
    ReleaseCounters(metrics.registry, _NAMESPACE, ())
    show_releases(metrics.registry, tuple, tuple)
    show_schedules(metrics.registry, tuple)
    return metrics
