"""The last plan per group: page, gauge, and a log that repeats nothing."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

import pytest

from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import Action, Code, Plan, Reason, RecordRevision, Severity
from rollout_operator.telemetry import logs
from rollout_operator.telemetry.metrics import (
    PATIENCE,
    QUIET,
    GroupState,
    GroupStates,
    Metrics,
    Subject,
)
from tests.builders import zone
from tests.fakes_clock import EPOCH, FakeClock

SECOND: Final = timedelta(seconds=1)
NOW: Final = timedelta(0)
G: Final = GroupName("ingester")
STAYS: Final = PATIENCE[Code.PODS_MISSING]


class World:
    """The states of groups with what they write to."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.group_states = GroupStates(self.metrics, self.clock)
        self.lines: list[str] = []

    def post(
        self, *waits: Reason, problems: tuple[Reason, ...] = (), part: Subject = Subject.ROLLOUT
    ) -> timedelta | None:
        return self.group_states.post(Plan(group=G, waits=waits, problems=problems), part)

    def logged(self) -> list[str]:
        """Return the level and the reason of each line written since the last call."""
        taken, self.lines = self.lines, []
        return [
            f"{line.split()[0].removeprefix('level=')} {line.split('why=')[1].strip()}"
            for line in taken
        ]

    def held(self) -> list[str]:
        """Return what the gauge shows, and the page."""
        body = b"".join(self.metrics.render()).decode()
        prefix = f'rollout_operator_group_waiting{{rollout_group="{G}",reason="'
        shown = [
            line.removeprefix(prefix).removesuffix('"} 1')
            for line in body.splitlines()
            if line.startswith(prefix) and line.endswith(" 1")
        ]
        (entry,) = self.group_states.entries()
        codes = [str(reason.code) for reason in entry.plan.waits]
        assert sorted(shown) == sorted(codes)
        return codes


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    logs.configure(write=lambda line: made.lines.append(line.decode()))
    yield made
    logs.configure()


def wait(
    text: str, code: Code = Code.PODS_STARTING, *, zone: str = "", severity: str = "info"
) -> Reason:
    return Reason(code=code, text=text, zone=zone, severity=Severity(severity))


def slow(severity: str) -> Reason:
    return wait("slow", Code.LIVE_READ_EXPIRED, severity=severity)


def lately(left: str, zone: str = "zone-b") -> Reason:
    """Return a wait whose text changes with each reconcile, and whose gist does not."""
    text = f"{zone} in {left}"
    return Reason(
        code=Code.ZONE_DOWNSCALED_LATELY, text=text, stable_text=f"{zone} waits", zone=zone
    )


IDLE: Final = wait("rolled out", Code.UP_TO_DATE)
BUSY: Final = wait("busy", Code.BUDGET_USED, zone="zone-a")
MISSING: Final = wait("missing", Code.PODS_MISSING)
PAUSED: Final = wait("p", Code.PAUSED)


@pytest.mark.parametrize(
    ("reasons", "pause", "written"),
    [
        pytest.param([BUSY] * 5, SECOND, ["info busy"], id="LOG-04 W-46 once while it holds"),
        pytest.param([wait("1"), wait("2")], SECOND, ["info 1", "info 2"], id="a new text"),
        pytest.param(
            [slow("debug"), slow("debug"), slow("warn"), slow("warn")],
            QUIET, ["debug slow", "warn slow"], id="LOG-04 more severe",
        ),
        pytest.param(
            [slow("warn"), slow("info"), slow("warn"), slow("debug"), slow("warn")],
            QUIET, ["warn slow"], id="less severe is logged already: what flaps fills no log",
        ),
        pytest.param(
            [wait(f"{number}") for number in range(21)],
            QUIET / 10, ["info 0", "info 10", "info 20"], id="once a second",
        ),
        pytest.param([BUSY, IDLE] * 10, NOW, ["info busy", 'info "rolled out"'], id="flaps"),
        pytest.param(
            [PAUSED, IDLE, PAUSED], QUIET, ["info p", 'info "rolled out"', "info p"],
            id="what comes back is new",
        ),
        pytest.param(
            [lately(f"{left}m") for left in range(60, 0, -1)],
            timedelta(minutes=1), ['info "zone-b in 60m"'], id="a time that runs",
        ),
        pytest.param(
            [lately("1h"), Reason(lately("").code, "new", stable_text="new", zone="zone-b")],
            2 * QUIET, ['info "zone-b in 1h"', "info new"], id="another text",
        ),
    ],
)  # fmt: skip
def test_a_reason_is_logged_when_it_is_new(
    world: World, reasons: Sequence[Reason], pause: timedelta, written: list[str]
) -> None:
    for reason in reasons:
        world.post(reason)
        world.clock.jump(pause)

    assert world.logged() == written
    assert world.group_states.entries()[0].plan.waits == (reasons[-1],)


@pytest.mark.parametrize(
    ("steps", "written"),
    [
        pytest.param(
            [(NOW, wait("1"), None), (NOW, wait("2"), QUIET), (QUIET, wait("2"), None)],
            ["info 1", "info 2"], id="logged later, if it still holds",
        ),
        pytest.param(
            [(NOW, wait("1"), None), (NOW, wait("2"), QUIET), (NOW, wait("1"), None)],
            ["info 1"], id="logged already",
        ),
        pytest.param(
            [(NOW, slow("debug"), None), (NOW, slow("warn"), QUIET), (QUIET, slow("warn"), None)],
            ["debug slow", "warn slow"], id="more severe within the time of quiet",
        ),
        pytest.param(
            [
                (NOW, MISSING, STAYS),
                (10 * SECOND, MISSING, STAYS - 10 * SECOND),
                (NOW, IDLE, None),
                (NOW, MISSING, STAYS),
                (STAYS, MISSING, None),
            ],
            ['info "rolled out"', "info missing"],
            id="SEED-104 what passes by in every rollout is logged when it stays",
        ),
    ],
)  # fmt: skip
def test_what_the_log_lacks_is_read_again(
    world: World, steps: Sequence[tuple[timedelta, Reason, timedelta | None]], written: list[str]
) -> None:
    """No event may follow: the last line about a zone must still be what holds it now."""
    for pause, reason, due in steps:
        world.clock.jump(pause)
        assert world.post(reason) == due

    assert world.logged() == written


def test_what_one_part_lacks_the_next_to_post_delivers(world: World) -> None:
    world.post(lately("1h"), part=Subject.SCALING)
    other = Reason(code=lately("").code, text="x", stable_text="x", zone="zone-b")
    assert world.post(other, part=Subject.SCALING) == QUIET
    assert world.post(IDLE) == QUIET


def test_zones_and_groups_are_distinguished(world: World) -> None:
    """One zone must not silence another with the same code, nor one group another."""
    waits = tuple(wait("paused", Code.PAUSED, zone=zone) for zone in ("zone-a", "zone-b"))
    for group in (G, GroupName("store")):
        world.group_states.post(Plan(group=group, waits=waits))

    assert [line.partition("msg=")[2].split(" why")[0] for line in world.lines] == [
        f'"Group waits" group={group} zone={zone} reason=paused'
        for group in ("ingester", "store")
        for zone in ("zone-a", "zone-b")
    ]


def test_several_texts_of_one_code_and_zone_share_a_line(world: World) -> None:
    """Under the level of the most severe, each text once."""
    world.post(
        *(
            wait(text, Code.DELETE_REFUSED, severity=severity)
            for text, severity in (("a", "debug"), ("b", "warn"), ("c", "info"), ("a", "debug"))
        )
    )

    assert world.logged() == ['warn "a; b; c"']


def test_gists_of_one_code_and_zone_are_reported_together(world: World) -> None:
    """Both parts may wait for the same zone with the same code."""
    for age in ("31s", "33s"):
        stale = Reason(
            code=Code.SNAPSHOT_STALE, text=f"view {age} old", stable_text="old", zone="b"
        )
        for part in Subject:
            world.post(stale, part=part)
        world.clock.jump(2 * QUIET)

    assert len(world.logged()) == 1


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
    world.post(problems=(wait("some text", code),))

    assert f' msg="{message}" group=ingester reason={code} ' in world.lines[0]


def test_the_text_of_a_wrong_strategy_is_greppable(world: World) -> None:
    """ROLL-13: the sentence that users grep for stands in the line as it is, at its level."""
    text = (
        "StatefulSet ingester-zone-a has RollingUpdate update strategy while OnDelete is "
        "expected, skipping reconcile"
    )
    world.post(wait(text, Code.WRONG_STRATEGY, severity="error"))

    assert world.logged() == [f'error "{text}"']


def test_the_gauge_follows_the_plan(world: World) -> None:
    """W-31, W-35: waits hold, problems do not."""
    world.post(PAUSED, BUSY, problems=(wait("x", Code.BAD_MAX_UNAVAILABLE),))
    assert world.held() == ["paused", "budget_used"]

    world.post()
    assert world.held() == []


@pytest.mark.parametrize(
    ("posts", "held"),
    [
        pytest.param(
            [(IDLE, Subject.ROLLOUT), (lately("1h"), Subject.SCALING)],
            ["zone_downscaled_lately"], id="who waits with its counts is not up to date",
        ),
        pytest.param(
            [(IDLE, Subject.ROLLOUT), (lately("1h"), Subject.SCALING), (None, Subject.SCALING)],
            ["up_to_date"], id="a part clears its own reasons",
        ),
        pytest.param(
            [(BUSY, Subject.ROLLOUT), (lately("1h"), Subject.SCALING), (IDLE, Subject.ROLLOUT)],
            ["zone_downscaled_lately"], id="and no other",
        ),
        pytest.param(
            [(lately("1h"), Subject.SCALING), (BUSY, Subject.ROLLOUT), (lately("2h"), "scaling")],
            ["budget_used", "zone_downscaled_lately"], id="rollouts first, whichever posts last",
        ),
        pytest.param(
            [(lately("1h"), Subject.SCALING)], ["zone_downscaled_lately"], id="counts alone"
        ),
        pytest.param([(None, Subject.ROLLOUT), (None, Subject.SCALING)], [], id="nothing of both"),
    ],
)  # fmt: skip
def test_rollouts_and_counts_are_decided_apart_and_reported_together(
    world: World, posts: Sequence[tuple[Reason | None, str]], held: list[str]
) -> None:
    for reason, part in posts:
        world.post(*([] if reason is None else [reason]), part=Subject(part))

    assert world.held() == held


def test_problems_of_both_parts_are_shown(world: World) -> None:
    odd, bad = wait("y", Code.BAD_MAX_UNAVAILABLE), wait("x", Code.BAD_FORCE_REPLICAS)
    world.post(IDLE, problems=(odd,))
    world.post(problems=(bad,), part=Subject.SCALING)

    (entry,) = world.group_states.entries()
    assert (entry.plan.problems, entry.plan.waits) == ((odd, bad), (IDLE,))


def test_what_is_carried_out_is_newer_than_what_was_posted(world: World) -> None:
    """A live read may wait long: what was posted before may be over, what counts say is not."""
    states = world.group_states
    assert states.find_newest(G) is None
    world.post(BUSY)
    world.post(lately("1h"), part=Subject.SCALING)
    begun = world.clock.now()
    world.clock.jump(7 * SECOND)

    with states.carrying_out(Plan(group=G, actions=(record(),), waits=(BUSY,))):
        assert states.find_newest(G) == GroupState(
            plan=Plan(group=G, actions=(record(),), waits=(BUSY, lately("1h"))),
            since=begun,
            looked=world.clock.now(),
            is_underway=True,
        )
    with states.carrying_out(Plan(group=G, actions=(record(),))):
        newest = states.find_newest(G)
        assert newest is not None
        assert newest.plan.waits == (lately("1h"),)
        assert newest.since == world.clock.now()
    assert states.find_newest(G) == states.find(G)


def record() -> Action:
    sts = zone("a").sts
    return RecordRevision(
        zone=sts, revision=sts.update_revision, reason=Reason(Code.ROLLED_OUT, "r")
    )


def test_since_holds_while_the_leading_reason_holds(world: World) -> None:
    """Other numbers, or counts behind a rollout, are the same state; another zone is another."""
    begun = []
    for reason, part in (
        (wait("1 pod", zone="a"), Subject.ROLLOUT),
        (wait("2 pods", zone="a"), Subject.ROLLOUT),
        (lately("1h"), Subject.SCALING),
        (wait("2 pods", zone="b"), Subject.ROLLOUT),
        (None, Subject.ROLLOUT),
    ):
        world.post(*([] if reason is None else [reason]), part=part)
        (entry,) = world.group_states.entries()
        begun.append((entry.since - EPOCH) // SECOND)
        assert entry.looked == world.clock.now()
        world.clock.jump(SECOND)

    assert begun == [0, 0, 0, 3, 4]


def test_a_plan_without_waits_is_a_state_too(world: World) -> None:
    world.post()
    world.clock.jump(SECOND)
    world.post()

    assert world.group_states.entries()[0].since == EPOCH


def test_entries_are_sorted_and_forgotten(world: World) -> None:
    for name in ("b", "c", "a"):
        world.group_states.post(Plan(group=GroupName(name)))
    world.group_states.forget(GroupName("b"))
    world.group_states.forget(GroupName("never seen"))

    assert [entry.plan.group for entry in world.group_states.entries()] == ["a", "c"]


def test_a_forgotten_group_is_new_when_it_comes_back(world: World) -> None:
    """With both of its parts."""
    world.post(PAUSED)
    world.post(lately("1h"), part=Subject.SCALING)
    world.clock.jump(QUIET)
    world.group_states.forget(G)
    assert world.group_states.entries() == ()
    world.post(PAUSED)

    assert world.held() == ["paused"]
    assert world.logged() == ["info p", 'info "zone-b in 1h"', "info p"]
    assert world.group_states.entries()[0].since == EPOCH + QUIET
