"""`status`, `wait` and `explain` on the real control plane, with rights to read and no others."""

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
from rollout_lab.zones import three_zones

from rollout_operator import __version__
from rollout_operator.model.names import ExitCode
from tests.system.grants import READER, Grant, grant_reads
from tests.terminal import on_terminal, read_until
from tests.world.api import PODS, ROLES, SERVICES, STATEFULSETS, Json, Resource
from tests.world.forkserver import run_program
from tests.world.judge import Judge
from tests.world.sets import PAUSED, is_ready
from tests.world.world import World

pytestmark = pytest.mark.controlplane

LIMIT_S: Final = 60.0
ENDPOINTS: Final = Resource("v1", "endpoints")
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io/v1", "endpointslices")
RIGHTS: Final[Sequence[Grant]] = (("list", "statefulsets"), ("list", "pods"))
READS: Final = frozenset({"list", "get"})


@pytest.mark.slow
async def test_d_76_a_reader_sees_all_and_scripts_wait(world: World) -> None:
    """Each exit code of `wait`, once; what is shown agrees with the objects; nothing is written."""
    names = await world.create(*three_zones(replicas=2))
    person = Person(await grant_reads(world, RIGHTS))
    judge = Judge(world.plane, world.namespace, f"system:serviceaccount:{world.namespace}:{READER}")
    async with judge:
        # Without an operator.
        shown = await person.run_command("status")
        assert "ingester  rolled out  6/6 ready  6/6 updated" in shown
        assert "operator not reached: " in shown
        assert "this is computed from the objects" in shown
        assert "rolled out" in await person.run_command("wait", "-timeout=1m")
        assert "ingester-zone-c      2/2" in await asyncio.to_thread(person.watch)

        await world.set_image(names, "v2")
        reported = await person.run_command("wait", "-timeout=3s", code=ExitCode.TIMED_OUT)
        assert "0/6 updated" in reported
        assert "operator not reached: " in reported
        assert reported.endswith("not rolled-out within 3s\n")
        assert "goes now" in " ".join(
            (await person.run_command("explain", f"{names[0]}-0")).split()
        )
        later = await person.run_command("explain", f"pod/{names[2]}-0")
        assert "cannot go yet" in " ".join(later.split())

        # With one: it waits until the last revision is recorded.
        operator = await world.operator()
        await person.run_command("wait", "-timeout=2m")
        if await serve(world, operator.port):
            shown = await person.run_command("status")
            assert f"operator {__version__}: ready, acts" in shown, shown
            assert "computed" not in shown
            assert "left out" not in shown
        for name in names:
            status = (await world.get(STATEFULSETS, name))["status"]
            assert status["currentRevision"] == status["updateRevision"]
        found = json.loads(await person.run_command("status", "-o=json"))
        assert describe(found) == await count_pods(world, names)

        for name in names:
            await world.annotate(name, **{PAUSED: "true"})
        await world.set_image(names, "v3")
        reported = await person.run_command("wait", "-timeout=2m", code=ExitCode.NEEDS_A_PERSON)
        assert "group ingester: held" in reported
        assert reported.endswith("a person has to change something for group ingester\n")

        await person.run_command("status", "-context=wrld", code=ExitCode.FAILED)
        assert "did you mean world?" in person.errors
        await person.run_command("status", "-n=default", code=ExitCode.FAILED)
        assert 'grant verb list on \\"statefulsets\\"' in json.dumps(person.errors)
        assert {call.verb for call in await judge.calls()} <= READS
    await world.judge.assert_clean()


class Person:
    """Types commands, with a kubeconfig in the environment."""

    def __init__(self, kubeconfig: Path) -> None:
        self._environ = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        self.errors = ""

    async def run_command(self, *words: str, code: int = 0) -> str:
        """Run a command, which ends with this code; return what it shows."""
        ended = await asyncio.to_thread(run_program, *words, env=self._environ, limit_s=LIMIT_S)
        self.errors = ended.stderr
        assert ended.returncode == code, ended
        return ended.stdout

    def watch(self) -> str:
        """Look live on a terminal until it shows pods, and end it by Ctrl-C."""
        command = (sys.executable, "-m", "rollout_operator", "status", "-w")
        with on_terminal(command, KUBECONFIG=self._environ["KUBECONFIG"]) as (process, master):
            shown = read_until(master, "updated, ready")
            os.write(master, b"\x03")
            assert process.wait(LIMIT_S) == 0
        return re.sub(r"\x1b\[[0-9;]*m", "", shown)


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
    endpoints: Json = {
        "addresses": [address],
        "conditions": {"ready": True},
        "targetRef": target,
    }
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


def describe(found: Json) -> dict[str, tuple[int, int]]:
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
