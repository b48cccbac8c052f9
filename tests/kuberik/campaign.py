"""The comparison: every scenario with both controllers; where they differ, what is said of it."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.kuberik.peer import build_peer
from tests.kuberik.play import Pair, play_all
from tests.kuberik.scenarios import (
    FILE,
    Scenario,
    list_rows,
    list_undocumented,
    read_scenarios,
    write_differing,
)
from tests.kuberik.state import list_differing
from tests.world.gobuild import BuildError


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """In which fields both differ in a scenario, and step by step how."""

    fields: frozenset[str]
    text: str


def prove_equal(*, is_recording: bool) -> tuple[int, Sequence[str]]:
    """Play all, and return how many, and what differs otherwise than it is recorded.

    Raises NoControlPlaneError.
    """
    scenarios = read_scenarios(FILE.read_text())
    try:
        peer = build_peer()
    except BuildError as error:
        return 0, [str(error)]
    found = asyncio.run(_compare(scenarios, peer))
    # A machine that is busy shows a moment on the way for the end of a step, now and then.
    if doubtful := [one for one in scenarios if found[one.name].fields != one.differing]:
        sys.stderr.write(f"once more: {' '.join(one.name for one in doubtful)}\n")
        found |= asyncio.run(_compare(doubtful, peer))
    if is_recording:
        write_differing({name: one.fields for name, one in found.items()})
        scenarios = read_scenarios(FILE.read_text())
    missed = [
        f"{one.name} {one.title}: recorded {sorted(one.differing)}\n{found[one.name].text}"
        for one in scenarios
        if found[one.name].fields != one.differing
    ]
    return len(scenarios), [*missed, *list_undocumented(scenarios, list_rows())]


async def _compare(scenarios: Sequence[Scenario], peer: Path) -> dict[str, Found]:
    seen = await play_all(scenarios, peer)
    return {one.name: _judge(one, seen[one.name]) for one in scenarios}


def _judge(scenario: Scenario, seen: Sequence[Pair]) -> Found:
    lines = []
    fields = set()
    for step, (peer, own) in zip(scenario.steps[-len(seen) :], seen, strict=True):
        differing = list(list_differing(scenario.name, peer, own))
        fields.update(differing)
        lines += [f"  after: {step}"] if differing else []
        lines += [f"    {one}: {peer.get(one)} | {own.get(one)}" for one in differing]
    return Found(fields=frozenset(fields), text="\n".join(lines))
