"""All families that a process may expose, also of what is not enabled by default."""

from typing import Final

from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.policies import PolicyMetrics

_NAMESPACE: Final = "default"


def make_all_metrics() -> Metrics:
    """Return metrics as of a process that is asked for everything."""
    metrics = Metrics()
    PolicyMetrics(metrics.registry, _NAMESPACE, ())
    return metrics
