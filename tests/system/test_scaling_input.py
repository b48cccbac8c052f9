"""What people write wrongly: each is named once, in log and page, and holds up nothing else."""

import asyncio
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec
import pytest
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec

from rollout_operator.model.names import DOWNSCALE_INTENT
from tests.system.delayed import DELAY, URL
from tests.system.guarded import Guarded, guard
from tests.system.mirrored import Template, grant_mirroring, mirror
from tests.system.scaled import annotated, follow, scale, stored_at, wait_counts
from tests.system.waits import read_metric, wait_line, wait_page, wait_true
from tests.world.sets import MAX_UNAVAILABLE
from tests.world.world import World

pytestmark = pytest.mark.controlplane

PASSES: Final = 3
# A group that waited for its next round, or for one that is held up, takes longer.
UPSCALE_LIMIT: Final = timedelta(seconds=5)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A group in which one zone cannot be understood."""

    code: str
    zone: str
    """The one that is named."""
    says: Sequence[str]
    zones: Sequence[ZoneSpec]


def _zone(name: str, replicas: int = 1) -> ZoneSpec:
    return ZoneSpec(name=name, group=name.rpartition("-")[0], replicas=replicas)


def _cases() -> list[Case]:
    return [
        Case(
            code="no_leading_zone",
            zone="lost-b",
            says=["could not find leader for lost-b", "grafana.com/rollout-downscale-leader"],
            zones=[_zone("lost-a"), follow(_zone("lost-b"), "absent")],
        ),
        Case(
            code="bad_reference",
            zone="scaleless-a",
            says=["resource-name", "ConfigMap demo", "have no scale subresource"],
            zones=[mirror(_zone("scaleless-a"), kind="ConfigMap", api_version="v1")],
        ),
        Case(
            code="bad_reference",
            zone="kindless-a",
            says=["resource-name", "knows no kind 'Nothing'"],
            zones=[mirror(_zone("kindless-a"), kind="Nothing")],
        ),
        Case(
            code="bad_reference",
            zone="absent-a",
            says=["ReplicaTemplate.rollout-operator.grafana.com absent", "not found"],
            zones=[mirror(_zone("absent-a"), name="absent")],
        ),
        Case(
            code="bad_reference",
            zone="forbidden-a",
            says=["Deployment.apps demo", "not allowed in namespace"],
            zones=[mirror(_zone("forbidden-a"), kind="Deployment", api_version="apps/v1")],
        ),
    ]


async def test_w42_a_wrong_value_is_named_once_and_holds_no_zone_up(world: World) -> None:
    """W-42, W-43, SCALE-05, MIRR-03, MIRR-04: named with zone and key.

    What else may be wrong of a zone: `tests/planning/scaling` and `tests/controllers/scaling`.
    A chain beside them is through at once, and so is a zone that follows in a group in which
    another one cannot be understood.
    """
    world.may_be_forbidden = True  # the Role grants no scale of a Deployment
    cases, template = _cases(), Template(world=world)
    await template.create(1)
    await grant_mirroring(world)
    well = [_zone("live-a"), follow(_zone("live-b"), "live-a"), follow(_zone("live-c"), "live-b")]
    mixed = follow(replace(_zone("lost-c"), group="lost"), "lost-a")
    zones = [*well, mixed, *(zone for case in cases for zone in case.zones)]
    guarded = await guard(world, *zones)

    lines = await asyncio.gather(*(_wait_named(guarded, case) for case in cases))
    for case in cases:
        await _touch(guarded, case)
    for leading, last in (("live-a", "live-c"), ("lost-a", "lost-c")):
        await scale(guarded, leading, 3)
        await wait_counts(world, {leading: 3, last: 3})
        await world.judge.settle()
        reaction = stored_at(world, last, 3) - stored_at(world, leading, 3)
        assert timedelta(seconds=reaction) < UPSCALE_LIMIT

    page = (await guarded.operator.fetch("/status"))[1]
    for case, line in zip(cases, lines, strict=True):
        assert "level=warn" in line
        assert all(word in line for word in case.says), line
        assert all(word in page for word in case.says), (case.zone, page)
        assert len(_list_lines(guarded, case)) == 1, _list_lines(guarded, case)
    await world.judge.assert_clean()


async def test_w20_a_bad_delay_lets_upscales_through(world: World) -> None:
    """W-20, DELAY-03, W-42: no downscale until it is mended, and none of it needs a restart."""
    template = Template(world=world)
    await template.create(2)
    await grant_mirroring(world)
    pods = await world.serve_pods()
    bad = {DELAY: "soon", URL: f"http://any:{pods.port}/prepare-delayed-downscale"}
    guarded = await guard(world, annotated(mirror(_zone("hasty-a", 2)), bad), pods=pods)

    await template.scale(3)
    await wait_counts(world, {"hasty-a": 3})
    await template.scale(2)
    case = Case(code="bad_delay", zone="hasty-a", says=[], zones=[])
    await _wait_counted(guarded, case, 1)
    assert await guarded.workload("hasty-a").replicas() == 3
    await world.annotate("hasty-a", **{DELAY: "1s"})
    await wait_counts(world, {"hasty-a": 2})
    await wait_page(guarded.operator, "/status", 200, "hasty", lacking="soon")


async def _wait_named(guarded: Guarded, case: Case) -> str:
    """Wait until the log names a case, and return the line."""
    return await wait_line(guarded.operator, f"zone={case.zone} ", f"reason={case.code} ")


async def _touch(guarded: Guarded, case: Case) -> None:
    """Have a group reconciled again some times, by changes of what is read of its zone."""
    world = guarded.world
    for turn in range(PASSES):
        before = await _count_failures(guarded, case)
        await world.annotate(case.zone, **{MAX_UNAVAILABLE: f"{turn + 1}"})
        await _wait_counted(guarded, case, before + 1)


async def _wait_counted(guarded: Guarded, case: Case, least: float) -> None:
    async def is_counted() -> bool:
        return await _count_failures(guarded, case) >= least

    await wait_true(f"{least} failures of {case.zone} with {case.code}", is_counted)


async def _count_failures(guarded: Guarded, case: Case) -> float:
    name, group = "rollout_operator_scaling_failures_total", case.zone.rpartition("-")[0]
    labels = {"rollout_group": group, "reason": case.code}
    return await read_metric(guarded.operator, name, **labels) or 0


def _list_lines(guarded: Guarded, case: Case) -> list[str]:
    wanted = re.compile(rf"zone={case.zone} .*reason={case.code} ")
    return [line for line in guarded.operator.log_lines() if wanted.search(line)]


# As the API server's JSON patch compares texts, it takes none of the last four for what it is.
MARKS: Final = {"plain": "x", "less": "<", "and": "a&b", "delete": "\x7f", "letter": "é😀"}


async def test_si02_a_mark_that_a_client_writes_is_removed_whatever_it_says(world: World) -> None:
    """SI-02, LI-01: it holds its group for moments, and no longer."""
    groups = {name: [_zone(f"{name}-{letter}") for letter in "ab"] for name in MARKS}
    names = await world.create(*(zone for zones in groups.values() for zone in zones))
    await world.grant_webhooks()
    await world.operator()
    for name, text in MARKS.items():
        await world.annotate(f"{name}-a", **{DOWNSCALE_INTENT: text})
    await world.roll(names, "v2")
    await world.judge.assert_clean()
