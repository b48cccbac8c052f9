"""What metrics show, for tests to compare."""

from rollout_operator.telemetry.metrics import Metrics


def read_samples(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Return the values of a metric by those of its labels, in their order."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"rollout_operator_{name}"
    }
