"""SI-22, judged: only the process that holds the Lease writes, within what clocks may differ."""

import pytest

from rollout_operator.kube.api import LEASES, PODS, JsonObject
from tests.judge.book import read_book
from tests.judge.builder import OPERATOR, HistoryBuilder
from tests.judge.invariants_election import list_broken
from tests.judge.promises import Promises

OTHER = "operator-2"


@pytest.mark.parametrize(
    ("by", "at", "clocks_differ", "is_broken"),
    [
        (OPERATOR, 15, False, False),
        (OTHER, 15, False, True),
        (OTHER, 25, False, False),
        (OPERATOR, 25, False, True),
        # It held the Lease between two others, and its clock may run at half the rate of theirs.
        (OTHER, 31, True, False),
        (OTHER, 60, True, True),
    ],
)
def test_si22_which_process_may_write(
    by: str, at: float, clocks_differ: bool, is_broken: bool
) -> None:
    t = HistoryBuilder().zones()
    for second, holder in ((10, OPERATOR), (20, OTHER), (30, OPERATOR)):
        lease: JsonObject = {
            "metadata": {"name": "lease"},
            "spec": {"holderIdentity": f"{holder}_1"},
        }
        t.write(second, LEASES, "lease", lease, actor=holder)
    if clocks_differ:
        t.fault(5, "clock_rate", "has a clock that runs at 1.74")
    t.call(at, "patch", PODS, "a-0", actor=by)
    broken = list(list_broken(read_book(t.history, Promises())))
    assert [one.invariant for one in broken] == (["SI-22"] if is_broken else [])
