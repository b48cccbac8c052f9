"""Zones that leave while they are short: histories that break SI-26, and that nearly do.

Zone b leaves, mostly at 9 s and with `b-1` down since 2 s; mostly the pod `a-0` goes at 10 s.
"""

from datetime import timedelta
from typing import Any

import pytest

from rollout_operator.kube.api import STATEFULSETS, ZONE_BUDGETS, JsonObject
from tests.judge.book import read_book
from tests.judge.builder import PATHS, PREPARED, HistoryBuilder
from tests.judge.builder_objects import MOMENT
from tests.judge.departures import get_held_until
from tests.judge.histories import Events, as_events, cases, list_broken
from tests.judge.promises import Promises
from tests.judge.test_policies import batch, policy
from tests.judge.verdict import list_observed_violations

IN_GROUP = {"rollout-group": "ingester"}
TIER = {"tier": "one"}
PARTITIONS = {"podNamePartitionRegex": "zone-[a-z]-([0-9]+)"}


def judge(events: Events) -> list[str]:
    """Return what events in three zones break."""
    history = HistoryBuilder().zones()
    events(history)
    return list(list_broken(history))


def short(t: HistoryBuilder, at: float = 2, **pod: Any) -> HistoryBuilder:
    return t.pod(at, "b-1", ready=False, **pod)


def gone(t: HistoryBuilder, at: float = 9) -> HistoryBuilder:
    """Have the set be deleted."""
    return t.write(at, STATEFULSETS, "b", None)


def back(t: HistoryBuilder, at: float, *, ready: float | None = None) -> HistoryBuilder:
    """Have a set of the same name be created, which adopts the pods, and be whole at a time."""
    t.zone(at, "b", uid="another")
    return t if ready is None else t.pod(ready, "b-1", owner="another")


@as_events
def left(t: HistoryBuilder, at: float, pod: str = "a-0", since: float = 2) -> None:
    gone(short(t, since)).delete(at, pod)


@as_events
def labelled(t: HistoryBuilder, group: str | None, ready: float = 99) -> None:
    """Have the set leave its group, be whole some time later, and a pod go at 20 s."""
    short(t).zone(9, "b", group=group)
    for at, delete in sorted([(ready, False), (20.0, True)]):
        _ = t.delete(at, "a-0") if delete else t.pod(at, "b-1")


@as_events
def with_its_pods(t: HistoryBuilder, *, is_short: bool) -> None:
    if is_short:
        short(t)
    gone(t)
    for ordinal in range(3):
        t.gone(9.5, f"b-{ordinal}")
    t.delete(10, "a-0")


@as_events
def returned(t: HistoryBuilder, at: float, *, ready: float | None = None) -> None:
    back(gone(short(t)), 10, ready=ready).delete(at, "a-0")


@as_events
def in_the_foreground(t: HistoryBuilder, *, is_short: bool) -> None:
    """Have the set go once its pods are gone."""
    if is_short:
        short(t)
    t.zone(9, "b", going=MOMENT)
    for ordinal in range(3):
        t.gone(9.5, f"b-{ordinal}")
    gone(t, 30).delete(31, "a-0")


def deleted_by_us(t: HistoryBuilder) -> None:
    gone(t.delete(8.9, "b-0")).delete(9.1, "a-0")


def it_was_down(t: HistoryBuilder) -> None:
    gone(short(t.pod(1, "a-0", ready=False))).delete(10, "a-0")


def another_group(t: HistoryBuilder) -> None:
    t.zone(0, "a", group="store")
    gone(short(t)).delete(10, "a-0")


@as_events
def begun_later(t: HistoryBuilder, /, **pod: Any) -> None:
    """Have a process begin that knows only what was left behind."""
    t.lived(1, "started").lived(1.1, "ready")
    short(t, owner="", **pod)
    gone(t).lived(9.1, "killed").lived(9.2, "started").lived(9.3, "ready").delete(20, "a-0")


@as_events
def untold(t: HistoryBuilder, at: float, kind: str, text: str) -> None:
    """Have a fault keep news from the process, or nearly."""
    t.fault(at, kind, text)
    gone(short(t)).delete(10, "a-0")


def in_time(t: HistoryBuilder, at: float) -> HistoryBuilder:
    t.fault(1, "clock_rate")
    return gone(short(t)).delete(at, "a-0")


GROUPS = cases(
    {
        "deleted while it was short -> SI-26": left(10),
        "nine minutes later -> SI-26": left(549),
        "eleven minutes later": left(661),
        "six minutes later, by a clock of another speed": lambda t: in_time(t, 369),
        "four minutes later, by such a clock -> SI-26": lambda t: in_time(t, 249),
        "short for 4 s when it was deleted": left(20, since=5),
        "deleted while it was whole, its pods go": with_its_pods(is_short=False),
        "deleted while it was short, its pods go -> SI-26": with_its_pods(is_short=True),
        "in the foreground while it was whole": in_the_foreground(is_short=False),
        "in the foreground while it was short -> SI-26": in_the_foreground(is_short=True),
        "back, and short still -> SI-26": returned(12),
        "back for long, and short still -> SI-02 SI-26": returned(20),
        "back, and whole": returned(20, ready=12),
        "labelled otherwise while it was short -> SI-26": labelled("store"),
        "without a label while it was short -> SI-26": labelled(None),
        "without a label, and whole since": labelled(None, ready=12),
        "a delete of ours was underway there -> SI-26": deleted_by_us,
        "what goes was down anyway": it_was_down,
        "another group": another_group,
        "a process that began later sees no label": begun_later(),
        "a process that began later sees a pod of the group -> SI-26": begun_later(labels=IN_GROUP),
        "it was not told: the event never came": untold(
            2, "drop_event", "event 7 of pods: MODIFIED zone-b-1"
        ),
        "another event never came -> SI-26": untold(
            2, "drop_event", "event 7 of pods: MODIFIED zone-c-1"
        ),
        "it was not told: events came late": untold(
            2, "delay_event", "event 7 of pods: MODIFIED zone-b-1: 0:00:05"
        ),
        "events were late, and came before -> SI-26": untold(
            2, "delay_event", "event 7 of pods: MODIFIED zone-b-1: 0:00:01"
        ),
        "other events were late -> SI-26": untold(2, "freeze", "event 7 of secrets: ADDED: 0:01"),
        "it was cut off": untold(2, "partition", "has no network for 5 s"),
        "its list failed": untold(8, "lost", "call 9: list pods: reset_before"),
        "a list failed long before -> SI-26": lambda t: gone(
            short(t.fault(1, "lost", "call 9: list pods: reset_before")), 70
        ).delete(71, "a-0"),
    }
)


@as_events
def under(t: HistoryBuilder, /, events: Events, **spec: Any) -> None:
    t.budget(0, **spec)
    events(t)


def evicted(name: str = "a-1") -> Events:
    return lambda t: gone(short(t)).evict(10, name)


def deselected(t: HistoryBuilder) -> None:
    """Have the budget select zone a alone, whose pods have the label."""
    t.zone(0, "a", labels=TIER).pod(0, "a-0", labels=TIER)
    short(t).budget(9, selector={"matchLabels": TIER}).evict(10, "a-0")


def renamed(t: HistoryBuilder) -> None:
    """Have the budget go, and be there under another name, five seconds before."""
    gone(short(t), 8).unbudget(9)
    budget: JsonObject = {"metadata": {"name": "new"}, "spec": {"selector": {"matchLabels": {}}}}
    t.write(10, ZONE_BUDGETS, "new", budget).evict(17, "a-1")


def unselected(t: HistoryBuilder) -> None:
    """Have zone b lose the label that the budget selects."""
    for letter in "ab":
        t.zone(0, letter, labels=TIER)
    t.pod(0, "a-0", labels=TIER).budget(0, selector={"matchLabels": TIER})
    short(t).zone(9, "b", labels={"tier": "two"}).evict(10, "a-0")


@as_events
def joined(t: HistoryBuilder, at: float, late: str = "") -> None:
    """Have zone b be under the budget from a time on, which may be told late."""
    for letter in "ac":
        t.zone(0, letter, labels=TIER)
    t.pod(0, "a-0", labels=TIER).budget(0, selector={"matchLabels": TIER})
    if late:
        t.fault(at, "delay_event", f"event 3 of statefulsets: MODIFIED zone-b: {late}")
    short(t).zone(at, "b", labels=TIER).evict(10, "a-0")


def deleted_by_partition(name: str) -> Events:
    return lambda t: gone(short(t)).delete(10, name, record=True)


BUDGETS = cases(
    {
        "an eviction in another zone -> SI-26": under(evicted()),
        "an eviction that was refused": under(
            lambda t: gone(short(t)).evict(10, "a-1", allowed=False)
        ),
        "an eviction by partition, the same -> SI-26": under(evicted("a-1"), **PARTITIONS),
        "an eviction by partition, another": under(evicted("a-0"), **PARTITIONS),
        "an eviction by partition, two may lack": under(
            evicted("a-1"), maxUnavailable=2, **PARTITIONS
        ),
        "the selector has changed -> SI-26": under(deselected),
        "the budget has another name -> SI-26": under(renamed),
        "the label has changed -> SI-26": unselected,
        "under no budget": evicted(),
        "a zone that has joined the budget, and was short before": joined(9),
        "a zone that had joined the budget before that was known": joined(3, "0:00:05"),
        "a zone that had joined the budget for long -> SI-02": joined(3),
        "a delete by partition, the same -> SI-26": under(
            deleted_by_partition("a-1"), **PARTITIONS
        ),
    }
)


@as_events
def driven(t: HistoryBuilder, /, **b: Any) -> None:
    """Have a policy drive the group, of which zone b is not any more."""
    policy(t, 0.5)
    short(t)
    if b:
        t.zone(9, "b", **b)
    else:
        gone(t)
    batch(t, 10, 1, "a-0")


def reselected(t: HistoryBuilder) -> None:
    """Have the selector of the policy change: zone b is of no group, and none of its own."""
    for letter in "abc":
        t.zone(0, letter, group=None, labels={"tier": letter})
    policy(t, 0.5)
    wanted = {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["b"]}]}
    policy(short(t), 9, statefulSetSelector=wanted)
    batch(t, 10, 1, "a-0")


def in_the_same_zone(t: HistoryBuilder) -> None:
    for letter in "ab":
        t.zone(0, letter, labels={"topology.kubernetes.io/zone": "east"})
    policy(t, 0.5, rollingUpdate={"maxUnavailable": 2})
    batch(gone(short(t)), 10, 1, "a-0")


POLICIES = cases(
    {
        "a policy, deleted -> SI-26": driven(),
        "a policy, labelled otherwise -> SI-26": driven(labels={"app": "x"}, group=None),
        "a policy, being deleted while it was short -> SI-26": driven(going=MOMENT),
        "a policy, its selector has changed -> SI-26": reselected,
        "a policy, the same zone": in_the_same_zone,
    }
)


@as_events
def scaled(t: HistoryBuilder, *, since: float = 2) -> None:
    gone(short(t, since)).scale(20)


def guarded(events: Events) -> Events:
    return lambda t: events(
        t.hooks(0, "prepare-downscale").zones(labels=PREPARED, annotations=PATHS)
    )


DOWNSCALES = cases(
    {
        "a downscale of another zone -> SI-26": guarded(scaled()),
        "a downscale, short for 4 s when it left": guarded(scaled(since=5)),
        "a downscale of a zone in another group": guarded(
            lambda t: gone(short(t.zone(0, "a", group="store"))).scale(20)
        ),
    }
)


@pytest.mark.parametrize(("events", "broken"), [*GROUPS, *BUDGETS, *POLICIES, *DOWNSCALES])
def test_a_zone_that_left_short_still_counts(events: Events, broken: list[str]) -> None:
    """SI-26, D-82: each history breaks what its name says."""
    assert judge(events) == broken


def test_from_outside_a_coincidence_counts() -> None:
    """SI-26: without the operator's reads in the history nothing is excused."""
    promises = Promises(is_observed=True, known=timedelta(0), time_error=timedelta(0))
    history = gone(short(HistoryBuilder().zones(), 8.9)).delete(9.1, "a-0")
    (found,) = list_observed_violations(history.history, promises)

    text = "delete of zone-a-0 0.1 s after zone-b left the group ingester without zone-b-1"
    assert (found.invariant, found.text) == ("SI-26", text)


@pytest.mark.parametrize(
    ("events", "held_until"),
    [(short, 0), (gone, 0), (lambda t: gone(short(t)), 609), (returned(20, ready=12), 12)],
)
def test_how_long_others_may_be_held(events: Events, held_until: float) -> None:
    """LI-01: what waits for a zone that left short waits for no fault of the operator."""
    history = HistoryBuilder().zones()
    events(history)
    assert get_held_until(read_book(history.history, Promises())) == timedelta(seconds=held_until)
