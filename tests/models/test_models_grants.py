"""The protocol of grants, walked through completely: SI-01, SI-03 to SI-05, SI-17, SI-18, LI-07.

No two pods that a budget keeps apart are gone, or may be gone, at the same time; whatever happens,
everything can come to rest again; and of two requests at the same time one is granted.

Under a Lease (SI-02, SI-22, LI-08, FP-07, FP-18, FP-20): it adds no step to what is proven of
processes that all act, and each short cut by which a grant would need no list of all pods is unsafe
by something that this operator has to stand. That it would be safe without that takes a minute to
see: `make prove ARGS=models`.
"""

import importlib
import sys
from functools import lru_cache, reduce

import pytest
from msgspec.structs import replace

from tests.models.elected import BY_LEASE, BY_RECORD, ONE_EACH, Elections, Gap, Lead
from tests.models.elected import walk_through as walk_elected
from tests.models.grants import Error, Grants, Phase, Process, Setup, State
from tests.models.search import Step, Walk, explore, find_stuck, list_ends

pytestmark = pytest.mark.thorough

IN_MEMORY = Setup(slots=(2,), wants=((0, 1),), has_records=False)
SLOW = [pytest.mark.slow, pytest.mark.prove]

SETUPS = [
    pytest.param(ONE_EACH, id="two zones"),
    pytest.param(
        replace(ONE_EACH, ranks=(0, 1)), id="two zones, either record may be older", marks=SLOW
    ),
    pytest.param(Setup(wants=((0,), (0,))), id="the same pod"),
    pytest.param(replace(ONE_EACH, zones="aa"), id="one zone, maximum 1"),
    pytest.param(
        Setup(zones="aab", most=2, wants=((0,), (1, 2))),
        id="maximum 2, and another zone",
        marks=SLOW,
    ),
    pytest.param(replace(ONE_EACH, by_partition=True), id="SI-05 one partition, maximum 1"),
    pytest.param(
        Setup(slots=(2, 1), wants=((0, 1), (1,))),
        id="both zones in one process at once, and another",
        marks=SLOW,
    ),
    pytest.param(Setup(slots=(2,), wants=((0, 1),)), id="one process"),
    pytest.param(replace(ONE_EACH, rollouts=(0,)), id="FP-21 a rollout that wins, an eviction"),
    pytest.param(replace(ONE_EACH, rollouts=(1,)), id="FP-21 a rollout that loses, an eviction"),
    pytest.param(replace(ONE_EACH, lists_by_zone=True), id="a call for each zone"),
    pytest.param(
        replace(ONE_EACH, answers=2, has_quick_pods=False), id="SI-16 a review that comes twice"
    ),
    pytest.param(IN_MEMORY, id="one process that may not patch pods"),
]

# Every one of them is unsafe.
UNSAFE = [
    pytest.param(Error.LISTS_FIRST, ONE_EACH, id="the list before the record"),
    pytest.param(Error.DECIDES_ONCE, ONE_EACH, id="no second decision"),
    pytest.param(Error.WRITES_BLINDLY, ONE_EACH, id="SI-17 the record without compare-and-swap"),
    pytest.param(Error.GRANTS_ANEW, ONE_EACH, id="a record over a record, and then released"),
    pytest.param(Error.IGNORES_LOSERS, ONE_EACH, id="the winner does not wait for the loser"),
    pytest.param(Error.FORGETS_OWN_RECORD, ONE_EACH, id="its own record is not read"),
    pytest.param(Error.ANSWERS_LATE, ONE_EACH, id="the age is not read before the answer"),
    pytest.param(Error.RECLAIMS_EARLY, ONE_EACH, id="reclaimed before its effect is over"),
    pytest.param(Error.RECLAIMS_BLINDLY, ONE_EACH, id="reclaimed another record than seen"),
    pytest.param(Error.RELEASES_BLINDLY, ONE_EACH, id="released another record than its own"),
    pytest.param(Error.REMEMBERS_NOTHING, IN_MEMORY, id="reservations do not count"),
    pytest.param(Error.SKIPS_QUARANTINE, IN_MEMORY, id="no quarantine after a start"),
]
# These are safe and of no use; each has a test of its own.
USELESS = {Error.NONE_WINS, Error.NEVER_RECLAIMS}

CONTESTS = [
    pytest.param(ONE_EACH, id="two"),
    pytest.param(Setup(wants=((0,), (0,))), id="the same pod"),
    pytest.param(Setup(zones="abc", wants=((0,), (1,), (2,)), slots=(1, 1, 1)), id="three"),
    pytest.param(replace(ONE_EACH, lists_by_zone=True), id="a call for each zone"),
]


@lru_cache(1)  # those of the same setup follow one another
def walk_through(setup: Setup, *errors: Error) -> Walk[State]:
    return explore(Grants(replace(setup, errors=frozenset(errors))).model)


def is_at_rest(process: Process) -> bool:
    return not any(process.held) and not any(process.requests) and process.call is None


def has_no_records(state: State) -> bool:
    """Return whether no record stands on a pod that is up."""
    return not any(pod.is_up and pod.record for pod in state.pods)


def is_quiet(state: State) -> bool:
    return has_no_records(state) and all(map(is_at_rest, state.processes))


def is_granted(state: State) -> bool:
    return any(pod.orphans or (pod.record and pod.record.permits) for pod in state.pods)


# What is proven


@pytest.mark.parametrize("setup", SETUPS)
def test_the_budget_holds_and_no_process_is_stuck(setup: Setup) -> None:
    walk = walk_through(setup)
    assert walk.fault is None, f"\n{walk.fault}"
    # LI-07: a budget that is not used becomes free again.
    assert (stuck := find_stuck(walk, is_quiet)) is None, f"\n{stuck}"
    assert (stuck := find_stuck(walk, is_granted)) is None, f"\n{stuck}"
    sys.stdout.write(f"{len(walk.states)} states\n")


@pytest.mark.parametrize("dead", ["X", "Y"])
def test_what_a_dead_process_leaves_is_released(dead: str) -> None:
    """LI-07, FP-06: one of two never comes back, the other one cleans up."""
    walk = walk_through(ONE_EACH)
    other = 1 if dead == "X" else 0

    def is_clean(state: State) -> bool:
        return has_no_records(state) and is_at_rest(state.processes[other])

    def is_alive(step: Step) -> bool:
        return step.actor != dead

    assert (stuck := find_stuck(walk, is_clean, is_alive)) is None, f"\n{stuck}"


@pytest.mark.parametrize("setup", CONTESTS)
def test_of_requests_at_the_same_time_one_is_granted(setup: Setup) -> None:
    """FP-20: without faults, in whatever order their steps come, whichever has the older record."""
    walk = walk_through(replace(setup, has_faults=False, is_once=True, ranks=(0, 1)))
    assert walk.fault is None
    ends = list(list_ends(walk))
    assert ends
    assert all(map(is_granted, ends))
    # Who lost has released.
    leaving = Phase.LEAVING
    assert not any(
        request and request.phase is leaving
        for end in ends
        for one in end.processes
        for request in one.requests
    )


def test_a_second_pod_goes_beside_the_first_where_the_budget_has_room() -> None:
    """The model is not safe for the reason that it never grants twice."""
    walk = walk_through(Setup(zones="aa", most=2, wants=((0,), (1,))))
    assert any(
        not first.is_up and not second.is_up for first, second in (s.pods for s in walk.states)
    )


# That the checker would find it


@pytest.mark.parametrize(("error", "setup"), UNSAFE)
def test_a_deliberate_error_is_found(error: Error, setup: Setup) -> None:
    fault = walk_through(setup, error).fault
    assert fault is not None
    assert fault.text == "p and q may be gone at once"
    assert fault.trace[-1].verb == "allow"


def test_every_error_is_tried() -> None:
    assert {param.values[0] for param in UNSAFE} | USELESS == {*Error}


def test_records_make_up_for_a_process_that_remembers_nothing() -> None:
    """Where there are records, memory only saves calls: so a restart does no harm."""
    assert walk_through(ONE_EACH, Error.REMEMBERS_NOTHING).fault is None


def test_a_second_answer_is_unsafe_where_a_pod_is_back_before_it_takes_effect() -> None:
    """An eviction deletes by name: the assumption that pods are slower than answers is needed."""
    fault = walk_through(replace(ONE_EACH, answers=2)).fault
    assert fault is not None
    assert [step.verb for step in fault.trace][3:6] == ["allow", "delete", "replace"]


def test_without_an_order_both_may_be_refused() -> None:
    setup = replace(ONE_EACH, has_faults=False, is_once=True)
    ends = list(list_ends(walk_through(setup, Error.NONE_WINS)))
    assert not all(map(is_granted, ends))


def test_without_a_reclaim_a_record_stays_for_ever() -> None:
    stuck = find_stuck(walk_through(ONE_EACH, Error.NEVER_RECLAIMS), is_quiet)
    assert stuck is not None
    assert stuck.state.pods[0].record or stuck.state.pods[1].record


# Under a Lease

BOTH_PODS = Setup(slots=(1,), wants=((0, 1),))
TWICE = "p and q may be gone at once"
KNOWN = "a pod may go beside one that was known to be down"

UNSAFE_CUTS = [
    pytest.param(BY_LEASE, Gap.KEEPS_OLD_CACHE, TWICE, id="an old cache after the election"),
    pytest.param(BY_LEASE, Gap.ANSWERS_UNELECTED, TWICE, id="FP-18 an answer after the lease"),
    pytest.param(BY_LEASE, Gap.HAS_OUTSIDER, TWICE, id="another process without an election"),
    pytest.param(
        replace(BY_LEASE, setup=BOTH_PODS), Gap.FORGETS_EARLY, TWICE, id="own grants are forgotten"
    ),
    pytest.param(
        replace(BY_LEASE, has_accidents=True), None, KNOWN, id="SI-02 the cache lags, nothing else"
    ),
    pytest.param(
        replace(BY_RECORD, has_accidents=True),
        Gap.LOSES_EVENTS,
        KNOWN,
        id="FP-07 the cache shows the record, and has lost an event",
    ),
]


def test_a_lease_adds_nothing_to_what_processes_do_that_all_act() -> None:
    """SI-22, FP-18: so all that is proven without a Lease holds when one is lost at any step."""
    walk = walk_elected(Elections(setup=ONE_EACH))
    assert walk.fault is None, f"\n{walk.fault}"
    everything = explore(Grants(ONE_EACH).model)
    assert {state.base for state in walk.states} <= {*everything.states}
    # Late writes of a process that does not know that another one leads are among it.
    assert any(
        Lead.SUPERSEDED in state.leads and any(one.call for one in state.base.processes)
        for state in walk.states
    )
    # LI-07, LI-08: whatever was lost, everything can come to rest, and be granted again.
    assert (stuck := find_stuck(walk, lambda state: is_quiet(state.base))) is None, f"\n{stuck}"
    assert (stuck := find_stuck(walk, lambda state: is_granted(state.base))) is None, f"\n{stuck}"


@pytest.mark.parametrize(("elections", "gap", "text"), UNSAFE_CUTS)
def test_no_short_cut_is_safe_with_what_may_happen(
    elections: Elections, gap: Gap | None, text: str
) -> None:
    fault = walk_elected(elections, *([] if gap is None else [gap])).fault
    assert fault is not None
    assert fault.text == text
    verbs = [step.verb for step in fault.trace]
    assert "go without a list" in verbs
    assert verbs[-1] == "allow"


def test_every_gap_is_tried() -> None:
    assert {param.values[1] for param in UNSAFE_CUTS} == {*Gap, None}


def test_the_list_knows_what_failed_before_the_record() -> None:
    """SI-02: the same accidents, without a short cut; the model is not unsafe in any case."""
    one = Setup(slots=(1,), wants=((0,),))
    assert walk_elected(Elections(setup=one, has_accidents=True)).fault is None
    # In order and complete, a cache that shows the record is as good as the list.
    assert walk_elected(replace(BY_RECORD, setup=one, has_accidents=True)).fault is None


# That the model is of our code: which function does which step, or who else

GATE = "rollout_operator.guards.arbiter:Arbiter"
PENDING = "rollout_operator.guards.grants:InFlight"
RELEASES = "rollout_operator.guards.grants:GrantReleases"
RECORDER = "rollout_operator.guards.grants:Recorder"
SNAPSHOTS = "rollout_operator.guards.arbiter:Snapshots"
READER = "rollout_operator.controllers.observe:GroupReader"
RECLAIMER = "rollout_operator.controllers.budgets:DisruptionController"

FUNCTIONS: dict[str, tuple[str, ...]] = {
    "reserve": (f"{GATE}.request", f"{GATE}.reserve", f"{PENDING}.reserve"),
    "record": (f"{GATE}._record", f"{RECORDER}.write"),
    "be refused the record on": (f"{GATE}._record", f"{PENDING}.release_open"),
    "give up waiting for the record on": (f"{GATE}._record", f"{PENDING}.release_open"),
    "miss the answer on": (f"{GATE}._record", f"{PENDING}.release_open"),
    "list for": (f"{GATE}._read_until_sure", f"{SNAPSHOTS}.observe_live", f"{READER}.read"),
    "miss its record on": (f"{GATE}._read_until_sure",),
    "refuse": (f"{GATE}._confirm", f"{GATE}.release"),
    "stall over": (f"{GATE}._read_until_sure",),
    "be too late for": (f"{GATE}._read_until_sure", f"{GATE}.confirm"),
    "allow": (f"{GATE}._read_until_sure", f"{PENDING}.confirm"),
    "release on": (f"{RELEASES}.release", f"{RECORDER}.remove", f"{PENDING}.release"),
    "give up releasing on": (f"{RELEASES}.release", f"{RELEASES}.abandon"),
    "reclaim": (f"{RECLAIMER}.reconcile", f"{RECORDER}.clear"),
    "forget": (f"{PENDING}.forget_seen", f"{RECLAIMER}.reconcile", f"{PENDING}.release_untouched"),
    "end quarantine": (f"{GATE}._record",),
}

OTHERS = {
    "delete": "the API server: what was answered takes effect",
    "replace": "the StatefulSet controller and a kubelet",
    "age the record on": "time: what it allowed has happened by now, or never will",
    "end the effect of an answer on": "time: the same, of a record that stands no more",
    "be killed": "what kills processes",
    "be killed after sending for": "what kills processes",
    "late": "the API server: a call of a process that does not wait for it any more",
    "lose": "the network",
}


def test_every_step_is_somebodys() -> None:
    """Whatever happens in the model has a function of ours, or another actor, that does it."""
    seen: frozenset[str] = frozenset()
    for setup in (ONE_EACH, IN_MEMORY):
        seen |= walk_through(setup).verbs
    assert seen == FUNCTIONS.keys() | OTHERS.keys()
    assert not FUNCTIONS.keys() & OTHERS.keys()


@pytest.mark.parametrize("name", sorted({name for names in FUNCTIONS.values() for name in names}))
def test_the_function_exists(name: str) -> None:
    module, _, path = name.partition(":")
    assert callable(reduce(getattr, path.split("."), importlib.import_module(module)))
