"""What several namespaces cost: memory, start and reaction, with groups by label and by policy.

Three settings on a real control plane: six groups that move one after the other, then the same
beside many idle pods in one namespace, then all of that spread over three. The rate limits of the
operator are raised, so that it waits for no token. See `namespaces_world` for what is there.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from benchmarks.figures import Figure, Result, median, percentile
from benchmarks.namespaces_world import (
    LIMIT,
    Placed,
    Size,
    create_groups,
    open_worlds,
    wait_decided,
)
from benchmarks.processes import read_memory, read_time
from benchmarks.rollout import PODS, open_plane
from benchmarks.timeline import Json, count_requests, read_rollout
from tests.world.operatorproc import OPERATOR, Launch, OperatorProcess
from tests.world.plane import ControlPlane
from tests.world.sets import set_image, wait_adopted
from tests.world.world import World

FLAGS: Final = (
    *("-multi-az-rollouts.enabled", "-leader-election.enabled=false"),
    *("-kubernetes.client-qps=100", "-kubernetes.client-burst=200"),
)
MANY: Final = Size(idle_groups=33)
SIZES: Final = {"few": Size(), "one": MANY, "three": replace(MANY, namespaces=3)}
TINY: Final = Size(
    namespaces=3, idle_groups=1, idle_pods=1, moving_groups=2, moving_pods=1, idle_s=0.1
)
MANY_MIB: Final = 120.0
# Of three namespaces against one with the same pods.
MEMORY_RATIO: Final = 1.1
# As of one group alone, see `rollout`. What a policy does is recorded first: half as much again.
MEDIAN_MS: Final = {"label": 50.0, "policy": 75.0}
P99_MS: Final = 500.0


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """How the operator begins where there is nothing to record any more."""

    ready_s: float
    ready_cpu_s: float
    rss_mib: float
    """After some seconds without an event."""
    most_mib: float
    requests: Counter[str]


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the groups that moved."""

    label_ms: Sequence[float]
    policy_ms: Sequence[float]
    """Reactions, in milliseconds."""
    starved_ms: float
    """For how long the operator wanted a core and had none, for each replaced pod."""
    cpu_ms: float
    """For each replaced pod."""
    violations: int


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What one setting showed."""

    size: Size
    start: Start
    moves: Moves


async def measure(*, small: bool) -> Result:
    """Measure each setting on a control plane of its own. Raises NoControlPlaneError."""
    sizes = dict.fromkeys(SIZES, TINY) if small else SIZES
    measured = {size: await _measure(size) for size in dict.fromkeys(sizes.values())}
    found = {name: measured[size] for name, size in sizes.items()}
    figures = [each for name, one in found.items() for each in _describe(name, one)]
    setting = {
        "namespaces": [size.namespaces for size in sizes.values()],
        "pods": [size.pods for size in sizes.values()],
        "pod_ready_after_s": PODS.ready_after.total_seconds(),
        "pod_terminates_after_s": PODS.terminates_after.total_seconds(),
    }
    return Result(benchmark="namespaces", setting=setting, figures=[*figures, *_compare(found)])


async def _measure(size: Size) -> Setting:
    async with open_plane() as plane, open_worlds(plane, size) as worlds:
        groups = await create_groups(worlds, size)
        async with OperatorProcess(_launch(worlds)) as operator:
            await operator.wait_ready()
            await wait_decided(worlds)
            await operator.terminate()
            start = await _measure_start(plane, operator, worlds[0], size.idle_s)
            moves = await _measure_moves(
                plane, operator, [one for one in groups if not one.is_idle]
            )
            return Setting(size=size, start=start, moves=moves)


def _launch(worlds: Sequence[World]) -> Launch:
    home = worlds[0]
    variables = {
        "WATCH_NAMESPACE": ",".join(world.namespace for world in worlds),
        "POD_NAMESPACE": home.namespace,
    }
    return replace(home.launch(*FLAGS), command=OPERATOR, namespace="", env=variables)


async def _measure_start(
    plane: ControlPlane, operator: OperatorProcess, home: World, idle_s: float
) -> Start:
    begun = plane.audit_size()
    operator.start()
    ready = await operator.wait_ready()
    cpu = read_time(operator.child.pid).cpu
    await asyncio.sleep(idle_s)
    memory = read_memory(operator.child.pid)
    await home.judge.settle()
    return Start(
        ready_s=ready.total_seconds(),
        ready_cpu_s=cpu,
        rss_mib=memory["now"],
        most_mib=memory["most"],
        requests=count_requests(plane.read_audit(begun)[0], home.user),
    )


async def _measure_moves(
    plane: ControlPlane, operator: OperatorProcess, groups: Sequence[Placed]
) -> Moves:
    begun, before = plane.audit_size(), read_time(operator.child.pid)
    for group in groups:
        await _move(group)
    after = read_time(operator.child.pid)
    worlds = {one.world.namespace: one.world for one in groups}.values()
    violations = [each for world in worlds for each in await world.judge.violations()]
    entries, _ = plane.read_audit(begun)
    pods = sum(3 * one.pods for one in groups)
    by_policy = {
        has_policy: [
            each
            for one in groups
            if one.has_policy is has_policy
            for each in _list_reactions(entries, one)
        ]
        for has_policy in (False, True)
    }
    return Moves(
        label_ms=by_policy[False],
        policy_ms=by_policy[True],
        starved_ms=(after.starved - before.starved) * 1000 / pods,
        cpu_ms=(after.cpu - before.cpu) * 1000 / pods,
        violations=len(violations),
    )


async def _move(group: Placed) -> None:
    api, namespace = group.world.api, group.world.namespace
    await set_image(api, namespace, group.names, "v2")
    await wait_adopted(api, namespace, group.names, LIMIT)


def _list_reactions(entries: Sequence[Json], group: Placed) -> list[float]:
    """Return in how many milliseconds each delete followed the write that allowed it."""
    mine = [
        entry
        for entry in entries
        if (target := entry.get("objectRef", {})).get("namespace") == group.world.namespace
        and target.get("name", "").startswith(f"{group.name}-")
    ]
    user = group.world.judge.operator_user
    return [each.whole * 1000 for each in read_rollout(mine, user, group.names, 1).reactions]


def _describe(name: str, found: Setting) -> list[Figure]:
    return [
        Figure(name=f"{name}_{each.name}", value=each.value, means=each.means, at_most=each.at_most)
        for each in (*_describe_start(found), *_describe_moves(found.moves))
    ]


def _describe_start(found: Setting) -> list[Figure]:
    start, size = found.start, found.size
    requests = {what: count for what, count in start.requests.items() if "events" not in what}
    return [
        Figure(
            name="rss_idle_mib",
            value=start.rss_mib,
            means=f"resident memory after {size.idle_s:g} s without an event, {size.pods} pods in"
            f" {size.namespaces} namespaces",
            at_most=MANY_MIB,
        ),
        Figure(name="rss_most_mib", value=start.most_mib, means="the most it ever was until then"),
        Figure(name="ready_s", value=start.ready_s, means="from its start until /ready says yes"),
        Figure(
            name="ready_cpu_s", value=start.ready_cpu_s, means="CPU time of its main thread then"
        ),
        Figure(
            name="requests",
            value=sum(requests.values()),
            means="requests of a start where each status is right already, and of the idle seconds",
        ),
        *(
            Figure(name=name, value=requests.get(what, 0), means=f"of these: {what}")
            for name, what in (("set_reads", "get statefulsets"), ("node_lists", "list nodes"))
        ),
    ]


def _describe_moves(moves: Moves) -> list[Figure]:
    reactions = {"label": moves.label_ms, "policy": moves.policy_ms}
    figures = [
        figure
        for engine, each in reactions.items()
        for figure in (
            Figure(
                name=f"{engine}_median_ms",
                value=median(each),
                means="from the API server's receiving the write that allows a delete to its"
                f" receiving the delete, groups by {engine}",
                at_most=MEDIAN_MS[engine],
            ),
            Figure(
                name=f"{engine}_p99_ms",
                value=percentile(each, 0.99),
                means="the same, as 99 of 100 are at most",
                at_most=P99_MS,
            ),
        )
    ]
    return [
        *figures,
        Figure(
            name="cpu_ms_per_pod",
            value=moves.cpu_ms,
            means="CPU time of the operator for each replaced pod",
        ),
        Figure(
            name="starved_ms_per_pod",
            value=moves.starved_ms,
            means="for how long it wanted a core and had none, for each replaced pod",
        ),
        Figure(name="violations", value=moves.violations, means="broken promises", at_most=0),
    ]


def _compare(found: Mapping[str, Setting]) -> list[Figure]:
    few, one, three = (found[name] for name in ("few", "one", "three"))
    return [
        Figure(
            name="memory_ratio",
            value=three.start.rss_mib / one.start.rss_mib,
            means="resident memory with three namespaces by that with one, the same pods",
            at_most=MEMORY_RATIO,
        ),
        *(
            Figure(
                name=f"{engine}_ratio",
                value=median(after) / median(before),
                means=f"reaction of groups by {engine} in three namespaces beside many others, by"
                " that of the same groups alone",
            )
            for engine, before, after in (
                ("label", few.moves.label_ms, three.moves.label_ms),
                ("policy", few.moves.policy_ms, three.moves.policy_ms),
            )
        ),
    ]
