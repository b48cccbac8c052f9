"""`adopt`, `status`, `wait`, `explain`, `simulate` and shadow mode, with rights to read alone.

What they print comes true: `adopt` replaces no pod, `simulate` predicts what the operator does.
"""

import asyncio
import json
import os
import re
import socket
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import pytest
import yaml
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec, statefulset, three_zones

from rollout_operator import __version__
from rollout_operator.model.names import ExitCode
from tests.demo.kept import write_kubeconfig
from tests.system.grants import READER, Grant, grant_reads
from tests.system.starts import run_command, run_words
from tests.system.waits import read_metric, wait_reason
from tests.terminal import on_terminal, read_until
from tests.world.api import PODS, ROLES, SERVICES, STATEFULSETS, Json, Resource
from tests.world.judge import Judge
from tests.world.kubectl import KUBECTL
from tests.world.manifests import SHADOW, apply_manifests, read_manifests
from tests.world.operatorproc import Launch, OperatorProcess
from tests.world.sets import PAUSED, Snapshot, is_ready
from tests.world.world import World

pytestmark = pytest.mark.controlplane

REVISIONS: Final = Resource("apps/v1", "controllerrevisions")
APP: Final = {"app": "db"}
ZONES: Final = tuple(
    ZoneSpec(name=f"db-{zone}", group=None, replicas=2, strategy="RollingUpdate", pod_labels=APP)
    for zone in "abc"
)
NAMES: Final = [zone.name for zone in ZONES]
REFUSED: Final = "rollingUpdate: Invalid value"


@pytest.mark.slow
async def test_plain_zones_are_adopted_rolled_out_and_left_again(world: World) -> None:
    """No pod and no revision comes of it; then images roll zone by zone, until it is undone."""
    person = Person(world, await grant_reads(world, [("list", "statefulsets")]))
    # As most manifests are: of updateStrategy they say nothing.
    write_base(world.folder, world.namespace)
    await person.paste("kubectl apply -k base")
    await world.wait_ready(NAMES)
    before = await map_identities(world)
    account = f"system:serviceaccount:{world.namespace}:{READER}"
    async with Judge(world.plane, world.namespace, account) as judge:
        text = await person.run("adopt")
        write_overlay(world.folder, world.namespace, await person.run("adopt", "-o=yaml"))
        assert {call.verb for call in await judge.calls()} <= {"get", "list"}
    assert "replaces no pod: " in text

    # What is said of the order: without the patches, Git alone is refused.
    for how in ("", "--server-side --force-conflicts"):
        assert REFUSED in await person.paste(f"kubectl apply {how} -k overlay", is_refused=True)
    await person.paste(text.partition("\n# 1. ")[2].partition("\n")[2].partition("\n# 2. ")[0])
    await person.paste("kubectl apply -k overlay")
    await person.paste("kubectl apply --server-side --force-conflicts -k overlay")
    await world.wait_adopted(NAMES)
    assert await map_identities(world) == before
    assert "under the operator already" in await person.run("adopt")

    await world.operator()
    await world.roll(NAMES, "v2")
    done = [one.name for one in await world.judge.deletes() if one.is_done]
    assert done == [f"{name}-{ordinal}" for name in NAMES for ordinal in range(2)]

    before = await map_identities(world)
    back = [line[2:] for line in text.splitlines() if line.startswith("# kubectl ")]
    await person.paste("\n".join(back))
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


class Person:
    """Types our commands with rights to read alone, and pastes those of kubectl with all rights."""

    def __init__(self, world: World, kubeconfig: Path) -> None:
        self._world, self._kubeconfig = world, kubeconfig
        self.errors = ""

    async def run(self, *words: str, code: int = 0) -> str:
        """Run a command, which ends with this code; return what it shows."""
        env = {"KUBECONFIG": str(self._kubeconfig)}
        ended = await asyncio.to_thread(run_words, *words, env=env)
        self.errors = ended.err
        assert ended.code == code, ended
        return ended.out

    async def paste(self, script: str, *, is_refused: bool = False) -> str:
        """Run lines until one fails; return what was said."""
        path = os.pathsep.join((str(KUBECTL.locate().parent), os.environ["PATH"]))
        env = {"KUBECONFIG": str(write_kubeconfig(self._world)), "PATH": path}
        lines = f"cd {self._world.folder}\n{script}"
        ended = await asyncio.to_thread(run_command, "bash", "-e", "-c", lines, env=env)
        assert (ended.code != 0) == is_refused, ended
        return ended.out + ended.err

    def watch(self) -> str:
        """Look live on a terminal until it shows pods, and end it by Ctrl-C."""
        command = (sys.executable, "-m", "rollout_operator", "status", "-w")
        with on_terminal(command, KUBECONFIG=str(self._kubeconfig)) as (process, master):
            shown = read_until(master, "updated, ready")
            os.write(master, b"\x03")
            assert process.wait(LIMIT_S) == 0
        return re.sub(r"\x1b\[[0-9;]*m", "", shown)


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


def write_overlay(folder: Path, namespace: str, component: str) -> None:
    overlay = {"namespace": namespace, "resources": ["../base"], "components": ["../adopted"]}
    for name, text in (("adopted", component), ("overlay", yaml.safe_dump(overlay))):
        (folder / name).mkdir()
        (folder / name / "kustomization.yaml").write_text(text)


async def map_identities(world: World) -> dict[str, str]:
    """Return the UIDs of all pods, and of all revisions of their sets."""
    return {
        one["metadata"]["name"]: one["metadata"]["uid"]
        for kind in (PODS, REVISIONS)
        for one in await world.api.items(kind, world.namespace)
    }


LIMIT_S: Final = 60.0
ENDPOINTS: Final = Resource("v1", "endpoints")
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io/v1", "endpointslices")
RIGHTS: Final[Sequence[Grant]] = (("list", "statefulsets"), ("list", "pods"))
READS: Final = frozenset({"list", "get"})


@pytest.mark.slow
async def test_d_76_a_reader_sees_all_and_scripts_wait(world: World) -> None:
    """Each exit code of `wait`, once; what is shown agrees with the objects; nothing is written."""
    names = await world.create(*three_zones(replicas=2))
    person = Person(world, await grant_reads(world, RIGHTS))
    judge = Judge(world.plane, world.namespace, f"system:serviceaccount:{world.namespace}:{READER}")
    async with judge:
        # Without an operator.
        shown = await person.run("status")
        assert "ingester  rolled out  6/6 ready  6/6 updated" in shown
        assert "operator not reached: " in shown
        assert "this is computed from the objects" in shown
        assert "rolled out" in await person.run("wait", "-timeout=1m")
        assert "ingester-zone-c      2/2" in await asyncio.to_thread(person.watch)

        await world.set_image(names, "v2")
        reported = await person.run("wait", "-timeout=3s", code=ExitCode.TIMED_OUT)
        assert "0/6 updated" in reported
        assert "operator not reached: " in reported
        assert reported.endswith("not rolled-out within 3s\n")
        assert "goes now" in " ".join((await person.run("explain", f"{names[0]}-0")).split())
        later = await person.run("explain", f"pod/{names[2]}-0")
        assert "cannot go yet" in " ".join(later.split())

        # With one: it waits until the last revision is recorded.
        operator = await world.operator()
        await person.run("wait", "-timeout=2m")
        if await serve(world, operator.port):
            shown = await person.run("status")
            assert f"operator {__version__}: ready, acts" in shown, shown
            assert "computed" not in shown
            assert "left out" not in shown
        for name in names:
            status = (await world.get(STATEFULSETS, name))["status"]
            assert status["currentRevision"] == status["updateRevision"]
        found = json.loads(await person.run("status", "-o=json"))
        assert map_zones(found) == await count_pods(world, names)

        for name in names:
            await world.annotate(name, **{PAUSED: "true"})
        await world.set_image(names, "v3")
        reported = await person.run("wait", "-timeout=2m", code=ExitCode.NEEDS_A_PERSON)
        assert "group ingester: held" in reported
        assert reported.endswith("a person has to change something for group ingester\n")

        await person.run("status", "-context=wrld", code=ExitCode.FAILED)
        assert "did you mean world?" in person.errors
        await person.run("status", "-n=default", code=ExitCode.FAILED)
        assert 'grant verb list on \\"statefulsets\\"' in json.dumps(person.errors)
        assert {call.verb for call in await judge.calls()} <= READS
    await world.judge.assert_clean()


async def serve(world: World, port: int) -> bool:
    """Lead the operator's Service to this machine; False where it has only a loopback address."""
    address = find_address()
    if address is None:
        return False
    name: Json = {"name": "rollout-operator"}
    ports: list[Json] = [{"name": "http", "port": 8001, "targetPort": port}]
    await world.post(SERVICES, {"metadata": name, "spec": {"ports": ports}})
    listening: list[Json] = [{"name": "http", "port": port}]
    # The API server calls only what is the address of a pod of the namespace.
    pod: Json = {"metadata": name, "spec": {"containers": [{"name": "app", "image": "v1"}]}}
    await world.post(PODS, pod)
    await world.wait_pod("rollout-operator", "ready", is_ready)
    status: Json = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
    await world.api.patch(PODS, world.namespace, "rollout-operator", status, subresource="status")
    target: Json = {"kind": "Pod", "name": "rollout-operator", "namespace": world.namespace}
    behind: Json = {"ip": address, "targetRef": target}
    subset: Json = {"addresses": [behind], "ports": listening}
    await world.post(ENDPOINTS, {"metadata": name, "subsets": [subset]})
    labels: Json = {"kubernetes.io/service-name": "rollout-operator"}
    endpoints: Json = {"addresses": [address], "conditions": {"ready": True}, "targetRef": target}
    await world.post(
        ENDPOINT_SLICES,
        {
            "metadata": {**name, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [endpoints],
            "ports": listening,
        },
    )
    use: Json = {"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get"]}
    await world.patch(ROLES, READER, [{"op": "add", "path": "/rules/-", "value": use}], kind="json")
    return True


def find_address() -> str | None:
    """Return an address of this machine that the API server calls: none on loopback is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # documentation's own; nothing is sent
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if ip_address(address).is_loopback else address


def map_zones(found: Json) -> dict[str, tuple[int, int]]:
    """Return how many pods of each zone are ready and updated, as `status` has it."""
    zones = [zone for group in found["groups"] for zone in group["zones"]]
    return {zone["name"]: (zone["ready"], zone["updated"]) for zone in zones}


async def count_pods(world: World, names: list[str]) -> dict[str, tuple[int, int]]:
    """Return the same, as the objects have it."""
    statuses = {name: (await world.get(STATEFULSETS, name))["status"] for name in names}
    return {
        name: (status["readyReplicas"], status["updatedReplicas"])
        for name, status in statuses.items()
    }


async def test_it_reads_the_cluster_with_rights_to_read_alone(world: World) -> None:
    """Straight from the cluster, by an account that may list what decides in the namespace."""
    kinds = ("statefulsets", "pods", "zoneawarepoddisruptionbudgets")
    names = await _create(world)
    await world.set_image(names, "v2")
    await world.wait_until(_lack_revision)
    reader = await grant_reads(world, [("list", kind) for kind in kinds])
    account = f"system:serviceaccount:{world.namespace}:{READER}"

    async with Judge(world.plane, world.namespace, account) as judge:
        printed = json.loads(await Person(world, reader).run("simulate", "-o", "json"))
        calls = await judge.calls()
    await world.operator()
    await world.wait_adopted(names)

    deletes = await world.judge.deletes()
    assert printed["deletes"] == [one.name for one in deletes if one.is_done]
    assert len(printed["deletes"]) == 11
    assert any(line.startswith("nodes are left out: ") for line in printed["leftOut"])
    assert {call.verb for call in calls} <= {"get", "list"}
    await world.judge.assert_clean()


async def _create(world: World) -> list[str]:
    return await world.create(
        ZoneSpec(name="zone-a", replicas=5, max_unavailable=2),
        ZoneSpec(name="zone-b"),
        ZoneSpec(name="zone-c"),
    )


def _lack_revision(now: Snapshot) -> str:
    """Return which set's status does not know the new template yet."""
    statuses = {name: now.sets[name]["status"] for name in ("zone-a", "zone-b", "zone-c")}
    late = [
        name for name, one in statuses.items() if one["updateRevision"] == one["currentRevision"]
    ]
    return f"{', '.join(late)} know no new revision" if late else ""


ACCOUNT: Final = "rollout-operator-shadow"
DIFFERENCES: Final = "rollout_operator_shadow_differences_total"


async def test_si25_a_rollout_by_the_other_operator_without_a_difference(world: World) -> None:
    """SI-25, SEC-17: not one write, not one refused read; what another client does is counted."""
    names = await world.create(*three_zones())
    judge = Judge(world.plane, world.namespace, user(world))
    async with judge, OperatorProcess(await launch_shadow(world), "shadow") as shadow:
        await shadow.wait_ready()
        await wait_reason(shadow, "ingester", "all ready at the update revision")
        await world.operator()

        await world.roll(names, "v2")

        assert await count(shadow) == 0
        calls = await judge.calls(with_events=True)
        assert {call.verb for call in calls} <= {*READS, "watch"}, calls
        assert not [call for call in calls if call.code in (401, 403)]
        page = (await shadow.fetch("/status"))[1]
        assert "another operator, if any: this process is in shadow mode" in page
        assert "nothing is written; 0 differences from the operator that acts" in page
    await world.judge.assert_clean()


async def launch_shadow(world: World, *flags: str) -> Launch:
    """Return how to start an operator in shadow mode, under the Role that is shipped for it."""
    granted = [one for one in read_manifests(SHADOW) if one["kind"] != "Deployment"]
    await apply_manifests(world.api, world.namespace, granted)
    token = await world.plane.fetch_token(world.api, world.namespace, ACCOUNT)
    launch = world.launch("-mode=shadow", *flags)
    config = world.plane.kubeconfig(world.folder / "shadow.conf", token, url=launch.url)
    return replace(launch, kubeconfig=config)


def user(world: World) -> str:
    """Return the name by which the API server knows the shadow."""
    return f"system:serviceaccount:{world.namespace}:{ACCOUNT}"


async def count(shadow: OperatorProcess) -> float | None:
    return await read_metric(shadow, DIFFERENCES, rollout_group="ingester")
