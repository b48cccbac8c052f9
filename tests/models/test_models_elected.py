"""Grants under a Lease, walked through: SI-01 to SI-05, SI-17, SI-22, LI-08, FP-07, FP-18, FP-20.

A Lease adds no step to what is proven of processes that all act. And what it would take to grant
without the list of all pods: each short cut is unsafe by something that this operator has to stand.
That it would be safe without that takes a minute to see: `make prove ARGS=models`.
"""

import pytest
from msgspec.structs import replace

from tests.models.elected import BY_LEASE, BY_RECORD, ONE_EACH, Elections, Gap, Lead, walk_through
from tests.models.grants import Grants, Setup
from tests.models.search import explore, find_stuck
from tests.models.test_models_grants import is_granted, is_quiet

pytestmark = pytest.mark.thorough

BOTH_PODS = Setup(slots=(1,), wants=((0, 1),))
TWICE = "p and q may be gone at once"
KNOWN = "a pod may go beside one that was known to be down"

UNSAFE = [
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
    walk = walk_through(Elections(setup=ONE_EACH))

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


@pytest.mark.parametrize(("elections", "gap", "text"), UNSAFE)
def test_no_short_cut_is_safe_with_what_may_happen(
    elections: Elections, gap: Gap | None, text: str
) -> None:
    fault = walk_through(elections, *([] if gap is None else [gap])).fault

    assert fault is not None
    assert fault.text == text
    verbs = [step.verb for step in fault.trace]
    assert "go without a list" in verbs
    assert verbs[-1] == "allow"


def test_every_gap_is_tried() -> None:
    assert {param.values[1] for param in UNSAFE} == {*Gap, None}


def test_the_list_knows_what_failed_before_the_record() -> None:
    """SI-02: the same accidents, without a short cut; the model is not unsafe in any case."""
    one = Setup(slots=(1,), wants=((0,),))

    assert walk_through(Elections(setup=one, has_accidents=True)).fault is None
    # In order and complete, a cache that shows the record is as good as the list.
    assert walk_through(replace(BY_RECORD, setup=one, has_accidents=True)).fault is None
