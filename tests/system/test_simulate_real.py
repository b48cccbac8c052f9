"""`simulate` on what the real control plane prints: it predicts what the real operator then does.

The prediction is made from the objects alone, before the operator has anything to do; the judge
then lists the real deletes in order.
"""

import asyncio
import json
import os
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import yaml
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS
from rollout_operator.model.names import TOPOLOGY_KEYS
from tests.prediction.comparison import compare, describe
from tests.prediction.forecasts import foresee
from tests.prediction.plans import make_plan
from tests.prediction.runs import play
from tests.system.grants import READER, grant_reads
from tests.world.api import PODS, STATEFULSETS, Json, Resource
from tests.world.budgets import install_kinds
from tests.world.forkserver import run_program
from tests.world.judge import Judge
from tests.world.kubelet import image_of
from tests.world.sets import Snapshot, is_ready
from tests.world.world import World

pytestmark = pytest.mark.controlplane

NAMES: Final = ("zone-a", "zone-b", "zone-c")
ZONE: Final = TOPOLOGY_KEYS[0]
POLICIES: Final = Resource("rollout.grafana.com/v1alpha1", MULTI_AZ_ROLLOUTS.plural)


async def test_it_predicts_the_order_of_deletes(world: World) -> None:
    """Three zones, one with a limit of 2, one with a pod that crashes at the old revision."""
    names = await _create(world)
    await world.operator()
    await world.kubelet.crash("zone-c-2")
    await _wait_unready(world, "zone-c-2")

    printed = await _simulate(await _dump(world), "image v2")
    await world.roll(names, "v2")

    assert printed["deletes"] == await _list_deletes(world)
    assert printed["deletes"][0] == "zone-c-2"
    assert len(printed["deletes"]) == 11
    assert printed["mostDown"] == {"zone-a": 2, "zone-b": 1, "zone-c": 1}
    await world.judge.assert_clean()


@pytest.mark.slow
async def test_dumps_of_a_rollout_foretell_what_is_left_of_it(world: World) -> None:
    """A few of those that `python -m tests.prediction` takes of each kind of run."""
    plan = replace(make_plan(7, "rollout"), ready_after=timedelta(seconds=1))

    moments = await play(world, plan, 4)
    printed = [
        await foresee(one.dump, one.changes, [f"-terminates-after={one.terminates_after:.2f}s"])
        for one in moments
    ]

    matches = [compare(one, moment.happened) for one, moment in zip(printed, moments, strict=True)]
    assert [len(moments[0].happened), len(moments) > 1] == [6, True]
    assert all(match.agrees for match in matches), [
        line
        for one, moment in zip(printed, moments, strict=True)
        for line in (moment.name, *describe(one, moment.happened))
    ]


async def test_it_reads_the_cluster_with_rights_to_read_alone(world: World) -> None:
    """Straight from the cluster, by an account that may list what decides in the namespace."""
    kinds = ("statefulsets", "pods", "zoneawarepoddisruptionbudgets")
    names = await _create(world)
    await world.set_image(names, "v2")
    await world.wait_until(_lack_revision)
    reader = await grant_reads(world, [("list", kind) for kind in kinds])
    account = f"system:serviceaccount:{world.namespace}:{READER}"

    async with Judge(world.plane, world.namespace, account) as judge:
        printed = await _simulate(None, KUBECONFIG=str(reader))
        calls = await judge.calls()
    await world.operator()
    await world.wait_adopted(names)

    assert printed["deletes"] == await _list_deletes(world)
    assert len(printed["deletes"]) == 11
    assert any(line.startswith("nodes are left out: ") for line in printed["leftOut"])
    assert {call.verb for call in calls} <= {"get", "list"}
    await world.judge.assert_clean()


async def test_it_foresees_a_policy_that_it_reads_from_the_cluster(world: World) -> None:
    """MT-22: by its order, read before the operator has begun, with rights to list alone."""
    await install_kinds(world.api)
    await world.grant("multi-az-rollouts")
    zones = [
        ZoneSpec(name=f"db-{one}", group=None, replicas=1, labels={"app": "db", ZONE: one})
        for one in "abc"
    ]
    names = await world.create(*zones)
    await world.post(POLICIES, _policy(azOrder=["c", "a"]))
    await world.set_image(names, "v2")
    await world.wait_until(partial(_lack_revision, names=names))
    kinds = ("statefulsets", "pods", "multiazrollouts")
    reader = await grant_reads(world, [("list", kind) for kind in kinds])

    printed = await _simulate(None, KUBECONFIG=str(reader))
    await world.operator("-multi-az-rollouts.enabled")
    await world.wait_rolled(names)

    assert printed["deletes"] == await _list_deletes(world) == ["db-c-0", "db-a-0", "db-b-0"]
    (policy,) = printed["policies"]
    assert [one["zone"] for one in policy["batches"]] == ["c", "a", "b"]
    assert policy["phase"] == "rolled out"
    await world.judge.assert_clean()


def _policy(**spec: object) -> Json:
    return {
        "apiVersion": POLICIES.api_version,
        "kind": "MultiAZRollout",
        "metadata": {"name": "db"},
        "spec": {
            "statefulSetSelector": {"matchLabels": {"app": "db"}},
            "rollingUpdate": {"intervalSeconds": 1},
            **spec,
        },
    }


async def _create(world: World) -> list[str]:
    return await world.create(
        ZoneSpec(name=NAMES[0], replicas=5, max_unavailable=2),
        ZoneSpec(name=NAMES[1]),
        ZoneSpec(name=NAMES[2]),
    )


async def _wait_unready(world: World, name: str, image: str = "v1") -> None:
    def is_down(pod: Json) -> bool:
        statuses = pod.get("status", {}).get("containerStatuses", ())
        waits = any("waiting" in one["state"] for one in statuses)
        return image_of(pod) == image and waits and not is_ready(pod)

    await world.wait_pod(name, f"down at {image}", is_down)


def _lack_revision(now: Snapshot, names: Sequence[str] = NAMES) -> str:
    """Return which set's status does not know the new template yet."""
    statuses = {name: now.sets[name]["status"] for name in names}
    late = [
        name for name, one in statuses.items() if one["updateRevision"] == one["currentRevision"]
    ]
    return f"{', '.join(late)} know no new revision" if late else ""


async def _dump(world: World) -> Path:
    """Write what the API server lists into a file, as YAML, and return it."""
    lists = [await world.api.list(kind, world.namespace) for kind in (STATEFULSETS, PODS)]
    path = world.folder / "dump.yaml"
    path.write_text(yaml.safe_dump_all(lists))
    return path


async def _simulate(dump: Path | None, *changes: str, **environ: str) -> Json:
    """Return what the command prints, for machines; without a dump of the cluster itself.

    Meanwhile the world goes on.
    """
    words = [word for change in changes for word in ("-change", change)]
    source = () if dump is None else ("-f", str(dump))
    command = ("simulate", *source, "-o", "json", *words)
    env = {**os.environ, **environ}
    ended = await asyncio.to_thread(run_program, *command, env=env, limit_s=60)
    assert ended.returncode == 0, ended.stderr
    printed: Json = json.loads(ended.stdout)
    return printed


async def _list_deletes(world: World) -> list[str]:
    return [one.name for one in await world.judge.deletes() if one.is_done]
