"""Releases in 80 columns."""

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from rollout_operator.cli.render import (
    Line,
    StatusLayout,
    draw_checks,
    draw_gate,
    draw_release,
    draw_schedules,
    draw_status,
)
from rollout_operator.cli.status import map_facts
from rollout_operator.model.description import (
    DeploymentDescription,
    ReleaseDescription,
    ReleasePhase,
    SelectedCheckDescription,
    TargetDescription,
)
from tests.web.status.descriptions import (
    HOSTILE,
    MINUTE,
    NOW,
    describe,
    health_check,
    release,
    release_schedule,
)

NARROW: Final = StatusLayout(width=80)
WIDE: Final = StatusLayout(width=100, is_wide=True)
TERSE: Final = StatusLayout(width=80, is_terse=True)


def plain(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def draw(one: ReleaseDescription, layout: StatusLayout = NARROW) -> list[str]:
    return plain([*draw_release(one, NOW, layout)])


def test_what_holds_a_version_back_stands_first_then_what_a_person_can_do() -> None:
    assert draw(release()) == [
        "Rollout prod/app  waiting  1.0.0 deployed, then 1.1.0",
        "  not passing: nights-app [SomeGatesBlocking]",
        "    `bypass-gates`",
        "  waits 0.9.0: it failed when it was deployed last [Excluded]",
        "  gate  nights-app: not passing: nights-app, kept by RolloutSchedule",
        "        prod/nights, opens at 2026-01-02T03:05:05Z",
    ]


def test_no_version_is_cut_off() -> None:
    """A pin to 1.10 that looks like one to 1.1 sends people the wrong way."""
    long = replace(release(), namespace="n" * 50, wanted="1.10.0", is_suspended=True)
    assert draw(long)[:2] == [
        f"Rollout {'n' * 50}/app  waiting",
        "  1.0.0 deployed, then 1.1.0, pinned to 1.10.0, suspended",
    ]


def test_a_bake_says_how_long_and_for_what_it_waits() -> None:
    entry = DeploymentDescription(tag="1.0.0", status="Deploying")
    baking = replace(
        release("app", ReleasePhase.DEPLOYING, text="Flux"),
        waits=(),
        gates=(),
        checks=(SelectedCheckDescription(name="prod/web", status="Pending", text="2 of 3"),),
        targets=(
            TargetDescription(kind="OCIRepository", name="app", tag="0.9.0"),
            TargetDescription(
                kind="Kustomization", name="app", variable="v", tag="1.0.0", waiting_for="applies"
            ),
        ),
        deadline=NOW + 5 * MINUTE,
        bake_ends=NOW + timedelta(hours=2),
        history=(replace(entry, failed_checks=("prod/web: 500",)),),
        requests=("retry: x",),
    )
    assert draw(baking)[2:] == [
        "  wants retry: x",
        "  bake  is over in 2h0m, if nothing fails",
        "  bake  has to start in 5m0s",
        "  error prod/web: 500",
        "  check prod/web is Pending: 2 of 3",
        "  flux  OCIRepository app has 0.9.0",
        "  flux  Kustomization app (v) has 1.0.0, applies",
    ]


def test_where_all_is_well_nothing_is_reported_gates_and_checks_but_wide() -> None:
    gates = (replace(release().gates[0], is_passing=True, opens=None),)
    well = replace(release("app", ReleasePhase.DEPLOYED, text="baked"), waits=(), gates=gates)
    assert draw(well)[1:] == ["  baked [SomeGatesBlocking]"]
    assert draw(well, TERSE) == draw(well)[:1]
    assert draw(well, WIDE)[2:] == [
        "  gate  nights-app: not passing: nights-app, kept by RolloutSchedule prod/nights",
        "  check prod/web is Healthy: baked",
        "  flux  OCIRepository app has 1.0.0",
        "  from  ImagePolicy prod/app announced 1.1.0",
        "  newer 1.1.0",
        "  was   1.0.0 Succeeded at 2026-01-02T03:03:05Z by ann, baked",
        "  GatesPassing is False, SomeGatesBlocking: baked",
    ]
    assert draw(replace(well, is_suspended=True))[0].endswith(", suspended")


def test_schedules_and_checks_stand_below() -> None:
    ill = replace(health_check("500"), status="Unhealthy", name="api")
    lines = plain(
        draw_status(
            describe(
                releases=(release("ok", ReleasePhase.DEPLOYED), release()),
                schedules=(release_schedule(),),
                health_checks=(health_check(), ill),
            ),
            (),
            NARROW,
        )
    )
    assert lines[0] == "namespace prod  2 Rollouts"
    heads = [line.split()[1] for line in lines if line.startswith("Rollout ")]
    assert heads == ["prod/app", "prod/ok"]
    assert lines[-4:] == [
        "",
        "RolloutSchedule prod/nights: closed by night, 1 Rollout",
        "",
        "HealthCheck prod/api: Unhealthy: 500",
    ]


def test_wide_says_by_which_clock_and_for_which_rollouts() -> None:
    assert plain([*draw_schedules([release_schedule()], WIDE)])[1:] == [
        "  clock UTC",
        "  gates nights-app",
    ]
    outside = replace(health_check(), rollouts=())
    assert plain([*draw_checks([health_check(), outside], WIDE)]) == [
        "HealthCheck prod/web: Healthy: 200",
        "  of    no class: written from outside",
        "  for   prod/app",
        "HealthCheck prod/web: Healthy: 200",
        "  of    no class: written from outside",
        "  for   no Rollout of this namespace",
    ]


def test_what_changes_is_reported_line_by_line() -> None:
    facts = map_facts(
        describe(
            releases=(release(),), schedules=(release_schedule(),), health_checks=(health_check(),)
        )
    )
    assert [*facts.values()] == [
        "Rollout prod/app: waiting, 1.0.0 deployed, then 1.1.0: not passing: nights-app"
        " [SomeGatesBlocking]",
        "RolloutSchedule prod/nights: closed by night",
        "HealthCheck prod/web: Healthy: 200",
    ]


def test_what_tenants_write_steers_no_terminal() -> None:
    one = release(text=HOSTILE)
    lines = [
        *draw(one, WIDE),
        *draw(replace(one, name=HOSTILE, tag=HOSTILE, next=HOSTILE)),
        *plain([*draw_gate(one, one.gates[0], NARROW)]),
        *plain([*draw_schedules([release_schedule(HOSTILE)], WIDE)]),
        *plain([*draw_checks([health_check(HOSTILE)], WIDE)]),
        *map_facts(describe(releases=(one,))).values(),
    ]
    assert all(line.isprintable() for line in lines)
