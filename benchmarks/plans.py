"""What a decision costs: `plan_group` on groups of three zones, at rest and in a rollout."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from benchmarks.figures import Figure, Result, median
from benchmarks.objects import ZONES, Place, encode_pod, encode_set
from benchmarks.processes import measure_in_child
from benchmarks.tasks import Task
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.names import GroupName, Revision
from rollout_operator.model.objects import Group, Zone
from rollout_operator.planning.rollout import plan_group

# Replicas of a zone. The work grows with the pods: the last one is as large as zones get.
SIZES: Final = (3, 100, 600)
ROUNDS: Final = 5
NOW: Final = datetime(2026, 1, 1, 13, 0, tzinfo=UTC)


async def measure(*, small: bool) -> Result:
    """Measure in a child of its own, where nothing else is in memory."""
    repeats = 2 if small else 50
    measured = await measure_in_child("plans", Task(count=repeats))
    figures = [
        Figure(
            name=f"{state}_3x{size}_us",
            value=measured[f"{state}_{size}"],
            means=f"processor time of one look at 3 x {size} pods, {label}",
        )
        for size in SIZES
        for state, label in (
            ("rest", "all up to date"),
            ("rolling", "half of the first zone replaced and all of it ready"),
        )
    ]
    return Result(benchmark="plans", setting={"repeats": repeats}, figures=figures)


async def measure_plans(task: Task) -> Mapping[str, float]:
    """Measure inside of a child; microseconds by state and size."""
    found: dict[str, float] = {}
    for size in SIZES:
        for state, outdated in (("rest", 0), ("rolling", size // 2 + 1)):
            group = make_group(size, outdated)
            rounds = [_time(group, task.count) for _ in range(ROUNDS)]
            found[f"{state}_{size}"] = median(rounds) * 1e6
    return found


def make_group(size: int, outdated: int) -> Group:
    """Return a group of three zones, whole; so many pods of the first zone are outdated."""
    zones = [_make_zone(letter, size) for letter in ZONES]
    first = zones[0]
    old = Revision(f"{first.sts.name}-outdated")
    pods = tuple(
        pod if number >= outdated else replace(pod, revision=old)
        for number, pod in enumerate(first.pods)
    )
    zones[0] = Zone(sts=first.sts, pods=pods)
    return Group(name=GroupName("store-0"), zones=tuple(zones), now=NOW, deletions={})


def _make_zone(letter: str, size: int) -> Zone:
    places = [Place(group=0, zone=letter, ordinal=each) for each in range(size)]
    return Zone(
        sts=decode_statefulset(encode_set(places[0], size)),
        pods=tuple(decode_pod(encode_pod(place)) for place in places),
    )


def _time(group: Group, repeats: int) -> float:
    begin = time.process_time()
    for _ in range(repeats):
        plan_group(group)
    return (time.process_time() - begin) / repeats
