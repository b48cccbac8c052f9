"""How close a rollout comes to what its pods' own restarts take, on a real control plane.

The operator runs as a process under the shipped Role, with default flags. All times come from the
audit log; see `timeline`. A judge that watches from outside counts broken promises.
"""

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
import yaml
from rollout_lab.zones import three_zones

from benchmarks.figures import Figure, Result, median, percentile
from benchmarks.processes import read_time
from benchmarks.timeline import Json, Rollout, count_requests, read_rollout
from tests.world.assets import locate_assets
from tests.world.kubelet import Behaviour, always
from tests.world.plane import AUDIT_POLICY, CONTROLLERS, KUBELET, ControlPlane
from tests.world.sets import set_image, wait_adopted
from tests.world.world import World

RATIO: Final = 1.15
MEDIAN_MS: Final = 50.0
P99_MS: Final = 500.0

PODS: Final = Behaviour(
    ready_after=timedelta(milliseconds=500), terminates_after=timedelta(milliseconds=200)
)
ROLLED_LIMIT: Final = timedelta(minutes=3)

# The bodies of both writes that tell of a pod's return, beside what the judge asks for.
STATUS_RULES: Final[list[Json]] = [
    {
        "level": "Request",
        "users": [KUBELET],
        "verbs": ["patch"],
        "resources": [{"group": "", "resources": ["pods/status"]}],
    },
    {
        "level": "Request",
        "users": [CONTROLLERS],
        "verbs": ["update"],
        "resources": [{"group": "apps", "resources": ["statefulsets/status"]}],
    },
]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout."""

    rollout: Rollout
    requests: Counter[str]
    violations: int
    cpu: float
    """Seconds of the operator, from the new template until all is recorded."""
    starved: float
    """Seconds for which it wanted a core and had none."""


async def measure(*, small: bool, size: int = 10) -> Result:
    """Measure one rollout for each limit, of so many pods of a zone. Raises NoControlPlaneError."""
    replicas, limits = (1, (1,)) if small else (size, (1, 3))
    figures: list[Figure] = []
    async with open_plane() as plane:
        for limit in limits:
            figures += _describe(limit, await _roll(plane, replicas, limit))
    setting = {
        "zones": 3,
        "replicas": replicas,
        "limits": list(limits),
        "pod_ready_after_s": PODS.ready_after.total_seconds(),
        "pod_terminates_after_s": PODS.terminates_after.total_seconds(),
    }
    return Result(benchmark="rollout", setting=setting, figures=figures)


@asynccontextmanager
async def open_plane() -> AsyncIterator[ControlPlane]:
    """Start a control plane whose audit log tells all that `timeline` reads."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        policy = Path(folder) / "audit.yaml"
        shipped = yaml.safe_load(AUDIT_POLICY.read_text("utf-8"))
        policy.write_text(yaml.safe_dump(shipped | {"rules": STATUS_RULES + shipped["rules"]}))
        async with ControlPlane(
            locate_assets(), flags={"audit-policy-file": str(policy)}
        ).running() as plane:
            yield plane


async def _roll(plane: ControlPlane, replicas: int, limit: int) -> Run:
    async with World(plane, plane.folder, always(PODS)) as world:
        zones = three_zones(replicas=replicas, max_unavailable=limit)
        names = await world.create(*zones)
        operator = await world.operator()
        before, offset = read_time(operator.child.pid), plane.audit_size()
        await set_image(world.api, world.namespace, names, "v2")
        await wait_adopted(world.api, world.namespace, names, ROLLED_LIMIT)
        after = read_time(operator.child.pid)
        violations = await world.judge.violations()  # the audit log is whole after that
        entries = [
            entry
            for entry in plane.read_audit(offset)[0]
            if entry.get("objectRef", {}).get("namespace") == world.namespace
        ]
        return Run(
            rollout=read_rollout(entries, world.user, names, limit),
            requests=count_requests(entries, world.user),
            violations=len(violations),
            cpu=after.cpu - before.cpu,
            starved=after.starved - before.starved,
        )


def _describe(limit: int, run: Run) -> Sequence[Figure]:
    """Return the figures of one rollout; targets are those of the limit that all start with."""
    figures = [*_describe_times(run), *_describe_costs(run), *_describe_safety(limit, run)]
    return [
        Figure(
            name=f"limit_{limit}_{figure.name}",
            value=figure.value,
            means=figure.means,
            at_most=figure.at_most,
        )
        for figure in figures
    ]


def _describe_times(run: Run) -> list[Figure]:
    rollout = run.rollout
    reactions = [each.whole * 1000 for each in rollout.reactions]
    server = [each.server * 1000 for each in rollout.reactions]
    return [
        Figure(
            name="wall_s",
            value=rollout.wall,
            means="from the first new template until the last pod counts as back",
        ),
        Figure(
            name="floor_s",
            value=rollout.floor,
            means="what the restarts alone took, each from its delete until its zone counts it",
        ),
        Figure(
            name="ratio",
            value=rollout.wall / rollout.floor,
            means="the first of these by the second",
            at_most=RATIO,
        ),
        Figure(
            name="reactions",
            value=len(reactions),
            means="deletes that a status write allowed; the very first ones a template allows",
        ),
        Figure(
            name="reaction_median_ms",
            value=median(reactions),
            means="from the API server's receiving the write that allows a delete to its receiving"
            " the delete; committing and telling of the write included",
            at_most=MEDIAN_MS,
        ),
        Figure(
            name="reaction_p99_ms",
            value=percentile(reactions, 0.99),
            means="the same, as 99 of 100 are at most",
            at_most=P99_MS,
        ),
        Figure(name="reaction_max_ms", value=max(reactions), means="the longest of them"),
        Figure(
            name="reaction_server_median_ms",
            value=median(server),
            means="of these, how long the API server was at that write and at the live look",
        ),
        Figure(
            name="reaction_starved_mean_ms",
            value=run.starved * 1000 / len(rollout.restarts),
            means="for how long a replaced pod the operator wanted a core of the machine and had"
            " none, reactions and all else: near zero on a machine that has nothing else to do",
        ),
    ]


def _describe_costs(run: Run) -> list[Figure]:
    replaced = len(run.rollout.restarts)
    calls: Mapping[str, int] = {
        what: count
        for what, count in run.requests.items()
        if not what.startswith("watch ") and not what.endswith(" events")
    }
    figures = [
        Figure(
            name="requests_per_pod",
            value=sum(calls.values()) / replaced,
            means="requests of the operator by replaced pod, without watches and Events",
        )
    ]
    figures += [
        Figure(
            name=f"{'_'.join(what.replace('/', ' ').split())}_per_pod",
            value=count / replaced,
            means=f"of these: {what}",
        )
        for what, count in sorted(calls.items())
    ]
    watches = sum(count for what, count in run.requests.items() if what.startswith("watch "))
    events = sum(count for what, count in run.requests.items() if what.endswith(" events"))
    return [
        *figures,
        Figure(
            name="events_per_pod",
            value=events / replaced,
            means="Events written by replaced pod, with those of its zone; no delete waits for one",
        ),
        Figure(name="watches", value=watches, means="watches opened meanwhile"),
        Figure(
            name="cpu_ms_per_pod",
            value=run.cpu * 1000 / replaced,
            means="processor time of the operator by replaced pod, all events of it included",
        ),
    ]


def _describe_safety(limit: int, run: Run) -> list[Figure]:
    return [
        Figure(name="replaced", value=len(run.rollout.restarts), means="replaced pods"),
        Figure(
            name="zones_short",
            value=run.rollout.zones_short,
            means="the most zones with a pod down at any time",
            at_most=1,
        ),
        Figure(
            name="pods_down",
            value=run.rollout.pods_down,
            means="the most pods of a zone down at any time",
            at_most=limit,
        ),
        Figure(
            name="violations",
            value=run.violations,
            means="safety invariants that a judge saw broken",
            at_most=0,
        ),
    ]
