"""The judge of pods under a budget: histories that break a promise, and that nearly do."""

from functools import partial
from typing import Any

import pytest

from rollout_operator.kube.api import PODS
from rollout_operator.lab.model.history import Called
from tests.judge.book import read_book
from tests.judge.promises import Promises
from tests.simulation.chronicle import Chronicle, s
from tests.simulation.chronicle_drains import (
    BY_PARTITION,
    Story,
    budget,
    delete,
    evict,
    judge,
    mark,
    unbudget,
)


def two_zones(told: Chronicle) -> None:
    evict(told, 10, "zone-a-0")
    evict(told, 12, "zone-b-0")


def one_zone_after_another(told: Chronicle) -> None:
    evict(told, 10, "zone-a-0")
    told.replace(11, "zone-a-0")
    evict(told, 12, "zone-b-0")


def a_rollout_beside_an_eviction(told: Chronicle) -> None:
    evict(told, 10, "zone-a-0")
    delete(told, 12, "zone-b-0")


def an_eviction_beside_a_rollout(told: Chronicle) -> None:
    delete(told, 10, "zone-a-0")
    evict(told, 12, "zone-b-0")


def without_a_budget(told: Chronicle) -> None:
    unbudget(told, 1)
    two_zones(told)


def a_budget_that_has_just_gone(told: Chronicle) -> None:
    unbudget(told, 9)
    two_zones(told)


def a_budget_that_has_just_come(told: Chronicle) -> None:
    unbudget(told, 1)
    budget(told, 9)
    two_zones(told)


def of_a_pod_that_does_not_run(told: Chronicle) -> None:
    evict(told, 10, "zone-a-0")
    told.write(11, PODS, "zone-b-0", None)
    told.pod(11.1, "zone-b-0", uid="fresh", ready=False, phase="Pending")
    evict(told, 12, "zone-b-0", marked=False)


def not_by_our_say_so(told: Chronicle) -> None:
    evict(told, 10, "zone-a-0")
    evict(told, 12, "zone-b-0", allowed=False)


def beside_a_zone_that_is_short(told: Chronicle, since: float) -> None:
    told.pod(since, "zone-b-1", ready=False)
    evict(told, 10, "zone-a-0")


def in_a_zone_that_is_short(told: Chronicle) -> None:
    told.pod(4, "zone-a-1", ready=False)
    evict(told, 10, "zone-a-0")


def of_the_pod_that_is_short(told: Chronicle) -> None:
    told.pod(4, "zone-a-0", ready=False)
    evict(told, 10, "zone-a-0")


def two_of_a_zone(told: Chronicle) -> None:
    evict(told, 10, "zone-a-0")
    evict(told, 12, "zone-a-1")


def a_delete_and_an_eviction_of_a_zone(told: Chronicle) -> None:
    told.look(9)
    evict(told, 10, "zone-a-0")
    mark(told, 10.1, "zone-a-1", engine="rollout")
    told.delete(10.2, "zone-a-1", looked=False)


def one(told: Chronicle) -> None:
    evict(told, 10, "zone-a-0")


def raised_a_moment_ago(told: Chronicle) -> None:
    budget(told, 9, maxUnavailable=2)
    two_of_a_zone(told)


def lowered_a_moment_ago(told: Chronicle) -> None:
    budget(told, 9, maxUnavailable=1)
    two_of_a_zone(told)


def flawed(told: Chronicle) -> None:
    budget(told, 1, podNamePartitionRegex="(")
    one(told)


def flawed_from_the_start(told: Chronicle) -> None:
    unbudget(told, 1)
    budget(told, 2, podNamePartitionRegex="no group")
    one(told)


ONE = {"maxUnavailable": 1}
TWO = {"maxUnavailable": 2}


@pytest.mark.parametrize(
    ("story", "spec", "broken"),
    [
        pytest.param(two_zones, ONE, ["SI-01"], id="SI-01 evictions in two zones"),
        pytest.param(two_zones, TWO, ["SI-01"], id="SI-01 whatever the budget"),
        pytest.param(one_zone_after_another, ONE, [], id="SI-01 one zone after the other"),
        pytest.param(a_rollout_beside_an_eviction, ONE, ["SI-01"], id="SI-01 a rollout comes"),
        pytest.param(an_eviction_beside_a_rollout, ONE, ["SI-01"], id="SI-01 an eviction comes"),
        pytest.param(without_a_budget, ONE, [], id="SI-01 not without a budget"),
        pytest.param(a_budget_that_has_just_gone, ONE, [], id="FP-31 deleted a second ago"),
        pytest.param(a_budget_that_has_just_come, ONE, [], id="FP-31 created a second ago"),
        pytest.param(of_a_pod_that_does_not_run, ONE, [], id="ZPDB-54 it does not run yet"),
        pytest.param(not_by_our_say_so, ONE, [], id="SI-01 a refusal does no harm"),
        pytest.param(
            partial(beside_a_zone_that_is_short, since=4), ONE, ["SI-02"], id="SI-02 for 6 s"
        ),
        pytest.param(partial(beside_a_zone_that_is_short, since=6), ONE, [], id="SI-02 for 4 s"),
        pytest.param(in_a_zone_that_is_short, ONE, ["SI-03"], id="SI-03 one was missing"),
        pytest.param(in_a_zone_that_is_short, TWO, [], id="SI-03 two may be missing"),
        pytest.param(of_the_pod_that_is_short, ONE, [], id="SI-03 it was the one itself"),
        pytest.param(two_of_a_zone, ONE, ["SI-04"], id="SI-04 two of one"),
        pytest.param(two_of_a_zone, TWO, [], id="SI-04 two of two"),
        pytest.param(
            two_of_a_zone, {"maxUnavailablePercentage": 50}, ["SI-04"], id="ZPDB-81 half of three"
        ),
        pytest.param(
            two_of_a_zone, {"maxUnavailablePercentage": 67}, [], id="ZPDB-81 two thirds of three"
        ),
        pytest.param(
            a_delete_and_an_eviction_of_a_zone, ONE, ["SI-04"], id="SI-04 of both engines"
        ),
        pytest.param(a_delete_and_an_eviction_of_a_zone, TWO, [], id="SI-04 unseen, in the budget"),
        pytest.param(one, {"maxUnavailable": 0}, ["SI-03"], id="ZPDB-61 nothing may go"),
        pytest.param(raised_a_moment_ago, ONE, [], id="FP-31 raised"),
        pytest.param(lowered_a_moment_ago, TWO, [], id="FP-31 lowered"),
        pytest.param(flawed, ONE, [], id="W-52 the last valid one stays in force"),
        pytest.param(flawed_from_the_start, ONE, ["SI-03"], id="W-52 never valid"),
    ],
)
def test_evictions_are_judged(story: Story, spec: dict[str, Any], broken: list[str]) -> None:
    """SI-01 to SI-04: what breaks them does, and what nearly does not."""
    assert judge(story, **spec) == broken


def the_same_partition(told: Chronicle) -> None:
    evict(told, 10, "zone-a-0")
    evict(told, 12, "zone-b-0")


def another_partition(told: Chronicle) -> None:
    evict(told, 10, "zone-a-0")
    evict(told, 12, "zone-b-1")
    evict(told, 12.5, "zone-a-2")


def the_same_zone(told: Chronicle) -> None:
    for ordinal in range(3):
        evict(told, 10 + ordinal, f"zone-a-{ordinal}")


def back_for(told: Chronicle, seconds: float) -> None:
    evict(told, 10, "zone-a-0")
    told.replace(11, "zone-a-0")
    evict(told, 11.2 + seconds, "zone-b-0")


def a_peer_is_down(told: Chronicle) -> None:
    told.pod(4, "zone-c-0", ready=False)
    evict(told, 10, "zone-a-0")


def a_zone_without_the_partition(told: Chronicle) -> None:
    told.zone(1, "zone-c", replicas=2)
    evict(told, 10, "zone-a-2")


def a_name_without_a_partition(told: Chronicle) -> None:
    budget(told, 1, podNamePartitionRegex="zone-[a-z]-([0-1])")
    evict(told, 10, "zone-a-2")


@pytest.mark.parametrize(
    ("story", "spec", "broken"),
    [
        pytest.param(the_same_partition, {}, ["SI-05"], id="SI-05 the same one twice"),
        pytest.param(the_same_partition, TWO, [], id="SI-05 two may be down"),
        pytest.param(another_partition, {}, [], id="ZPDB-93 others never block"),
        pytest.param(the_same_zone, {}, [], id="ZPDB-90 its own zone does not count"),
        pytest.param(partial(back_for, seconds=8), {}, [], id="SI-05 back, no delay"),
        pytest.param(
            partial(back_for, seconds=8),
            {"crossZoneEvictionDelay": "10s"},
            ["SI-05"],
            id="ZPDB-92 back for 8 s of 10",
        ),
        pytest.param(
            partial(back_for, seconds=10),
            {"crossZoneEvictionDelay": "10s"},
            [],
            id="ZPDB-92 back for 10 s",
        ),
        pytest.param(a_peer_is_down, {}, ["SI-05"], id="SI-05 a peer is down"),
        pytest.param(a_zone_without_the_partition, {}, ["SI-05"], id="ZPDB-91 an absent peer"),
        pytest.param(a_name_without_a_partition, {}, ["SI-05"], id="ZPDB-63 no partition"),
    ],
)
def test_partitions_are_judged(story: Story, spec: dict[str, Any], broken: list[str]) -> None:
    """SI-05: no partition loses more than its budget, over all other zones."""
    assert judge(story, **{**BY_PARTITION, **spec}) == broken


def unmarked(told: Chronicle) -> None:
    evict(told, 10, "zone-a-0", marked=False)


def unmarked_delete(told: Chronicle) -> None:
    delete(told, 10, "zone-a-0", marked=False)


def marked_without_a_version(told: Chronicle) -> None:
    mark(told, 9, "zone-a-0", body={"metadata": {"uid": "u"}})
    evict(told, 10, "zone-a-0", marked=False)


def marked_for_the_pod_before(told: Chronicle) -> None:
    mark(told, 9, "zone-a-0", uid="former")
    evict(told, 10, "zone-a-0", marked=False)


def may_not_patch(told: Chronicle) -> None:
    told.call(9, "patch", PODS, "zone-a-0", status=403)
    refused = told.history.records[-1]
    assert isinstance(refused, Called)
    told.history.records[-1] = Called(
        at=refused.at,
        begun=refused.begun,
        number=refused.number,
        actor=refused.actor,
        request=refused.request,
        status=403,
        message='pods "zone-a-0" is forbidden: User "operator-1" cannot patch resource "pods"',
    )
    unmarked(told)


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(unmarked, ["SI-17"], id="SI-17 an eviction without a record"),
        pytest.param(unmarked_delete, ["SI-17"], id="SI-17 a delete without a record"),
        pytest.param(marked_without_a_version, ["SI-15", "SI-17"], id="SI-17 no compare-and-swap"),
        pytest.param(marked_for_the_pod_before, ["SI-17"], id="SI-17 of another pod"),
        pytest.param(may_not_patch, [], id="SI-17 the role does not allow it"),
    ],
)
def test_records_come_before_disruptions(story: Story, broken: list[str]) -> None:
    """SI-17: who lets a pod go has written so before, where everybody sees it."""
    assert judge(story) == broken


def test_a_dead_process_is_no_excuse_under_a_budget() -> None:
    """SI-17, SI-01: the record has told the next process what was on its way."""

    def late(told: Chronicle) -> None:
        told.lived(0, "started")
        told.look(9)
        mark(told, 9.05, "zone-a-0", engine="rollout")
        mark(told, 9.1, "zone-b-0", engine="rollout")
        told.delete(9.2, "zone-b-0", looked=False)
        told.lived(9.25, "crashed")
        told.lived(9.26, "started")
        told.fault(9.1, "late", "call 9: delete pods/zone-a-0: late: 0:00:01")
        told.delete(9.5, "zone-a-0", looked=False)

    assert judge(late) == ["SI-17"]


def test_the_delete_of_an_eviction_is_found() -> None:
    told = Chronicle()
    told.zones()
    evict(told, 10, "zone-a-0")
    evict(told, 11, "zone-b-0", dry="query")

    (found,) = read_book(told.history, Promises()).evictions.values()
    assert (found.request.name, found.at) == ("zone-a-0", s(10))
