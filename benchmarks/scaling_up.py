"""How soon zones follow the one that leads them, on a real control plane.

The operator runs as a process under the shipped Role, with default flags. A person raises the count
of the leading zone; all times come from the audit log, so that what the API server itself takes to
commit and to tell of a write counts against the operator.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from rollout_lab.zones import ZoneSpec

from benchmarks.figures import Figure, Result, median, percentile
from benchmarks.processes import read_time
from rollout_operator.model.names import LEADING_ZONE
from tests.world.api import STATEFULSETS
from tests.world.assets import locate_assets
from tests.world.kubelet import Behaviour, always
from tests.world.plane import ControlPlane
from tests.world.sets import Check, Snapshot, each_of, missing_ready, wait_until
from tests.world.world import World

MEDIAN_MS: Final = 100.0
PODS: Final = Behaviour(
    ready_after=timedelta(milliseconds=50), terminates_after=timedelta(milliseconds=50)
)
LEADING: Final = "zone-a"
# Nobody changes a count several times a second: without it, the rate limit is what is measured.
PAUSE_S: Final = 1.0
# Who follows whom: two beside each other, and one behind the other.
SHAPES: Final[Mapping[str, Mapping[str, str]]] = {
    "beside": {"zone-b": LEADING, "zone-c": LEADING},
    "chain": {"zone-b": LEADING, "zone-c": "zone-b"},
}

Json = dict[str, Any]


class Step(msgspec.Struct, frozen=True):
    """One count of the leading zone: seconds until each follower was sent it, in their order."""

    delays: tuple[float, ...]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """All steps of one shape."""

    steps: Sequence[Step]
    requests: int
    """Of the operator, watches left out."""
    cpu: float
    starved: float
    """Seconds for which it wanted a core and had none."""


async def measure(*, small: bool) -> Result:
    """Measure steps of one replica each. Raises NoControlPlaneError."""
    rounds, pause = (2, 0.0) if small else (15, PAUSE_S)
    figures: list[Figure] = []
    async with ControlPlane(locate_assets()).running() as plane:
        for shape, followers in SHAPES.items():
            run = await _follow(plane, followers, rounds, pause)
            figures += _describe(shape, len(followers), run)
    setting = {"zones": 3, "rounds": rounds, "shapes": list(SHAPES)}
    return Result(benchmark="scaling_up", setting=setting, figures=figures)


async def _follow(
    plane: ControlPlane, followers: Mapping[str, str], rounds: int, pause: float
) -> Run:
    async with World(plane, plane.folder, always(PODS)) as world:
        leads = {name: {LEADING_ZONE: lead} for name, lead in followers.items()}
        names = [LEADING, *followers]
        zones = [ZoneSpec(name=name, replicas=1, annotations=leads.get(name, {})) for name in names]
        await world.create(*zones)
        await world.grant("scaling")
        operator = await world.operator()
        before, offset = read_time(operator.child.pid), plane.audit_size()
        for number in range(rounds):
            await world.set_replicas(LEADING, number + 2)
            await wait_until(world.api, world.namespace, _all_have(names, number + 2))
            await asyncio.sleep(pause)
        after = read_time(operator.child.pid)
        await world.judge.violations()  # the audit log is whole after that
        entries = [
            entry
            for entry in plane.read_audit(offset)[0]
            if entry.get("objectRef", {}).get("namespace") == world.namespace
        ]
        return Run(
            steps=read_steps(entries, world.user, tuple(followers)),
            requests=sum(1 for _ in _requested(entries, world.user)),
            cpu=after.cpu - before.cpu,
            starved=after.starved - before.starved,
        )


def _all_have(names: Sequence[str], replicas: int) -> Check:
    def missing(now: Snapshot, name: str) -> str:
        wants = now.sets[name]["spec"]["replicas"] if name in now.sets else 0
        return missing_ready(now, name) if wants == replicas else f"{name} wants {wants}"

    return each_of(names, missing)


def read_steps(entries: Iterable[Json], operator: str, followers: Sequence[str]) -> list[Step]:
    """Return what followed each change of the leading zone, from entries of the audit log.

    Raises ValueError where a follower was not written exactly once after each.
    """
    patches = sorted(
        (
            _time(entry["requestReceivedTimestamp"]),
            entry["user"]["username"] == operator,
            entry["objectRef"].get("name", ""),
        )
        for entry in entries
        if entry["verb"] == "patch"
        and entry["objectRef"].get("resource") == STATEFULSETS.plural
        and entry["objectRef"].get("subresource", "") == ""
        and entry.get("responseStatus", {}).get("code", 0) < 300
    )
    begins = [at for at, is_own, name in patches if not is_own and name == LEADING]
    steps: list[Step] = []
    for begin, end in zip(begins, [*begins[1:], float("inf")], strict=True):
        sent = {name: at for at, is_own, name in patches if is_own and begin <= at < end}
        writes = sum(is_own and begin <= at < end for at, is_own, _ in patches)
        if writes != len(followers) or set(sent) != set(followers):
            raise ValueError(f"{writes} writes, of {sorted(sent)}, after one of {LEADING}")
        steps.append(Step(tuple(sent[name] - begin for name in followers)))
    return steps


def _requested(entries: Iterable[Json], operator: str) -> Iterator[Json]:
    for entry in entries:
        if entry["user"]["username"] == operator and entry["verb"] != "watch":
            yield entry


def _describe(shape: str, followers: int, run: Run) -> Sequence[Figure]:
    every = [delay * 1000 for step in run.steps for delay in step.delays]
    last = [max(step.delays) * 1000 for step in run.steps]
    writes = len(run.steps) * followers
    figures = [
        Figure(
            name="reaction_median_ms",
            value=median(every),
            means="from the API server's receiving the count of the leading zone to its receiving"
            " that of a follower; committing and telling of it included",
            at_most=MEDIAN_MS,
        ),
        Figure(
            name="reaction_p99_ms",
            value=percentile(every, 0.99),
            means="the same, as 99 of 100 are at most",
        ),
        Figure(
            name="last_median_ms",
            value=median(last),
            means="the same for the last of the followers",
            at_most=MEDIAN_MS,
        ),
        Figure(
            name="requests_per_write",
            value=run.requests / writes,
            means="requests of the operator for each count that it wrote, watches left out",
        ),
        Figure(
            name="cpu_ms_per_write",
            value=run.cpu * 1000 / writes,
            means="its processor time for each, all events of new pods included",
        ),
        Figure(
            name="starved_ms_per_write",
            value=run.starved * 1000 / writes,
            means="for how long it wanted a core and had none: near zero on a machine that has"
            " nothing else to do",
        ),
    ]
    return [
        Figure(name=f"{shape}_{one.name}", value=one.value, means=one.means, at_most=one.at_most)
        for one in figures
    ]


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
