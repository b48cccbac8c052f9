"""The metrics of one watch, bound once: every known outcome exists at zero."""

from collections.abc import Callable
from typing import Final, Generic

from rollout_operator.kube.cache.retries import RetryCause
from rollout_operator.kube.cache.store import Store
from rollout_operator.model.objects import Viewed
from rollout_operator.telemetry.metrics import Metrics

EVENT_TYPES: Final = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")


class WatchMeters(Generic[Viewed]):
    """What an informer counts, by the kind that it follows."""

    def __init__(self, metrics: Metrics, kind: str, age: Callable[[], float]) -> None:
        self.restarts = {
            cause: metrics.watch_restarts.labels(kind=kind, cause=cause) for cause in RetryCause
        }
        self.events = {
            type: metrics.watch_events.labels(kind=kind, type=type) for type in EVENT_TYPES
        }
        self._cached = metrics.cached_objects.labels(kind=kind)
        self._unreadable = metrics.unreadable_objects.labels(kind=kind)
        metrics.watch_age(kind, age)

    def measure(self, store: Store[Viewed]) -> None:
        """Take note of how much is stored."""
        self._cached.set(len(store))
        self._unreadable.set(store.unreadable_count)
