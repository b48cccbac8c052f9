"""Events about schedules stand with the schedule that they are about."""

import pytest

from rollout_operator.controllers.releases.schedules.reports import report_schedule
from rollout_operator.model.event import EventKind, EventRecord, Regarding
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import WatchedObject
from rollout_operator.model.outcome import Severity
from rollout_operator.model.releases.plan import ReleaseEvent
from tests.planning.releases.builders import gate


@pytest.mark.parametrize(
    ("namespace", "kind"), [("prod", EventKind.SCHEDULE), ("", EventKind.CLUSTER_SCHEDULE)]
)
def test_events_name_the_schedule(namespace: str, kind: EventKind) -> None:
    """RELB-31: one of the cluster has no namespace."""
    watched = WatchedObject(
        name="nights", namespace=namespace, uid=Uid("1"), resource_version="7", decoded=gate()
    )
    records: list[EventRecord] = []
    event = ReleaseEvent(reason="WindowOpened", note="it is open", severity=Severity.WARN)
    report_schedule(records.append, watched, [event])
    (record,) = records
    assert record.regarding == Regarding(kind, namespace, "nights", Uid("1"))
    assert (record.reason, record.note, record.severity) == (
        "WindowOpened",
        "it is open",
        Severity.WARN,
    )
