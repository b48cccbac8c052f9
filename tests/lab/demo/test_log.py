"""What of the world's history and of the operator's log is worth a line."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from rollout_lab.demo.log import read_lease, read_log, read_move, read_record, read_waits
from rollout_lab.demo.objects import PERSON, scale
from rollout_lab.demo.snapshot import DemoEntry, DemoReason
from rollout_lab.model.history import Called, Commit, Lived, PodCalled, Record, Said

from rollout_operator.kube.api import PODS, JsonObject
from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import Code, Plan, Reason
from rollout_operator.telemetry.metrics import GroupState

BEGIN = timedelta(seconds=100)
AT = timedelta(seconds=101.5)
WHY = "zone-a-0 is at revision zone-a-1f, zone-a wants zone-a-2e"


def called(actor: str, status: int) -> Called:
    return Called(
        at=AT,
        begun=AT,
        number=7,
        actor=actor,
        request=scale("zone-c", 2),
        status=status,
        message="no way",
    )


SILENT = PodCalled(
    at=AT,
    begun=AT,
    actor="operator-1",
    method="POST",
    pod="zone-c-2",
    uid="u",
    path="/prepare-shutdown",
    status=0,
    acted=True,
)
MOVED = Commit(
    at=AT,
    revision=1,
    actor="kubelet",
    resource=PODS,
    namespace="demo",
    name="x",
    before=None,
    after={},
)


@pytest.mark.parametrize(
    ("record", "actor", "text"),
    [
        pytest.param(called(PERSON, 403), "API server", "refused: no way", id="refusal"),
        pytest.param(
            SILENT, "operator", "POST zone-c-2/prepare-shutdown: no answer", id="silent pod"
        ),
        pytest.param(called(PERSON, 200), "", "", id="what was done is said already"),
        pytest.param(called("kubelet", 409), "", "", id="others' trouble"),
        pytest.param(Said(at=AT, actor="operator-1", text="x"), "", "", id="the log is read"),
        pytest.param(Lived(at=AT, actor="operator-1", what="ready"), "", "", id="the set-up"),
        pytest.param(MOVED, "", "", id="what the grid shows"),
    ],
)
def test_some_records_are_worth_a_line(record: Record, actor: str, text: str) -> None:
    """Others are seen in the stories themselves."""
    entry = DemoEntry(at=1.5, who=actor, text=text) if actor else None
    assert read_record(record, BEGIN) == entry


def seen(text: str, *, is_why: bool = False) -> DemoEntry:
    return DemoEntry(at=1.5, who="operator", text=text, is_why=is_why)


@pytest.mark.parametrize(
    ("keys", "entry"),
    [
        (
            {"msg": "Terminating pod", "pod": "zone-a-0", "reason": "pod_outdated", "why": WHY},
            seen("deletes zone-a-0: pod_outdated"),
        ),
        (
            {"msg": "Recording revision", "zone": "zone-a", "reason": "rolled_out"},
            seen("zone-a is done: rolled_out"),
        ),
        (
            {"msg": "Group waits", "reason": "paused", "why": "zone-b is paused"},
            seen("paused: zone-b is paused", is_why=True),
        ),
        ({"msg": "Group waits", "reason": "status_behind", "why": "generation 1"}, None),
        ({"msg": "Listed"}, None),
        ({"reason": "x"}, None),
        ({}, None),
    ],
)
def test_some_lines_of_the_log_become_entries(
    keys: Mapping[str, object], entry: DemoEntry | None
) -> None:
    assert read_log(keys, 1.5) == entry


def test_of_several_replicas_each_has_its_name() -> None:
    elected = {
        "msg": "Elected: this process acts",
        "lease": "rollout-operator",
        "holder": "operator-2_1",
        "before": "operator-1_1",
    }
    text = "takes the lease rollout-operator after operator-1, and acts from now on"
    assert read_log(elected, 1.5, "operator-2") == DemoEntry(at=1.5, who="operator-2", text=text)


def test_a_lease_that_is_not_renewed_is_a_reason() -> None:
    now = datetime(2026, 1, 2, 3, 4, 12, 600_000, tzinfo=UTC)
    spec: JsonObject = {
        "holderIdentity": "operator-1_1",
        "renewTime": "2026-01-02T03:04:05.500000Z",
    }
    lease: JsonObject = {"metadata": {"name": "rollout-operator"}, "spec": spec}

    assert read_lease(lease, now) == DemoReason(
        zone="",
        code="not_elected",
        text="lease rollout-operator was renewed 7 s ago by operator-1; another replica takes it"
        " after 15 s without a renewal",
    )


def test_why_a_zone_moves_is_the_reason_of_the_delete() -> None:
    keys = {"msg": "Terminating pod", "zone": "zone-a", "reason": "pod_outdated", "why": WHY}

    assert read_move(keys) == DemoReason(zone="zone-a", code="pod_outdated", text=WHY)
    assert read_move({**keys, "msg": "Group waits"}) is None


def test_why_zones_wait_are_the_reasons_of_the_last_plan() -> None:
    waits = (
        Reason(code=Code.PODS_STARTING, text="1 of 3", zone="zone-a"),
        Reason(code=Code.ANOTHER_ZONE_FIRST, text="zone-b waits for zone-a"),
    )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    entry = GroupState(plan=Plan(group=GroupName("ingester"), waits=waits), since=now, looked=now)

    assert list(read_waits([entry])) == [
        DemoReason(zone="zone-a", code="pods_starting", text="1 of 3"),
        DemoReason(zone="", code="another_zone_first", text="zone-b waits for zone-a"),
    ]
