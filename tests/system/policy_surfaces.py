"""What people see of MultiAZRollouts: page, JSON, metrics, and the commands that read a cluster."""

import asyncio
import json
from pathlib import Path
from typing import Final

from tests.system.starts import Ended, run_words
from tests.world.api import Json
from tests.world.operatorproc import OperatorProcess
from tests.world.plane import ADMIN
from tests.world.world import World

PREFIX: Final = "rollout_operator_multiaz_"


async def assert_paused_is_shown(world: World, operator: OperatorProcess, folder: Path) -> None:
    """A group is driven by the paused policy `db`; `younger`, over the same sets, is refused."""
    await _assert_document(world, operator)
    own = f'{PREFIX}info{{namespace="{world.namespace}",name='
    metrics = await operator.metrics()
    assert f'{own}"db",phase="Paused"}} 1' in metrics
    assert f'{own}"younger",phase="Invalid"}} 1' in metrics
    refused = f'{PREFIX}blocked{{namespace="{world.namespace}",name="younger",reason="Conflict"}} 1'
    assert refused in metrics
    title = f"MultiAZRollout {world.namespace}/db"
    _, page = await operator.fetch("/status")
    assert title in page

    pod = await _run(world, folder, "explain", "pod/db-a-0")
    policy = await _run(world, folder, "explain", "multiazrollout/db")
    status = await _run(world, folder, "status")
    for ended in (pod, policy, status):
        assert ended.code == 0, ended
        assert title in ended.out, ended
        assert "[policy_paused]" in ended.out, ended
    examined = await _run(world, folder, "doctor", "-o", "json")
    found = {(one["code"], one["object"]) for one in json.loads(examined.out)["findings"]}
    assert ("policy_refused", "MultiAZRollout younger") in found, examined


async def has_series(operator: OperatorProcess, name: str) -> bool:
    """Return whether a policy has any series."""
    lines = (await operator.metrics()).splitlines()
    return any(line.startswith(PREFIX) and f'name="{name}"' in line for line in lines)


async def _assert_document(world: World, operator: OperatorProcess) -> None:
    _, text = await operator.fetch("/status.json")
    document: Json = json.loads(text)
    (group,) = document["groups"]
    assert group["policy"] == f"{world.namespace}/db"
    policies = {one["name"]: one for one in document["policies"]}
    driving, refused = policies["db"], policies["younger"]
    assert (driving["phase"], driving["code"]) == ("Paused", "policy_paused")
    assert driving["groups"] == ["db"]
    assert [zone["name"][-1] for zone in driving["zones"]] == ["a", "b", "c"]
    assert (refused["phase"], refused["reason"]) == ("Invalid", "Conflict")


async def _run(world: World, folder: Path, *words: str) -> Ended:
    """Run a command as a person would who may read everything."""
    config = folder / "reader.conf"
    if not config.exists():
        world.plane.kubeconfig(config, world.plane.tokens[ADMIN])
    env = {"KUBECONFIG": str(config), "COLUMNS": "200"}
    return await asyncio.to_thread(run_words, *words, "-n", world.namespace, env=env)
