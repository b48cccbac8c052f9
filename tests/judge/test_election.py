"""SI-22, judged: only the process that holds the Lease writes, within what clocks may differ."""

import pytest

from rollout_operator.kube.api import LEASES, MUTATING_WEBHOOKS, PODS, SECRETS, JsonObject
from tests.judge.book import read_book
from tests.judge.builder import OPERATOR, HistoryBuilder
from tests.judge.histories import Events, cases
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
        (OTHER, 45, True, True),
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
    assert judge(t) == (["SI-22"] if is_broken else [])


def judge(t: HistoryBuilder) -> list[str]:
    return [one.invariant for one in list_broken(read_book(t.history, Promises()))]


def late(t: HistoryBuilder, what: str) -> HistoryBuilder:
    return t.fault(9, "late", f"call 3: {what}: late: 0:00:01").call(40, "patch", PODS, "a-0")


WRITES = cases(
    {
        "a read": lambda t: t.call(15, "get", PODS, "a-0"),
        "without any Lease -> SI-22": lambda t: t.call(5, "patch", PODS, "a-0"),
        "a Secret, which all renew": lambda t: t.call(5, "patch", SECRETS, "certificate"),
        "a CA bundle": lambda t: t.call(5, "patch", MUTATING_WEBHOOKS, "ours"),
        "late by a fault": lambda t: late(t, "patch pods/zone-a-0"),
        "another one was late -> SI-22": lambda t: late(t, "patch pods/zone-a-1"),
        "late, of a process that has ended": lambda t: (
            t.lived(11, "started").lived(14, "crashed").call(15, "patch", PODS, "a-0")
        ),
    }
)


@pytest.mark.parametrize(("events", "broken"), WRITES)
def test_si22_what_may_be_written_without_the_lease(events: Events, broken: list[str]) -> None:
    """Operator 2 has it from the tenth second on."""
    t = HistoryBuilder().zones()
    lease: JsonObject = {"metadata": {"name": "lease"}, "spec": {"holderIdentity": f"{OTHER}_1"}}
    events(t.write(10, LEASES, "lease", lease, actor=OTHER))
    assert judge(t) == broken
