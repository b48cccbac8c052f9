"""The judge's rules find each kind of violation, and nothing in a history without one."""

from collections.abc import Callable

import pytest

from tests.judge.objects import Delete, Pod
from tests.world.stories import NAMESPACE, Story, begin
from tests.world.verdicts import Violation


@pytest.fixture
def story() -> Story:
    return begin()


def roll_properly(story: Story) -> None:
    for zone in ("a", "b", "c"):
        for ordinal in range(3):
            story.ask(f"{zone}-{ordinal}")
            story.wait(10)
            story.come_back(f"{zone}-{ordinal}")


def two_zones(story: Story) -> None:
    story.ask("a-0")
    story.ask("b-0")


def two_zones_second_came_early(story: Story) -> None:
    story.ask("a-0")
    story.come_back("a-0", is_ready=False)
    story.ask("b-0")


def other_zone_down(story: Story) -> None:
    story.change_pod("b-1", is_ready=False)
    story.wait(6)
    story.ask("a-0")


def other_zone_pod_missing(story: Story) -> None:
    story.write("pod/b-1", None)
    story.wait(6)
    story.ask("a-0")


def other_zone_scaled_up(story: Story) -> None:
    story.change_set("b", replicas=4)
    story.wait(6)
    story.ask("a-0")


def paused_other_zone_down(story: Story) -> None:
    story.change_set("c", is_paused=True)
    story.change_pod("c-2", is_ready=False)
    story.wait(6)
    story.ask("a-0")


def limit_passed(story: Story) -> None:
    story.ask("a-0")
    story.ask("a-1")


def limit_passed_with_crashed(story: Story) -> None:
    story.change_pod("a-2", is_ready=False)
    story.wait(6)
    story.ask("a-0")


def limit_two_passed(story: Story) -> None:
    story.change_set("a", limit=2)
    for ordinal in range(3):
        story.ask(f"a-{ordinal}")


def lowered_limit_passed(story: Story) -> None:
    story.change_set("a", limit=2)
    story.wait(60)
    story.change_set("a", limit=1)
    story.wait(6)
    limit_passed(story)


def stray_pod(story: Story) -> None:
    story.write("pod/stray", Pod(name="stray", uid="stray", revision="old"))
    story.ask("stray")


def pod_of_set_without_group(story: Story) -> None:
    story.change_set("a", group=None)
    story.ask("a-0")


def pod_of_deleted_set(story: Story) -> None:
    story.write("set/a", None)
    story.ask("a-0")


def foreign_namespace(story: Story) -> None:
    story.ask("a-0", namespace="other")


def no_uid(story: Story) -> None:
    story.ask("a-0", asked_uid="")


def no_version(story: Story) -> None:
    story.ask("a-0", asked_version="")


def collection(story: Story) -> None:
    story.deletes.append(Delete(namespace=NAMESPACE, name="", code=403))


def refused_without_preconditions(story: Story) -> None:
    story.deletes.append(Delete(namespace=NAMESPACE, name="a-0", code=409))


def updated_pod(story: Story) -> None:
    story.change_pod("a-0", revision="new")
    story.ask("a-0")


def paused_zone(story: Story) -> None:
    story.change_set("a", is_paused=True)
    story.wait(6)
    story.ask("a-0")


def wrong_strategy(story: Story) -> None:
    story.change_set("b", strategy="RollingUpdate")
    story.wait(1)
    story.ask("a-0")


def lagging_status(story: Story) -> None:
    story.change_set("a", generation=2)
    story.wait(1)
    story.ask("a-0")


def no_update_revision(story: Story) -> None:
    story.change_set("a", update_revision="")
    story.wait(1)
    story.ask("a-0")


def crashing_pods_go_together(story: Story) -> None:
    for ordinal in range(3):
        story.change_pod(f"a-{ordinal}", is_ready=False)
    story.wait(60)
    for ordinal in range(3):
        story.ask(f"a-{ordinal}")


def other_zone_fell_just_now(story: Story) -> None:
    story.change_pod("b-1", is_ready=False)
    story.wait(1)
    story.ask("a-0")


def two_within_limit(story: Story) -> None:
    story.change_set("a", limit=2)
    story.ask("a-0")
    story.ask("a-1")


def other_zone_flaps(story: Story) -> None:
    for _ in range(5):
        story.change_pod("b-1", is_ready=False)
        story.wait(2)
        story.change_pod("b-1", is_ready=True)
        story.wait(2)
    story.change_pod("b-1", is_ready=False)
    story.wait(2)
    story.ask("a-0")


def paused_just_now(story: Story) -> None:
    story.change_set("a", is_paused=True)
    story.wait(1)
    story.ask("a-0")


def template_changed_in_flight(story: Story) -> None:
    story.change_set("a", generation=2)
    story.wait(0.01)
    story.ask("a-0")


def scaled_down_while_open(story: Story) -> None:
    story.ask("a-2")
    story.change_set("a", replicas=2)
    story.write("pod/a-2", None)
    story.ask("b-0")


def other_group_down(story: Story) -> None:
    story.change_set("b", group="other")
    story.change_pod("b-1", is_ready=False)
    story.wait(60)
    story.ask("a-0")


def others_delete(story: Story) -> None:
    for name in ("a-0", "b-0", "c-0"):
        story.change_pod(name, is_terminating=True)


Told = Callable[[Story], None]
BROKEN: list[tuple[Told, set[str]]] = [
    (two_zones, {"SI-01"}),
    (two_zones_second_came_early, {"SI-01"}),
    (other_zone_down, {"SI-02"}),
    (other_zone_pod_missing, {"SI-02"}),
    (other_zone_scaled_up, {"SI-02"}),
    (paused_other_zone_down, {"SI-02"}),
    (limit_passed, {"SI-03", "SI-04"}),
    (limit_passed_with_crashed, {"SI-03"}),
    (limit_two_passed, {"SI-03", "SI-04"}),
    (lowered_limit_passed, {"SI-03", "SI-04"}),
    (stray_pod, {"SI-06"}),
    (pod_of_set_without_group, {"SI-06"}),
    (pod_of_deleted_set, {"SI-06"}),
    (foreign_namespace, {"SI-06"}),
    (no_uid, {"SI-07"}),
    (no_version, {"SI-07"}),
    (collection, {"SI-07"}),
    (refused_without_preconditions, {"SI-07"}),
    (updated_pod, {"SI-07"}),
    (paused_zone, {"SI-07"}),
    (wrong_strategy, {"SI-08"}),
    (lagging_status, {"SI-08"}),
    (no_update_revision, {"SI-08"}),
]
CLEAN: list[Told] = [
    roll_properly,
    crashing_pods_go_together,
    other_zone_fell_just_now,
    two_within_limit,
    other_zone_flaps,
    paused_just_now,
    template_changed_in_flight,
    scaled_down_while_open,
    other_group_down,
    others_delete,
]


@pytest.mark.parametrize(
    ("tell", "expected"), [pytest.param(*each, id=each[0].__name__) for each in BROKEN]
)
def test_each_kind_of_violation_is_found(story: Story, tell: Told, expected: set[str]) -> None:
    tell(story)

    assert story.broken() == expected


@pytest.mark.parametrize("tell", [pytest.param(each, id=each.__name__) for each in CLEAN])
def test_nothing_is_found_where_nothing_is_wrong(story: Story, tell: Told) -> None:
    tell(story)

    assert story.verdict() == []


def test_a_violation_says_what_and_when(story: Story) -> None:
    other_zone_down(story)

    assert story.verdict() == [
        Violation(
            invariant="SI-02",
            text="delete of a-0: b-1 has been unavailable for 6.0 s",
            at=166.0,
        )
    ]
