"""The status of a policy, and what is read back of it."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.budget import StatusCondition, ZoneSource
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Newcomers, Zone
from rollout_operator.model.policy import (
    Batch,
    PolicyRefusal,
    PolicyRefusalCode,
    PolicySetStatus,
    PolicySnapshot,
    PolicyStatus,
    PolicyZoneStatus,
    RecordedBatch,
    RefusedPolicy,
    ZoneFinding,
    ZoneFindingCode,
    ZoneResolution,
    ZonesCode,
)
from rollout_operator.planning.policies import plan_policy
from rollout_operator.planning.policy_status import (
    find_batch,
    find_initial,
    is_urgent,
    list_dropped,
    read_resolution,
    render_batch,
    render_policy_status,
    render_refused_status,
)
from tests.builders import NOW, prev, zone
from tests.planning.policies.snapshots import batch, policy, read_policy, seconds, snapshot
from tests.planning.tables import read_table

B = zone("b")
NEVER = PolicyStatus()
DONE = batch("a-2", completion=-60)
SHOWN = "2026-01-01T12:00:00Z"
REFUSED = RefusedPolicy(
    head=policy().head,
    refusals=(
        PolicyRefusal(code=PolicyRefusalCode.EMPTY_SELECTOR, field="spec", text="first"),
        PolicyRefusal(code=PolicyRefusalCode.INVALID_SPEC, field="spec", text="second"),
    ),
)


def render(case: PolicySnapshot, before: PolicyStatus = NEVER) -> PolicyStatus:
    return render_policy_status(case, plan_policy(case), before=before)


def short(status: PolicyStatus) -> list[str]:
    """Return phase and the conditions, as `+Ready UpToDate` and `-Ready RollingOut`."""
    signs = {"True": "+", "False": "-"}
    own = [f"{signs[one.status]}{one.type} {one.reason}" for one in status.conditions]
    return [status.phase, *own]


def spanning() -> PolicySnapshot:
    finding = ZoneFinding(code=ZoneFindingCode.SPANS_ZONES, text="x has pods in 2a and 2b")
    case = snapshot(prev("a"), B)
    spans = ZoneResolution(code=ZonesCode.SPANS_ZONES, findings=(finding,))
    return PolicySnapshot(policy=case.policy, resolution=spans, group=case.group)


PHASES = """
all is updated
  zone a; zone b | Idle -UpToDate +UpToDate --
pods go
  prev a; zone b | Progressing +BatchOpen -RollingOut +-
a pod starts
  prev a ppL; zone b; batch a-2 | Progressing +BatchOpen -RollingOut +-
MAZ-40 the pause
  prev a ppl; zone b; batch a-2 | Waiting +IntervalWait -RollingOut +-
MT-46 MAZ-44 it has stalled
  prev a ppL; zone b; batch a-2 start=-601
  | Progressing -ProgressDeadlineExceeded -RollingOut -+
MAZ-11 paused
  prev a; zone b; spec is_paused=true | Paused -Paused -RollingOut --
MT-40 MAZ-45 a zone is short
  prev a; zone b llL ready=2 | Waiting -Blocked -ZoneNotReady +-
MAZ-45 and nothing is outdated
  zone a; zone b llL ready=2 | Waiting -UpToDate -ZoneNotReady +-
MT-41 MAZ-45 two are, and neither recovers
  prev a pLp; prev b pwp | Blocked -Blocked -MultipleZonesUnavailable -+
MAZ-45 two are, and their pods that crash go
  prev a pPp; prev b pwp | Progressing +BatchOpen -RollingOut +-
MAZ-45 nothing is outdated in two
  zone a llL ready=2; zone b lLl ready=2 | Blocked -UpToDate -MultipleZonesUnavailable -+
MAZ-45 pods start in two zones
  zone a lll ready=2; zone b llT ready=2 | Blocked -UpToDate -MultipleZonesUnavailable +-
MAZ-26 a paused zone is short
  prev a ppL paused=true; prev b | Waiting -Blocked -ZoneNotReady -+
MAZ-34 no revision
  prev a update_revision=; zone b | Waiting -Blocked -RollingOut -+
MT-51 a zone is being scaled
  prev a; zone b status_replicas=4 | Waiting -Blocked -RollingOut +-
MT-65 MAZ-27
  prev a; zone b strategy=RollingUpdate | Blocked -Blocked -UpdateStrategyNotOnDelete -+
MAZ-34 a status behind
  prev a observed_generation=0; zone b | Waiting -Blocked -RollingOut +-
MAZ-28 no StatefulSet
  none | Idle -UpToDate -NoStatefulSets --
"""


@pytest.mark.parametrize(("case", "expected"), read_table(PHASES, read_policy))
def test_phase_and_conditions(case: PolicySnapshot, expected: list[str]) -> None:
    """MAZ-51, MAZ-52: phase, Progressing, Ready, and the signs of Reconciling and Stalled."""
    phase, progressing, ready, others = expected[0].split()
    found = short(render(case))

    assert found[:3] == [phase, "+Accepted Accepted", "+ZonesResolved AllResolved"]
    assert found[3] == f"{progressing[0]}Progressing {progressing[1:]}"
    assert found[4] == f"{ready[0]}Ready {ready[1:]}"
    assert [one[0] for one in found[5:]] == [*others]


def test_zones_that_are_not_known() -> None:
    """MT-06, MAZ-20: its own condition says why, and so does Ready."""
    found = render(spanning())

    assert short(found)[2:5] == [
        "-ZonesResolved StatefulSetSpansZones",
        "-Progressing Blocked",
        "-Ready StatefulSetSpansZones",
    ]
    assert {one.message for one in found.conditions} > {"x has pods in 2a and 2b"}


def test_a_policy_that_is_refused() -> None:
    """MT-61, MAZ-23: all refusals are reported, the first is the reason; records stay."""
    before = render(snapshot(zone("a"), batch=DONE))
    found = render_refused_status(REFUSED, before=before, now=NOW)

    assert short(found) == [
        "Invalid",
        "-Accepted EmptySelector",
        "-Progressing Blocked",
        "-Ready EmptySelector",
        "-Reconciling EmptySelector",
        "+Stalled EmptySelector",
    ]
    assert found.conditions[0].message == "first; second"
    assert find_batch(found) == DONE
    written = json.loads(msgspec.json.encode(found))
    assert not {"updatedPods", "totalPods", "readyPods"} & {*written}, "nothing is counted"


def test_what_waits_for_a_strategy_is_counted_and_says_the_way_out() -> None:
    """MAZ-27, MAZ-50: it may be the first that a person sees of a policy."""
    case = snapshot(prev("a", "ppL"), zone("b", strategy="RollingUpdate"))
    found = render(case)

    assert (found.updated_pods, found.total_pods, found.ready_pods) == (4, 6, 5)
    assert [one.name for one in found.zones] == ["a", "b"]
    ready = found.find_condition("Ready")
    assert ready is not None
    assert ready.message == (
        "StatefulSet zone-b has RollingUpdate update strategy while OnDelete is expected, skipping"
        " reconcile; set spec.updateStrategy.type to OnDelete, or spec.manageUpdateStrategy of the"
        " policy"
    )


def test_numbers_zone_by_zone() -> None:
    """MAZ-50: what the columns of `kubectl get` show, and where it stands."""
    found = render(snapshot(zone("a"), prev("b", "ppL"), prev("c"), batch=batch("b-2")))

    assert (found.current_zone, found.current_stateful_set) == ("b", "zone-b")
    assert (found.updated_pods, found.total_pods, found.ready_pods) == (4, 9, 8)
    assert [(one.order, one.name, one.state) for one in found.zones] == [
        (1, "a", "Updated"), (2, "b", "Updating"), (3, "c", "Pending"),
    ]  # fmt: skip
    assert json.loads(msgspec.json.encode(found.zones[1].stateful_sets)) == [
        {
            "name": "zone-b",
            "source": "Label",
            "replicas": 3,
            "updatedPods": 1,
            "outdatedPods": 2,
            "unavailablePods": 1,
            "updateRevision": "last",
            "initialReplicas": 0,
        }
    ]


def test_the_replicas_of_when_a_revision_came_are_kept() -> None:
    """MAZ-46: a zone that is scaled up in mid-rollout is not begun by that, nor by a restart."""
    status = render(snapshot(zone("a", "ll"), B))
    assert find_initial(status, snapshot(zone("a", "lll"), B).group) == {}, "nothing is known"
    seen = []
    for pods, revision in (
        ("ll", "new"),  # a template that comes
        ("lll", "new"),  # an upscale
        ("l", "new"),  # a downscale, for a while
        ("lll", "new"),
        ("lll", "newer"),
        ("llll", "newest"),  # both at once
    ):
        case = snapshot(zone("a", pods, update_revision=revision), B)
        case = structs.replace(case, initial=find_initial(status, case.group))
        status = render(case, before=status)
        seen.append(status.zones[0].stateful_sets[0].initial_replicas)

    assert seen == [2, 2, 1, 1, 3, 3]


@pytest.mark.parametrize("written", [-1, 0])
def test_replicas_that_nobody_has_are_unknown(written: int) -> None:
    entry = PolicySetStatus(name="zone-a", update_revision="last", initial_replicas=written)
    status = PolicyStatus(zones=(PolicyZoneStatus(name="a", stateful_sets=(entry,)),))

    assert find_initial(status, snapshot(zone("a"), B).group) == {}


def test_new_pods_of_an_upscale_are_not_ready_and_block_nothing() -> None:
    """D-67: nothing waits for them, and nothing says that they are available."""
    seen = Newcomers(used=2, generation=1, pods=frozenset({Uid("uid-a-2")}))
    member = structs.replace(zone("a", "llL", ready=2), newcomers=seen)
    found = render(snapshot(member, B))

    assert (found.ready_pods, found.zones[0].stateful_sets[0].unavailable_pods) == (5, 1)
    assert [one.state for one in found.zones] == ["Updated", "Updated"]
    assert short(found)[0] == "Waiting"
    assert "-Ready ZoneNotReady" in short(found)


def test_a_zone_that_holds_the_others_is_blocked() -> None:
    found = render(snapshot(prev("a"), zone("b", "llL", ready=2)))

    assert [one.state for one in found.zones] == ["Pending", "Blocked"]
    assert found.current_zone == ""


@pytest.mark.parametrize(
    ("zones", "total"),
    [
        pytest.param((prev("a", observed_generation=0), B), 6, id="MAZ-34 for a moment they stay"),
        pytest.param((), 0, id="MAZ-28 without a StatefulSet there are none"),
    ],
)
def test_numbers_where_nothing_is_counted(zones: tuple[Zone, ...], total: int) -> None:
    found = render(snapshot(*zones), before=render(snapshot(prev("a"), B)))

    assert (found.total_pods, len(found.zones)) == (total, total // 3)


def test_sec13_zones_by_hand_of_what_is_not_there_go() -> None:
    """Each has series in metrics, also while nothing is counted."""
    before = render(snapshot(prev("a"), B))
    others = tuple(
        PolicyZoneStatus(name=f"z{number}", stateful_sets=(PolicySetStatus(name=f"{number}"),))
        for number in range(100)
    )
    long = replace(before.zones[0], name="z" * 254)
    edited = replace(before, zones=(*before.zones, *others, long))
    found = render(snapshot(prev("a", observed_generation=0), B), before=edited)

    assert found.zones == before.zones


def test_when_a_rollout_began_and_ended() -> None:
    """MAZ-50: begun with the first outdated pod, complete when all is updated, then anew."""

    def times(status: PolicyStatus) -> tuple[Any, Any]:
        return status.start_time, status.completion_time

    idle = render(snapshot(zone("a"), B))
    assert times(idle) == (msgspec.UNSET, msgspec.UNSET)
    later = [NOW + seconds(number) for number in (0, 10, 20, 30)]
    begun = render(snapshot(prev("a"), B, now=later[0]), idle)
    assert times(begun) == (SHOWN, msgspec.UNSET)
    on_its_way = render(snapshot(prev("a", "ppl"), B, now=later[1]), begun)
    assert times(on_its_way) == (SHOWN, msgspec.UNSET)
    ended = render(snapshot(zone("a"), B, now=later[2]), on_its_way)
    assert times(ended) == (SHOWN, "2026-01-01T12:00:20Z")
    again = render(snapshot(prev("a"), B, now=later[3]), ended)
    assert times(again) == ("2026-01-01T12:00:30Z", msgspec.UNSET)


def test_the_time_of_a_condition_is_that_of_its_status() -> None:
    """MAZ-52: another reason of the same status keeps it; conditions of others stay."""
    alien = StatusCondition(type="Theirs", status="True")
    first = render(snapshot(prev("a"), B), replace(NEVER, conditions=(alien,)))
    second = render(snapshot(prev("a"), B, is_paused=True, now=NOW + seconds(9)), first)
    third = render(snapshot(zone("a"), B, now=NOW + seconds(20)), second)

    since = [one.find_condition("Ready") for one in (first, second, third)]
    found = [one and one.last_transition_time for one in since]
    assert found == [SHOWN, SHOWN, "2026-01-01T12:00:20Z"]
    assert third.find_condition("Theirs") == alien


def test_a_status_that_says_the_same_is_equal() -> None:
    """MAZ-54: nothing is written for it, however much later it is."""
    first = render(snapshot(prev("a", "ppl"), B, batch=batch("a-2")))
    later = NOW + seconds(9)
    again = snapshot(prev("a", "ppl"), B, batch=find_batch(first), now=later)

    assert render(again, first) == first


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(batch("a-2", "a-1"), id="open"),
        pytest.param(batch("a-2", completion=-3.25), id="complete, with the fraction of its time"),
        pytest.param(None, id="none"),
    ],
)
def test_a_batch_is_read_as_it_was_recorded(last: Batch | None) -> None:
    """MAZ-43: through the JSON of the API, so that a restart changes no pause."""
    written = msgspec.json.encode(replace(NEVER, last_batch=render_batch(last)))

    assert find_batch(msgspec.json.decode(written, type=PolicyStatus)) == last


@pytest.mark.parametrize("field", ["start_time", "completion_time"])
@pytest.mark.parametrize("text", ["", "yesterday", "9999-12-31T23:59:59Z"])
def test_a_batch_whose_times_people_have_broken_is_lost(field: str, text: str) -> None:
    recorded = render_batch(DONE)
    assert not isinstance(recorded, msgspec.UnsetType)
    status = replace(NEVER, last_batch=replace(recorded, **{field: text}))

    assert find_batch(status) is None


def test_the_next_batch_is_announced() -> None:
    found = render(snapshot(prev("a", "ppl"), B, batch=batch("a-2"), interval=timedelta(hours=1)))

    assert found.next_batch_time == "2026-01-01T13:00:00Z"
    assert render(snapshot(prev("a"), B), found).next_batch_time is msgspec.UNSET


def test_the_end_of_a_pause_is_shown_in_whole_seconds_and_never_too_early() -> None:
    """As the API has times; what counts is the record of the batch, with its fraction."""
    ended = structs.replace(DONE, completion=NOW - timedelta(microseconds=1))
    found = render(snapshot(prev("a", "ppl"), B, batch=ended, interval=timedelta(hours=1)))

    assert found.next_batch_time == "2026-01-01T13:00:00Z"
    recorded = found.last_batch
    assert isinstance(recorded, RecordedBatch)
    assert recorded.completion_time == "2026-01-01T11:59:59.999999Z"


OPENED = render(snapshot(prev("a", "ppL"), B, batch=batch("a-2")))


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param(snapshot(prev("a", "ppL"), B, batch=batch("a-2")), False, id="nothing"),
        pytest.param(snapshot(prev("a", "pp-"), B, batch=batch("a-2")), False, id="a pod is gone"),
        pytest.param(snapshot(prev("a", "ppl"), B, batch=batch("a-2")), True, id="it is back"),
        pytest.param(
            snapshot(prev("a", "ppL"), zone("b", "llL"), batch=batch("a-2")), True,
            id="two zones are short",
        ),
        pytest.param(
            snapshot(prev("a", "pLL"), B, batch=batch("a-1", number=5)), True, id="the next batch"
        ),
        pytest.param(
            snapshot(prev("a", "ppL"), B, batch=batch("a-2"), now=NOW + seconds(900)), True,
            id="it has stalled",
        ),
    ],
)  # fmt: skip
def test_only_numbers_of_pods_may_wait(case: PolicySnapshot, expected: bool) -> None:
    """MAZ-54: what decides, and what conditions say, is written at once."""
    assert is_urgent(OPENED, render(case, OPENED)) is expected


def test_what_a_status_says_decides_as_what_was_resolved() -> None:
    given = snapshot(zone("a"), zone("b"))
    status = render_policy_status(given, plan_policy(given), before=PolicyStatus())
    read = read_resolution(status)

    assert [one.name for one in read.zones] == [one.name for one in given.resolution.zones]
    assert (read.sets, read.code) == (given.resolution.sets, given.resolution.code)


def test_a_set_that_spans_zones_keeps_its_sentence() -> None:
    condition = StatusCondition(
        type="ZonesResolved", status="False", reason="StatefulSetSpansZones", message="db spans"
    )
    read = read_resolution(PolicyStatus(conditions=(condition,)))

    assert read.code is ZonesCode.SPANS_ZONES
    assert [(one.code, one.text) for one in read.findings] == [
        (ZoneFindingCode.SPANS_ZONES, "db spans")
    ]


def test_what_a_client_wrote_by_hand_is_no_error() -> None:
    odd = PolicySetStatus(name="db", source="Guess")
    zones = tuple(
        PolicyZoneStatus(name=name, order=order, stateful_sets=sets)
        for name, order, sets in (
            ("b", 2, (odd,)),
            ("a", 1, (replace(odd, name="x"),)),
            ("c", 3, ()),
        )
    )
    condition = StatusCondition(type="ZonesResolved", status="True", reason="Odd")
    read = read_resolution(PolicyStatus(zones=zones, conditions=(condition,)))

    assert [one.name for one in read.zones] == ["a", "b"]
    assert {one.source for one in read.sets} == {ZoneSource.NONE}
    assert read.code is ZonesCode.ALL_RESOLVED


@pytest.mark.parametrize(
    ("stored", "dropped"),
    [
        pytest.param({}, [], id="all of it"),
        pytest.param({"lastBatch": None}, ["status.lastBatch"], id="without batches"),
        pytest.param(
            {"readyPods": None, "zones": None}, ["status.readyPods", "status.zones"], id="counts"
        ),
        pytest.param({"readyPods": 0}, [], id="a number that others have changed"),
        pytest.param({"nextBatchTime": SHOWN}, [], id="more than was written"),
    ],
)
def test_what_an_older_definition_drops_is_found(
    stored: dict[str, Any], dropped: list[str]
) -> None:
    status = render(snapshot(prev("a"), B, batch=DONE))
    document = json.loads(msgspec.json.encode(status)) | stored
    kept = {key: part for key, part in document.items() if part is not None}
    assert list_dropped(status, msgspec.convert(kept, PolicyStatus)) == dropped
