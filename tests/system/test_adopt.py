"""`adopt` on the real control plane: what it prints is pasted, and no pod is replaced for it."""

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Final

import msgspec
import pytest
import yaml
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.model.names import ExitCode
from tests.demo.kept import write_kubeconfig
from tests.system.grants import READER, grant_reads
from tests.world.api import PODS, STATEFULSETS, Json, Resource
from tests.world.forkserver import run_program
from tests.world.judge import Judge
from tests.world.kubectl import locate_kubectl
from tests.world.world import World

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

REVISIONS: Final = Resource("apps/v1", "controllerrevisions")
APP: Final = {"app": "db"}
ZONES: Final = tuple(
    ZoneSpec(name=f"db-{zone}", group=None, replicas=2, strategy="RollingUpdate", pod_labels=APP)
    for zone in "abc"
)
NAMES: Final = [zone.name for zone in ZONES]
REFUSED: Final = "rollingUpdate: Invalid value"
READ_LIMIT_S: Final = 60


async def test_plain_zones_are_adopted_rolled_out_and_left_again(world: World) -> None:
    """No pod and no revision comes of it; then images roll zone by zone, until it is undone."""
    shell = await open_shell(world)
    # As most manifests are: of updateStrategy they say nothing.
    write_base(shell.folder, world.namespace)
    await shell.run("kubectl apply -k base")
    await world.wait_ready(NAMES)
    before = await map_identities(world)
    account = f"system:serviceaccount:{world.namespace}:{READER}"
    async with Judge(world.plane, world.namespace, account) as judge:
        text = await shell.adopt()
        await write_overlay(shell)
        assert {call.verb for call in await judge.calls()} <= {"get", "list"}
    assert "replaces no pod: " in text

    # What is said of the order: without the patches, Git alone is refused.
    for how in ("", "--server-side --force-conflicts"):
        assert REFUSED in await shell.run(f"kubectl apply {how} -k overlay", is_refused=True)
    await shell.run(text.partition("\n# 1. ")[2].partition("\n")[2].partition("\n# 2. ")[0])
    await shell.run("kubectl apply -k overlay")
    await shell.run("kubectl apply --server-side --force-conflicts -k overlay")
    await world.wait_adopted(NAMES)
    assert await map_identities(world) == before
    assert "under the operator already" in await shell.adopt()

    await world.operator()
    await world.roll(NAMES, "v2")
    done = [one.name for one in await world.judge.deletes() if one.is_done]
    assert done == [f"{name}-{ordinal}" for name in NAMES for ordinal in range(2)]

    before = await map_identities(world)
    back = [line[2:] for line in text.splitlines() if line.startswith("# kubectl ")]
    await shell.run("\n".join(back))
    await world.wait_ready(NAMES)
    assert await map_identities(world) == before
    for name in NAMES:
        found = await world.get(STATEFULSETS, name)
        assert found["spec"]["updateStrategy"]["type"] == "RollingUpdate"
        assert found["metadata"]["labels"] == {"name": name}
    gone = len(await world.judge.deletes())
    await world.roll(NAMES, "v3")
    assert len(await world.judge.deletes()) == gone
    await world.judge.assert_clean()


class Shell(msgspec.Struct, frozen=True):
    """A folder where commands are pasted, with all rights; `adopt` itself may only read."""

    folder: Path
    namespace: str
    admin: Path
    reader: Path

    async def adopt(self, *words: str) -> str:
        """Return what the command prints."""
        command = ("adopt", f"-n={self.namespace}", *words)
        env = {**os.environ, "KUBECONFIG": str(self.reader)}
        ended = await asyncio.to_thread(run_program, *command, env=env, limit_s=READ_LIMIT_S)
        assert ended.returncode == ExitCode.DONE, ended.stderr
        return ended.stdout

    async def run(self, script: str, *, is_refused: bool = False) -> str:
        """Run lines until one fails; return what was said."""
        ended = await self._run("bash", "-e", "-c", script)
        said = ended.stdout + ended.stderr
        assert (ended.returncode != 0) == is_refused, said
        return said

    async def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join((str(locate_kubectl()), os.environ["PATH"]))
        return await asyncio.to_thread(
            subprocess.run,
            command,
            cwd=self.folder,
            env={**os.environ, "KUBECONFIG": str(self.admin), "PATH": path},
            capture_output=True,
            text=True,
            timeout=READ_LIMIT_S,
            check=False,
        )


async def open_shell(world: World) -> Shell:
    """Return a shell in the world's folder, and the account that reads."""
    reader = await grant_reads(world, [("list", "statefulsets")])
    return Shell(world.folder, world.namespace, write_kubeconfig(world), reader)


def write_base(folder: Path, namespace: str) -> None:
    """Write what a person keeps in Git: three zones."""
    objects: list[Json] = []
    for zone in ZONES:
        tree: Json = statefulset(zone, namespace)
        del tree["spec"]["updateStrategy"]
        objects.append(tree)
    base = folder / "base"
    base.mkdir()
    (base / "all.yaml").write_text(yaml.safe_dump_all(objects))
    (base / "kustomization.yaml").write_text(
        yaml.safe_dump({"namespace": namespace, "resources": ["all.yaml"]})
    )


async def write_overlay(shell: Shell) -> None:
    """Write the component that is proposed, and an overlay that has it."""
    (shell.folder / "adopted").mkdir()
    (shell.folder / "adopted" / "kustomization.yaml").write_text(await shell.adopt("-o=yaml"))
    (shell.folder / "overlay").mkdir()
    (shell.folder / "overlay" / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {"namespace": shell.namespace, "resources": ["../base"], "components": ["../adopted"]}
        )
    )


async def map_identities(world: World) -> dict[str, str]:
    """Return the UIDs of all pods, and of all revisions of their sets."""
    return {
        one["metadata"]["name"]: one["metadata"]["uid"]
        for kind in (PODS, REVISIONS)
        for one in await world.api.items(kind, world.namespace)
    }
