"""A status can always be written, however much others write of releases, gates and health."""

from collections.abc import Iterator
from typing import Final

import msgspec
import pytest

from rollout_operator.model.releases import RefusedRelease, Release
from rollout_operator.planning.bake import MOST_FAILED
from rollout_operator.planning.candidates import assess_gates
from rollout_operator.planning.releases import plan_release
from tests.planning.releases.builders import ALL_CHECKS, MINUTE, at, check, entry, gate
from tests.planning.releases.release_world import ReleaseWorld

# An object of the API has 1.5 MiB, of which spec, annotations and managed fields need theirs.
MOST: Final = 1400 * 1024
LONG: Final = "x" * 1024


def measure(world: ReleaseWorld) -> int:
    return len(msgspec.json.encode(world.status))


def bake(failing: int) -> ReleaseWorld:
    """Return a world in which so many HealthChecks fail a bake."""
    world = ReleaseWorld(latest="1.0.0", bake_time=MINUTE, checks=ALL_CHECKS)
    world.step()
    world.wait(1)
    world.checks = tuple(
        check(f"check-{number:04}", status="Unhealthy", change=0.5, error=0.5, message=LONG)
        for number in range(failing)
    )
    world.step()
    return world


@pytest.mark.parametrize(("failing", "named", "quoted"), [(3, 3, 3), (5000, MOST_FAILED, 10)])
def test_a_bake_fails_however_many_checks_do(failing: int, named: int, quoted: int) -> None:
    """REL-73: the first are named, the very first with their words."""
    world = bake(failing)
    assert world.history() == "1.0.0 Failed"
    failed = world.current.failed_health_checks
    assert (len(failed), sum(one.message == LONG for one in failed)) == (named, quoted)
    assert measure(world) < MOST


def test_a_thousand_releases_of_hostile_texts() -> None:
    """RELB-22: the newest stay, as candidates as well."""
    known = tuple(
        Release(tag=f"1.0.{number}-{'a' * 100}", digest=LONG, version=LONG, revision=LONG)
        for number in range(1000)
    )
    world = ReleaseWorld(known="0.0.1")
    world.set_status(available_releases=known, history=(entry("0.0.1", "Deploying"),))
    world.latest = None
    world.step()
    assert 50 < len(world.status.available_releases) < 100
    assert world.status.available_releases[-1] == known[-1]
    assert world.status.available_releases_count == len(world.status.available_releases)
    assert measure(world) < MOST


def test_a_thousand_releases_of_usual_texts_stay() -> None:
    """RELB-22."""
    known = tuple(
        Release(tag=f"1.0.{number}", digest="sha256:" + "0" * 64, version="1.0", revision="a" * 40)
        for number in range(1000)
    )
    world = ReleaseWorld(known="0.0.1")
    world.set_status(available_releases=known, history=(entry("1.0.999"),))
    world.step("1.0.999")
    world.set_spec(least_available=1000)
    world.step()
    assert len(world.status.available_releases) == 1000


def test_thousands_of_gates_and_of_versions_that_they_allow() -> None:
    """REL-50: all of them count; in the status the closed ones go before the others."""
    world = ReleaseWorld(known="1.0.0 2.0.0")
    world.set_status(history=(entry("1.0.0"),))
    allowed = " ".join(["2.0.0", *(f"9.{number}.0" for number in range(1000))])
    world.gates = tuple(gate(f"gate-{number:04}", allowed=allowed) for number in range(300))
    world.step()
    assert world.tags() == "2.0.0 1.0.0"
    world.gates = (
        *world.gates,
        gate("z-closed", passing=False),
        gate("a" * 60, allowed=LONG * 500),
    )
    world.step("3.0.0")
    assert world.tags() == "2.0.0 1.0.0"
    shown = world.status.gates
    assert [one.name for one in shown if not one.passing] == ["z-closed"]
    assert (shown[1].name, len(shown[1].allowed_versions or ())) == ("gate-0000", 20)
    assert shown[1].message is not None
    assert shown[1].message.endswith("it allows 1001 versions, of which the first are shown")
    assert measure(world) < MOST


class CountedTags(tuple[str, ...]):
    """Tags that count how often they are gone through."""

    turns = 0

    def __iter__(self) -> Iterator[str]:
        self.turns += 1
        return super().__iter__()

    def __contains__(self, key: object) -> bool:
        self.turns += 1
        return super().__contains__(key)


def test_what_a_gate_names_is_gone_through_once_for_all_candidates() -> None:
    """REL-50: a hundred thousand for each of a thousand kept a process busy for seconds."""
    counted = CountedTags(["1.0.7", "9.9.9"])
    named = msgspec.structs.replace(gate(), allowed_versions=counted)
    known = tuple(Release(tag=f"1.0.{number}") for number in range(1000))
    verdict = assess_gates(known, [named])
    assert [one.tag for one in verdict.passed] == ["1.0.7"]
    assert counted.turns <= 3


def test_a_history_of_any_limit() -> None:
    """REL-06: entries that are too long together push the oldest ones out."""
    world = ReleaseWorld(history_limit=2**31 - 1)
    past = tuple(
        entry(f"1.{number}.0", message=LONG * 4, id=number) for number in range(1000, 0, -1)
    )
    world.set_status(history=past)
    world.step("2.0.0")
    assert world.tags().startswith("2.0.0 1.1000.0 1.999.0")
    assert 50 < len(world.status.history) < 100
    assert measure(world) < MOST


def test_no_version_is_forgotten_while_a_rollout_is_refused() -> None:
    """REL-84: for how long they are kept stands in the spec that cannot be read."""
    world = ReleaseWorld()
    old = tuple(Release(tag=f"1.{minor}.0", created=at(-60 * 24 * 60)) for minor in range(40))
    world.set_status(available_releases=old)
    refused = RefusedRelease(
        head=world.rollout.head, problem="no", status=world.status, announced=world.rollout
    )
    plan = plan_release(msgspec.structs.replace(world.snapshot(), rollout=refused))
    assert plan.status.available_releases == old
