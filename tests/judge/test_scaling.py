"""Replicas that the operator writes: histories that break a promise, or nearly do."""

from collections.abc import Mapping
from typing import Any, Final

import pytest
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES

from rollout_operator.kube.api import PODS, STATEFULSETS
from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    LEADING_ZONE,
    MIRROR_KIND,
    MIRROR_NAME,
)
from tests.judge.builder import DELAY_PATH, PATHS, PREPARED, TEMPLATE, HistoryBuilder, s
from tests.judge.builder_objects import part_of
from tests.judge.histories import Events, cases, list_broken
from tests.judge.promises import Promises

Annotations = Mapping[str, Mapping[str, str]]
FOLLOWS: Final[Annotations] = {"b": {LEADING_ZONE: "zone-a"}, "c": {LEADING_ZONE: "zone-b"}}
MIRRORS: Final = {MIRROR_NAME: TEMPLATE, MIRROR_KIND: REPLICA_TEMPLATES.kind}
DELAYED: Final[Annotations] = {
    "a": {
        **MIRRORS,
        DOWNSCALE_DELAY: "30s",
        DOWNSCALE_DELAY_URL: f"http://pod:8080{DELAY_PATH}",
    }
}
# Faults end at 10 s, and the run more than an hour after that.
HEALED: Final = Promises(healed_at=s(10), ended_at=s(5000))


def judge(
    events: Events, by_zone: Annotations = FOLLOWS, promises: Promises | None = None
) -> list[str]:
    """Return what events break in zones at rest, with annotations by zone."""
    history = HistoryBuilder().zones(update_revision="old").template(0, 3)
    for name, annotations in by_zone.items():
        history.zone(0, name, annotations=annotations)
    events(history)
    return list(list_broken(history, promises))


def lead(t: HistoryBuilder, at: float = 10, replicas: int = 2) -> HistoryBuilder:
    return t.zone(at, "a", replicas=replicas)


FOLLOWING = cases(
    {
        "down to what the leading zone has": lambda t: lead(t).set_replicas(20, "b", 2),
        "further than the leading zone -> SCALE-05": lambda t: lead(t).set_replicas(20, "b", 1),
        "down to what it had once -> SCALE-05": lambda t: lead(lead(t), 60, 3).set_replicas(
            90, "b", 2
        ),
        "no view is as old as that -> SCALE-05": lambda t: lead(lead(t, 10, 5), 20, 3).set_replicas(
            900, "b", 5, is_read=False
        ),
        "SCALE-06 forced by a person": lambda t: t.force(10, "b", 7).set_replicas(20, "b", 7),
        "down without a live read -> SI-09": lambda t: lead(t).set_replicas(
            20, "b", 2, is_read=False
        ),
        "down on an old one -> SI-09": lambda t: (
            lead(t).live_read(11).set_replicas(75, "b", 2, is_read=False)
        ),
        "SI-21 no set has a delay, for which a pod is called -> SI-21": lambda t: t.delay(
            15, "a-2"
        ),
    }
)


@pytest.mark.parametrize(
    ("takes", "struck", "broken"),
    [
        pytest.param(7, False, [], id="it takes long"),
        pytest.param(0, False, ["SCALE-05"], id="it does not"),
        pytest.param(7, True, ["SCALE-05"], id="what a fault strikes does not"),
    ],
)
def test_a_write_is_judged_by_when_it_was_sent(
    takes: float, struck: bool, broken: list[str]
) -> None:
    """SCALE-05: what another group read while it was on its way says nothing about it."""

    def events(t: HistoryBuilder) -> None:
        lead(lead(t), 20.5, 3).live_read(19).live_read(26)
        if struck:
            t.fault(26.9, "lost", "call 7: patch statefulsets/zone-b: ")
        t.set_replicas(27, "b", 2, is_read=False)

    assert judge(events, promises=Promises(patches_take=s(takes))) == broken


MIRRORING = cases(
    {
        "down to what it wants": lambda t: t.template(10, 2).set_replicas(20, "a", 2),
        "what no source wanted -> MIRR-04": lambda t: t.template(10, 2).set_replicas(20, "a", 1),
        "nothing mirrored -> MIRR-04": lambda t: t.set_replicas(20, "b", 2),
    }
)


@pytest.mark.parametrize(("events", "broken"), MIRRORING)
def test_a_zone_mirrors_counts_that_were_wanted(events: Events, broken: list[str]) -> None:
    assert judge(events, {"a": MIRRORS}) == broken


def prepared(t: HistoryBuilder, at: float = 50, replicas: int = 2) -> HistoryBuilder:
    """Called at 15 s and again just before: 35 s are more than the 30 s that are wanted."""
    t.template(10, replicas)
    for ordinal in range(replicas, 3):
        t.delay(15, f"a-{ordinal}").delay(at - 1, f"a-{ordinal}")
    return t.set_replicas(at, "a", replicas)


def called(t: HistoryBuilder, replicas: int = 2, **parts: Any) -> HistoryBuilder:
    return t.template(10, replicas).delay(15, "a-2", **parts)


def down(t: HistoryBuilder, replicas: int = 2) -> HistoryBuilder:
    return t.set_replicas(50, "a", replicas)


def gone_when_called(t: HistoryBuilder) -> None:
    prepared(t).gone(51, "a-2").pod(52, "a-2", uid="zone-a-2@0")
    t.delay(53, "a-2", uid="zone-a-2@0", method="DELETE")


def restarted(t: HistoryBuilder, at: float) -> HistoryBuilder:
    """Have the containers of zone-a-2 crash and start again, in the same pod."""
    t.pod(at, "a-2", ready=False)
    status = part_of(t.objects[PODS.plural, "zone-a-2"], "status")
    status["containerStatuses"] = [{"name": "app", "state": {"terminated": {}}}]
    return t.pod(at + 0.5, "a-2")


def forced_down(pod_at: float, phase: str, to: int = 2) -> Events:
    return lambda t: down(
        t.template(9, 2).force(10, "a", to).pod(pod_at, "a-2", ready=False, phase=phase)
    )


DELAYS = cases(
    {
        "prepared for long enough": prepared,
        "too early -> DELAY-08": lambda t: prepared(t, 40),
        "further down than wanted -> MIRR-04": lambda t: down(called(t.delay(14, "a-1")), 1),
        "not called -> DELAY-08": lambda t: down(t.template(10, 2)),
        "it answers, and does nothing -> DELAY-08": lambda t: down(called(t, acted=False)),
        "prepared, without an answer -> DELAY-08": lambda t: down(called(t, status=0)),
        "one of two was not called -> DELAY-08": lambda t: down(called(t, 1), 1),
        "told that it stays: its time begins anew -> DELAY-08": lambda t: down(
            called(t).delay(40, "a-2", method="DELETE").delay(41, "a-2")
        ),
        "told so before, and acts on it after -> DELAY-08": lambda t: prepared(t).delay(
            51, "a-2", begun=s(49.5), method="DELETE"
        ),
        "told that it stays once it goes -> SI-12": lambda t: prepared(t).delay(
            51, "a-2", method="DELETE"
        ),
        "its time was over": gone_when_called,
        "another pod of that name -> DELAY-08": lambda t: down(
            called(t).replace(30, "a-2", revision="old")
        ),
        "it has started again since -> DELAY-08": lambda t: down(
            restarted(called(t), 20).delay(40, "a-2")
        ),
        "it has started again, and was not called -> DELAY-08": lambda t: down(
            restarted(called(t), 20)
        ),
        "it was written again, and ran all the time": lambda t: down(called(t).pod(20, "a-2")),
        "it has started again 4 s ago": lambda t: down(restarted(called(t), 46)),
        "a person forces it, and it does not run": forced_down(40, "Pending"),
        "a person forces it, and it runs -> DELAY-08": forced_down(49.5, "Running"),
        "a person forces fewer still, and it does not run": forced_down(40, "Pending", to=1),
        "a person forces fewer still, and it runs -> DELAY-08": forced_down(49.5, "Running", to=1),
        "a person forces more, and it does not run -> DELAY-08": forced_down(40, "Pending", to=5),
        "it does not run, unforced -> DELAY-08": lambda t: down(
            t.template(10, 2).pod(40, "a-2", ready=False, phase="Pending")
        ),
        "SI-10 SI-13 an answer about a delay is no preparation -> SI-10 SI-13": lambda t: prepared(
            t.hooks(0, "prepare-downscale").zone(1, "a", labels=PREPARED, annotations=PATHS)
        ),
        "SI-21 another path -> SI-21": lambda t: t.delay(15, "a-2", path="/other"),
    }
)


@pytest.mark.parametrize(("events", "broken"), DELAYS)
def test_pods_go_by_their_own_answers(events: Events, broken: list[str]) -> None:
    """DELAY-06 to 08: each had been prepared for the delay, and nothing else was said after it."""
    assert judge(events, DELAYED) == broken


def rolling(t: HistoryBuilder, *, back: bool = False) -> HistoryBuilder:
    """The operator replaces a pod of zone-c; the leading zone is scaled down."""
    t.zone(5, "c", update_revision="new").delete(8, "c-0").replace(9, "c-0", ready=back)
    return lead(t)


def nearly(t: HistoryBuilder, *, back: bool = False) -> HistoryBuilder:
    """As `rolling`, of the last pod that is outdated."""
    for name in ("c-1", "c-2"):
        t.pod(4, name, uid=f"new-{name}", revision="new")
    t.zone(5, "c", update_revision="new").delete(8, "c-0")
    return lead(t.replace(9, "c-0", ready=back), 9.5)


def delete_in_between(t: HistoryBuilder) -> None:
    lead(t.zone(5, "c", update_revision="new")).live_read(19).delete(19.5, "c-0", is_read=False)
    t.set_replicas(20, "b", 2, is_read=False)


def renewed(t: HistoryBuilder) -> HistoryBuilder:
    """The pod that goes has taken the place of another, and was never ready itself."""
    return rolling(t).replace(11, "b-2", ready=False).set_replicas(20, "b", 2)


EXCLUSION = cases(
    {
        "a pod is being replaced -> SI-02": lambda t: rolling(t).set_replicas(20, "b", 2),
        "all are back": lambda t: rolling(t, back=True).set_replicas(20, "b", 2),
        "T-03 a pod is down by itself": lambda t: lead(t.pod(5, "c-0", ready=False)).set_replicas(
            20, "b", 2
        ),
        "a delete between read and write -> SI-02": delete_in_between,
        "D-67 forced, of pods that never were ready": lambda t: renewed(t.force(10, "b", 2)),
        "of such pods, unforced -> SI-02": renewed,
        "forced, of a pod that is up -> SI-02": lambda t: rolling(t.force(4, "b", 2)).set_replicas(
            20, "b", 2
        ),
        "the last pod is being replaced -> SI-02": lambda t: nearly(t).set_replicas(20, "b", 2),
        "the last one was back, and is down by itself": lambda t: (
            nearly(t, back=True).pod(10, "c-0", uid="later", revision="new", ready=False)
        ).set_replicas(20, "b", 2),
        "no zone of the group is being replaced": lambda t: rolling(
            t.zone(1, "c", group="other")
        ).set_replicas(20, "b", 2),
    }
)
"""D-25, SEED-110, where no webhook would say so."""


def wanted_again(t: HistoryBuilder) -> HistoryBuilder:
    return t.template(12, 2).delay(15, "a-2").template(20, 3)


def scaled_away(t: HistoryBuilder) -> None:
    """Have the zone that mirrors be deleted, and its pods."""
    t.write(30, STATEFULSETS, "a", None).gone(31, "a-0").gone(31, "a-1").gone(31, "a-2")


RESTS = cases(
    {
        "not mirrored -> LI-01": lambda t: t.template(20, 2),
        "the status says fewer -> LI-01": lambda t: t.template(20, 3, status=2),
        "forced by a person, and not so -> LI-01": lambda t: t.force(20, "a", 4),
        "mirrored no more": lambda t: t.template(20, 2).write(
            21, REPLICA_TEMPLATES, TEMPLATE, None
        ),
        "a set that has gone": lambda t: scaled_away(t.template(20, 2)),
        "called, and replaced": lambda t: wanted_again(t).replace(30, "a-2", revision="old"),
        "called, wanted again, not un-prepared -> LI-05": wanted_again,
        "and un-prepared": lambda t: wanted_again(t).delay(30, "a-2", method="DELETE"),
        "and un-prepared ten minutes later -> LI-05": lambda t: wanted_again(t).delay(
            600, "a-2", method="DELETE"
        ),
        "SEED-079 and un-prepared again": lambda t: (
            wanted_again(t).delay(30, "a-2", method="DELETE").delay(630, "a-2", method="DELETE")
        ),
    }
)


def at_rest(t: HistoryBuilder) -> HistoryBuilder:
    for letter in "abc":
        t.zone(0, letter, current_revision="old")
    return t


@pytest.mark.parametrize(("events", "broken"), RESTS)
def test_replicas_come_to_rest(events: Events, broken: list[str]) -> None:
    """LI-01, LI-05, SEED-069: what is wanted comes to be, and the status shows it."""
    assert judge(lambda t: events(at_rest(t)), DELAYED, HEALED) == broken


@pytest.mark.parametrize(("events", "broken"), [*FOLLOWING, *EXCLUSION])
def test_replicas_of_zones_that_follow_are_judged(events: Events, broken: list[str]) -> None:
    """Each history breaks what its name says; of which promises it is, stands below its table."""
    assert judge(events) == broken
