"""Events about schedules, each where its status says something new."""

from collections.abc import Callable, Iterable

from rollout_operator.model.event import EventAction, EventKind, EventRecord, Regarding
from rollout_operator.model.objects import WatchedObject
from rollout_operator.model.releases.plan import ReleaseEvent


def report_schedule(
    record: Callable[[EventRecord], None], watched: WatchedObject, events: Iterable[ReleaseEvent]
) -> None:
    """Have Events written soon; `record` takes them. A schedule of the cluster has no namespace."""
    kind = EventKind.SCHEDULE if watched.namespace else EventKind.CLUSTER_SCHEDULE
    about = Regarding(kind, watched.namespace, watched.name, watched.uid)
    for event in events:
        record(event.record(about, EventAction.RELEASE))
