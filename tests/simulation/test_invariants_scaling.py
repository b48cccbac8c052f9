"""The judge of counts that the operator writes: histories that break a promise, or nearly do."""

from collections.abc import Mapping
from typing import Final

import pytest

from rollout_operator.kube.api import PODS
from rollout_operator.model.names import LEADING_ZONE, MIN_TIME_BETWEEN_DOWNSCALES
from tests.simulation.chronicle import PATHS, PREPARED, Chronicle
from tests.simulation.chronicle_downscales import scale
from tests.simulation.chronicle_scaling import (
    DELAYED,
    MIRRORS,
    Story,
    ask,
    force,
    judge,
    template,
    write,
)


def lead(told: Chronicle, at: float = 10, replicas: int = 2) -> None:
    told.zone(at, "zone-a", replicas=replicas)


def follow_down(told: Chronicle) -> None:
    lead(told)
    write(told, 20, "zone-b", 2)


def follow_up(told: Chronicle) -> None:
    lead(told, replicas=5)
    write(told, 12, "zone-b", 5, looked=False)


def too_far(told: Chronicle) -> None:
    lead(told)
    write(told, 20, "zone-b", 1)


def what_it_was_before(told: Chronicle) -> None:
    """The leading zone has been up again for long."""
    lead(told)
    lead(told, 60, 3)
    write(told, 90, "zone-b", 2)


def what_it_was_just_now(told: Chronicle) -> None:
    lead(told)
    lead(told, 19.5, 3)
    write(told, 20, "zone-b", 2)


def up_on_an_old_view(told: Chronicle) -> None:
    lead(told, replicas=5)
    lead(told, 20, 3)
    write(told, 200, "zone-b", 5, looked=False)


def up_on_a_view_of_long_ago(told: Chronicle) -> None:
    lead(told, replicas=5)
    lead(told, 20, 3)
    write(told, 900, "zone-b", 5, looked=False)


def forced(told: Chronicle) -> None:
    force(told, 10, "zone-b", 7)
    write(told, 20, "zone-b", 7)


def without_a_look(told: Chronicle) -> None:
    lead(told)
    write(told, 20, "zone-b", 2, looked=False)


def on_an_old_look(told: Chronicle) -> None:
    lead(told)
    told.look(11)
    write(told, 75, "zone-b", 2, looked=False)


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(follow_down, [], id="down to what the leading zone has"),
        pytest.param(follow_up, [], id="up without a look"),
        pytest.param(too_far, ["SCALE-05"], id="further down than the leading zone"),
        pytest.param(what_it_was_before, ["SCALE-05"], id="down to what it had once"),
        pytest.param(what_it_was_just_now, [], id="it went up between look and write"),
        pytest.param(up_on_an_old_view, [], id="up as an old view shows it"),
        pytest.param(up_on_a_view_of_long_ago, ["SCALE-05"], id="no view is as old as that"),
        pytest.param(forced, [], id="SCALE-06 forced by a person"),
        pytest.param(without_a_look, ["SI-09"], id="down without a live look"),
        pytest.param(on_an_old_look, ["SI-09"], id="down on an old one"),
    ],
)
def test_a_zone_follows_to_counts_that_the_leading_one_has(story: Story, broken: list[str]) -> None:
    assert judge(story) == broken


def mirror(told: Chronicle, count: int = 2) -> None:
    template(told, 10, 2)
    write(told, 20, "zone-a", count)


def mirror_up(told: Chronicle) -> None:
    template(told, 10, 5)
    write(told, 20, "zone-a", 5, looked=False)


def mirror_nobodys(told: Chronicle) -> None:
    mirror(told, 1)


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(mirror, [], id="down to what it wants"),
        pytest.param(mirror_up, [], id="up to what it wants"),
        pytest.param(mirror_nobodys, ["MIRR-04"], id="to what nobody wanted"),
        pytest.param(lambda told: write(told, 20, "zone-b", 2), ["MIRR-04"], id="nothing mirrored"),
    ],
)
def test_a_zone_mirrors_counts_that_were_wanted(story: Story, broken: list[str]) -> None:
    assert judge(story, {"zone-a": MIRRORS}) == broken


def prepared(told: Chronicle, at: float = 50, count: int = 2) -> None:
    """Asked at 15 s and again just before: 35 s are more than the 30 s that are wanted."""
    template(told, 10, count)
    for ordinal in range(count, 3):
        for moment in (15, at - 1):
            ask(told, moment, f"zone-a-{ordinal}")
    write(told, at, "zone-a", count)


def on_the_way(told: Chronicle) -> None:
    template(told, 10, 1)
    ask(told, 15, "zone-a-2")
    write(told, 50, "zone-a", 2)


def further_than_wanted(told: Chronicle) -> None:
    template(told, 10, 2)
    for ordinal in (1, 2):
        ask(told, 15, f"zone-a-{ordinal}")
    write(told, 50, "zone-a", 1)


def never_asked(told: Chronicle) -> None:
    template(told, 10, 2)
    write(told, 50, "zone-a", 2)


def told_nonsense(told: Chronicle) -> None:
    """It answers, and does nothing: what it said was not the truth."""
    template(told, 10, 2)
    ask(told, 15, "zone-a-2", acted=False)
    write(told, 50, "zone-a", 2)


def gave_no_answer(told: Chronicle) -> None:
    template(told, 10, 2)
    ask(told, 15, "zone-a-2", status=0)
    write(told, 50, "zone-a", 2)


def one_of_two(told: Chronicle) -> None:
    template(told, 10, 1)
    ask(told, 15, "zone-a-2")
    write(told, 50, "zone-a", 1)


def taken_back(told: Chronicle) -> None:
    template(told, 10, 2)
    ask(told, 15, "zone-a-2")
    ask(told, 40, "zone-a-2", method="DELETE")
    ask(told, 41, "zone-a-2")
    write(told, 50, "zone-a", 2)


def taken_back_after(told: Chronicle) -> None:
    prepared(told)
    ask(told, 51, "zone-a-2", method="DELETE")


def gone_when_told(told: Chronicle) -> None:
    prepared(told)
    told.write(51, PODS, "zone-a-2", None)
    ask_gone = {"uid": "zone-a-2@0", "method": "DELETE"}
    told.pod(52, "zone-a-2", uid="zone-a-2@0")
    ask(told, 53, "zone-a-2", **ask_gone)


def another_pod(told: Chronicle) -> None:
    template(told, 10, 2)
    ask(told, 15, "zone-a-2")
    told.replace(30, "zone-a-2", revision="old")
    write(told, 50, "zone-a", 2)


def forgot_it(told: Chronicle) -> None:
    template(told, 10, 2)
    ask(told, 15, "zone-a-2")
    stopped(told, 20)
    ask(told, 40, "zone-a-2")
    write(told, 50, "zone-a", 2)


def forgets_it_just_now(told: Chronicle) -> None:
    template(told, 10, 2)
    ask(told, 15, "zone-a-2")
    ask(told, 48, "zone-a-2")
    stopped(told, 49)
    write(told, 50, "zone-a", 2)


def forced_down(told: Chronicle, pod_at: float = 40, phase: str = "Pending") -> None:
    force(told, 10, "zone-a", 2)
    told.pod(pod_at, "zone-a-2", ready=False, phase=phase)
    write(told, 50, "zone-a", 2)


def wanted_down_while_pending(told: Chronicle) -> None:
    template(told, 10, 2)
    told.pod(40, "zone-a-2", ready=False, phase="Pending")
    write(told, 50, "zone-a", 2)


def stopped(told: Chronicle, at: float) -> None:
    """Have the containers of zone-a-2 crash and start again, in the same pod."""
    told.pod(at, "zone-a-2", ready=False)
    status = told.objects[PODS.plural, "zone-a-2"]["status"]
    assert isinstance(status, dict)
    status["containerStatuses"] = [{"name": "app", "state": {"terminated": {}}}]
    told.pod(at + 0.5, "zone-a-2")


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(prepared, [], id="prepared for long enough"),
        pytest.param(lambda told: prepared(told, 40), ["DELAY-08"], id="too early"),
        pytest.param(lambda told: prepared(told, 43.5), [], id="words have whole seconds"),
        pytest.param(lambda told: prepared(told, count=1), [], id="two at a time"),
        pytest.param(on_the_way, [], id="the first of two"),
        pytest.param(further_than_wanted, ["MIRR-04"], id="further down than wanted"),
        pytest.param(never_asked, ["DELAY-08"], id="not asked"),
        pytest.param(told_nonsense, ["DELAY-08"], id="a word that is none"),
        pytest.param(gave_no_answer, ["DELAY-08"], id="prepared, without a word"),
        pytest.param(one_of_two, ["DELAY-08"], id="one of two was not asked"),
        pytest.param(taken_back, ["DELAY-08"], id="told that it stays: its time begins anew"),
        pytest.param(taken_back_after, ["SI-12"], id="told that it stays once it goes"),
        pytest.param(gone_when_told, [], id="its time was over"),
        pytest.param(another_pod, ["DELAY-08"], id="another pod of that name"),
        pytest.param(forgot_it, ["DELAY-08"], id="it has started again since"),
        pytest.param(forced_down, [], id="a person forces it, and it does not run"),
        pytest.param(
            lambda told: forced_down(told, 49.5, "Running"),
            ["DELAY-08"],
            id="a person forces it, and it runs",
        ),
        pytest.param(wanted_down_while_pending, ["DELAY-08"], id="it does not run, unforced"),
        pytest.param(forgets_it_just_now, [], id="nobody knows yet that it has started again"),
    ],
)
def test_pods_go_by_their_own_word(story: Story, broken: list[str]) -> None:
    """DELAY-06 to 08: each had been prepared for the delay, and nothing else was said after it."""
    assert judge(story, {"zone-a": DELAYED}) == broken


def test_words_about_delays_are_no_preparations() -> None:
    """SI-10, SI-12, LI-05: two paths, two matters; and no other path is ever called (SI-21)."""

    def story(told: Chronicle) -> None:
        told.hooks(0, "prepare-downscale")
        told.zone(1, "zone-a", labels=PREPARED, annotations=PATHS)
        prepared(told)

    assert judge(story, {"zone-a": DELAYED}) == ["SI-10", "SI-13"]
    assert judge(lambda told: ask(told, 15, "zone-a-2", path="/other"), {"zone-a": DELAYED}) == [
        "SI-21"
    ]
    assert judge(lambda told: ask(told, 15, "zone-a-2")) == ["SI-21"]


def rolling(told: Chronicle, *, back_at: float | None = None) -> None:
    """The operator replaces a pod of zone-c."""
    told.zone(5, "zone-c", update_revision="new")
    told.delete(8, "zone-c-0")
    told.replace(9, "zone-c-0", ready=back_at is not None and back_at < 10)
    lead(told)


def down_in_its_middle(told: Chronicle) -> None:
    rolling(told)
    write(told, 20, "zone-b", 2)


def down_after_it(told: Chronicle) -> None:
    rolling(told, back_at=9)
    write(told, 20, "zone-b", 2)


def down_while_short(told: Chronicle) -> None:
    """T-03 row 6: nobody rolls anything out."""
    told.pod(5, "zone-c-0", ready=False)
    lead(told)
    write(told, 20, "zone-b", 2)


def down_and_delete(told: Chronicle) -> None:
    """A pod of another zone is deleted between the look of a downscale and its write."""
    told.zone(5, "zone-c", update_revision="new")
    lead(told)
    told.look(19)
    told.delete(19.5, "zone-c-0", looked=False)
    write(told, 20, "zone-b", 2, looked=False)


def up_in_its_middle(told: Chronicle) -> None:
    rolling(told)
    lead(told, 12, 5)
    write(told, 20, "zone-b", 5)


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(down_in_its_middle, ["SI-02"], id="a pod is being replaced"),
        pytest.param(down_after_it, [], id="all are back"),
        pytest.param(down_while_short, [], id="a pod is down by itself"),
        pytest.param(down_and_delete, ["SI-02"], id="a delete in between"),
        pytest.param(up_in_its_middle, [], id="up"),
    ],
)
def test_no_zone_goes_down_while_another_is_rolled_out(story: Story, broken: list[str]) -> None:
    """D-25, SEED-110, where no webhook would say so."""
    assert judge(story) == broken


WAITING: Final[Mapping[str, Mapping[str, str]]] = {
    "zone-b": {LEADING_ZONE: "zone-a", MIN_TIME_BETWEEN_DOWNSCALES: "1m"}
}


@pytest.mark.parametrize(
    ("gap", "is_forced", "broken"),
    [
        pytest.param(59, False, ["SI-11"], id="too early"),
        pytest.param(61, False, [], id="in time"),
        pytest.param(59, True, [], id="SCALE-06 forced: at once"),
    ],
)
def test_zones_that_follow_keep_their_time(gap: float, is_forced: bool, broken: list[str]) -> None:
    """SI-11, SCALE-09: a zone that follows needs no webhook to wait for one that has one."""

    def story(told: Chronicle) -> None:
        told.hooks(0, "prepare-downscale")
        told.zone(1, "zone-a", labels=PREPARED, annotations=PATHS)
        scale(told, 20, "zone-a")
        if is_forced:
            force(told, 21, "zone-b", 2)
        write(told, 20 + gap, "zone-b", 2)

    assert judge(story, WAITING) == broken
