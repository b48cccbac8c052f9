"""The last plan per group: page, gauge, and a log that repeats nothing."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import Code, Plan, Reason, Severity
from rollout_operator.telemetry import logs
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.registry import PATIENCE, QUIET, GroupStates
from tests.fakes_clock import EPOCH, FakeClock

SECOND = timedelta(seconds=1)
G = GroupName("ingester")


class World:
    """A board with what it writes to."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.group_states = GroupStates(self.metrics, self.clock)
        self.lines: list[str] = []

    def take_lines(self) -> list[str]:
        """Return the lines written since the last call, from the message on."""
        taken, self.lines = self.lines, []
        return [line.split("ts=", 1)[1].split(" ", 1)[1].rstrip("\n") for line in taken]

    def held_by(self, group: str) -> list[str]:
        body = b"".join(self.metrics.render())
        prefix = f'rollout_operator_group_waiting{{rollout_group="{group}",reason="'
        return [
            line.removeprefix(prefix).removesuffix('"} 1')
            for line in body.decode().splitlines()
            if line.startswith(prefix) and line.endswith(" 1")
        ]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    logs.configure(write=lambda line: made.lines.append(line.decode()))
    yield made
    logs.configure()


def wait(code: Code, text: str, *, zone: str = "", severity: Severity = Severity.INFO) -> Reason:
    return Reason(code=code, text=text, zone=zone, severity=severity)


def plan(*waits: Reason, group: GroupName = G, problems: tuple[Reason, ...] = ()) -> Plan:
    return Plan(group=group, waits=waits, problems=problems)


def test_a_reason_is_logged_once_while_it_holds(world: World) -> None:
    """LOG-04, W-46: a group that waits for an hour says so once."""
    reason = wait(Code.ZONE_NOT_READY, "zone-b has 2 of 3 pods ready", zone="zone-b")
    for _ in range(5):
        world.group_states.post(plan(reason))
        world.clock.jump(SECOND)

    assert world.take_lines() == [
        'msg="Group waits" group=ingester zone=zone-b reason=zone_not_ready '
        'why="zone-b has 2 of 3 pods ready"'
    ]


def test_a_new_text_is_logged_again(world: World) -> None:
    world.group_states.post(plan(wait(Code.PODS_STARTING, "1 of 3 pods started")))
    world.clock.jump(SECOND)
    world.group_states.post(plan(wait(Code.PODS_STARTING, "2 of 3 pods started")))

    assert [line.split("why=")[1] for line in world.take_lines()] == [
        '"1 of 3 pods started"',
        '"2 of 3 pods started"',
    ]


def levels(world: World) -> list[str]:
    """Return the levels of the lines written since the last call."""
    taken, world.lines = world.lines, []
    return [line.split()[0].removeprefix("level=") for line in taken]


def test_log04_a_reason_that_becomes_more_severe_is_logged_again(world: World) -> None:
    """LOG-04: what was told at the level of debug comes back as a warning of the same text."""
    for severity in (Severity.DEBUG, Severity.DEBUG, Severity.WARN, Severity.WARN):
        world.group_states.post(plan(wait(Code.LIVE_READ_EXPIRED, "slow", severity=severity)))
        world.clock.jump(QUIET)

    assert levels(world) == ["debug", "warn"]


def test_a_reason_that_becomes_less_severe_is_told_already(world: World) -> None:
    """One that goes up and down fills no log."""
    for severity in (Severity.WARN, Severity.INFO, Severity.WARN, Severity.DEBUG, Severity.WARN):
        world.group_states.post(plan(wait(Code.LIVE_READ_EXPIRED, "slow", severity=severity)))
        world.clock.jump(QUIET)

    assert levels(world) == ["warn"]


def test_a_reason_that_becomes_more_severe_at_once_is_told_soon(world: World) -> None:
    """Within the time that a zone is quiet it is owed."""
    warning = plan(wait(Code.LIVE_READ_EXPIRED, "slow", severity=Severity.WARN))
    world.group_states.post(plan(wait(Code.LIVE_READ_EXPIRED, "slow", severity=Severity.DEBUG)))
    assert world.group_states.post(warning) == QUIET
    world.clock.jump(QUIET)
    assert world.group_states.post(warning) is None
    assert levels(world) == ["debug", "warn"]


def test_a_text_that_changes_often_is_logged_once_a_second(world: World) -> None:
    for number in range(21):
        world.group_states.post(plan(wait(Code.PODS_STARTING, f"{number} pods")))
        world.clock.jump(QUIET / 10)

    assert [line.split("why=")[1] for line in world.take_lines()] == [
        '"0 pods"',
        '"10 pods"',
        '"20 pods"',
    ]


def test_what_was_kept_quiet_is_told_later_if_it_still_holds(world: World) -> None:
    world.group_states.post(plan(wait(Code.PODS_STARTING, "1 pod")))
    world.group_states.post(plan(wait(Code.PODS_STARTING, "2 pods")))
    world.clock.jump(QUIET)
    world.group_states.post(plan(wait(Code.PODS_STARTING, "2 pods")))

    assert [line.split("why=")[1] for line in world.take_lines()] == ['"1 pod"', '"2 pods"']


def test_what_the_log_owes_is_asked_for_again(world: World) -> None:
    """No event may follow: the last line about a zone must still be what holds it now."""
    assert world.group_states.post(plan(wait(Code.PODS_STARTING, "1 pod"))) is None
    assert world.group_states.post(plan(wait(Code.PODS_STARTING, "2 pods"))) == QUIET
    assert world.group_states.post(plan(wait(Code.PODS_STARTING, "1 pod"))) is None, "told already"


def test_a_reason_that_passes_by_in_every_rollout_is_told_when_it_stays(world: World) -> None:
    """SEED-104: pods that cannot be matched are told; a pod that is being replaced is not."""
    missing = plan(wait(Code.PODS_MISSING, "zone-a has 0 of 1 pods"))
    assert world.group_states.post(missing) == PATIENCE[Code.PODS_MISSING]
    world.clock.jump(timedelta(seconds=10))
    assert world.group_states.post(missing) == timedelta(seconds=20)
    world.group_states.post(plan(wait(Code.UP_TO_DATE, "all well")))
    assert "zone-a" not in "".join(world.take_lines())

    world.group_states.post(missing)
    world.clock.jump(PATIENCE[Code.PODS_MISSING])
    assert world.group_states.post(missing) is None
    assert "zone-a has 0 of 1 pods" in "".join(world.take_lines())


def test_a_reason_that_flaps_is_logged_once_a_second(world: World) -> None:
    for _ in range(10):
        world.group_states.post(plan(wait(Code.BUDGET_USED, "1 of 1 pods down")))
        world.group_states.post(plan(wait(Code.UP_TO_DATE, "all pods are up to date")))

    assert len(world.take_lines()) == 2


def test_a_reason_that_comes_back_is_new(world: World) -> None:
    for text in ("a", "b", "a"):
        world.group_states.post(
            plan(wait(Code.PAUSED, text) if text == "a" else wait(Code.UP_TO_DATE, text))
        )
        world.clock.jump(QUIET)

    assert [line.split("why=")[1] for line in world.take_lines()] == ["a", "b", "a"]


def test_zones_and_groups_are_told_apart(world: World) -> None:
    """One zone must not silence another with the same code, nor one group another."""
    for group in (G, GroupName("store")):
        world.group_states.post(
            plan(
                wait(Code.PAUSED, "paused", zone="zone-a"),
                wait(Code.PAUSED, "paused", zone="zone-b"),
                group=group,
            )
        )

    assert len(world.take_lines()) == 4


def test_several_texts_of_one_code_and_zone_share_a_line(world: World) -> None:
    world.group_states.post(
        plan(
            wait(Code.OBJECT_UNREADABLE, "pod a: spec missing"),
            wait(Code.OBJECT_UNREADABLE, "pod b: spec missing"),
            wait(Code.OBJECT_UNREADABLE, "pod a: spec missing"),
        )
    )

    (line,) = world.take_lines()
    assert line.endswith('why="pod a: spec missing; pod b: spec missing"')


def test_several_texts_share_the_level_of_the_most_severe(world: World) -> None:
    texts = (("not now", Severity.DEBUG), ("never", Severity.WARN), ("later", Severity.INFO))
    world.group_states.post(
        plan(*(wait(Code.DELETE_REFUSED, text, severity=severity) for text, severity in texts))
    )

    assert levels(world) == ["warn"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        pytest.param(Code.PAUSED, "Group waits", id="wait"),
        pytest.param(Code.UP_TO_DATE, "Group is up to date", id="at rest"),
        pytest.param(Code.REVISION_EMPTY, "Group is held by a fault", id="fault"),
        pytest.param(Code.BACKING_OFF, "Group waits after an error", id="error"),
        pytest.param(Code.BAD_MAX_UNAVAILABLE, "Group has an odd setting", id="oddity"),
    ],
)
def test_messages_are_constant(world: World, code: Code, message: str) -> None:
    world.group_states.post(plan(problems=(wait(code, "some text"),)))

    assert world.take_lines()[0].startswith(f'msg="{message}" group=ingester reason={code} ')


def test_the_text_of_a_wrong_strategy_is_greppable(world: World) -> None:
    """ROLL-13: the sentence that users grep for stands in the line as it is, at its level."""
    text = (
        "StatefulSet ingester-zone-a has RollingUpdate update strategy while OnDelete is "
        "expected, skipping reconcile"
    )
    world.group_states.post(plan(wait(Code.WRONG_STRATEGY, text, severity=Severity.ERROR)))

    (line,) = world.lines
    assert text in line
    assert line.startswith("level=error ")


def test_the_gauge_follows_the_plan(world: World) -> None:
    """W-31, W-35: waits hold, problems do not."""
    odd = wait(Code.BAD_MAX_UNAVAILABLE, "x")
    world.group_states.post(
        plan(wait(Code.PAUSED, "p"), wait(Code.BUDGET_USED, "b"), problems=(odd,))
    )
    assert sorted(world.held_by("ingester")) == ["budget_used", "paused"]

    world.group_states.post(plan())
    assert world.held_by("ingester") == []


def test_since_holds_while_the_leading_reason_holds(world: World) -> None:
    """Other numbers are the same state, another zone is another state."""
    world.group_states.post(plan(wait(Code.PODS_STARTING, "1 pod", zone="a")))
    world.clock.jump(SECOND)
    world.group_states.post(plan(wait(Code.PODS_STARTING, "2 pods", zone="a")))

    (entry,) = world.group_states.entries()
    assert (entry.since, entry.looked) == (EPOCH, EPOCH + SECOND)
    assert entry.plan.waits[0].text == "2 pods"

    world.clock.jump(SECOND)
    world.group_states.post(plan(wait(Code.PODS_STARTING, "2 pods", zone="b")))
    assert world.group_states.entries()[0].since == EPOCH + 2 * SECOND


def test_a_plan_without_waits_is_a_state_too(world: World) -> None:
    world.group_states.post(plan())
    world.clock.jump(SECOND)
    world.group_states.post(plan())

    assert world.group_states.entries()[0].since == EPOCH


def test_entries_are_sorted_and_forgotten(world: World) -> None:
    for name in ("b", "c", "a"):
        world.group_states.post(plan(group=GroupName(name)))
    world.group_states.forget(GroupName("b"))
    world.group_states.forget(GroupName("never seen"))

    assert [entry.plan.group for entry in world.group_states.entries()] == ["a", "c"]


def test_a_forgotten_group_is_new_when_it_comes_back(world: World) -> None:
    reason = wait(Code.PAUSED, "paused")
    world.group_states.post(plan(reason))
    world.clock.jump(QUIET)
    world.group_states.forget(G)
    world.group_states.post(plan(reason))

    assert len(world.take_lines()) == 2
    assert world.group_states.entries()[0].since == EPOCH + QUIET
