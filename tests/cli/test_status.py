"""`status`: its words, its formats, and what it writes where (D-76)."""

import asyncio
import io
import json
from pathlib import Path

import pytest
from rollout_lab.zones import three_zones

from rollout_operator.cli.render import read_output
from rollout_operator.cli.status import STATUS_FLAGS, render_json, report_changes, show
from rollout_operator.config.grammar import parse_mixed
from rollout_operator.kube.api import JsonObject
from rollout_operator.model.description import SCHEMA_VERSION
from rollout_operator.model.names import ApiError, Denied, InvalidInput, Unreachable
from rollout_operator.operator.inspect import Inspection
from tests.cli.kubeconfig import write_kubeconfig
from tests.kube.fake_api import FakeApi, refuse, reply
from tests.operator.diagnosis.inspected import ObservedCluster, observed_cluster
from tests.virtual_time import VirtualClock, in_virtual_time
from tests.web.status.descriptions import describe, group

SETS = "/apis/apps/v1/namespaces/mimir/statefulsets"
PODS = "/api/v1/namespaces/mimir/pods"
EMPTY: JsonObject = {"metadata": {"resourceVersion": "1"}, "items": []}
ZONES = three_zones(replicas=2)


def test_json_is_the_description() -> None:
    example = describe(group())
    one = json.loads(render_json([example], is_everywhere=False))
    assert (one["schema_version"], one["namespace"]) == (SCHEMA_VERSION, "prod")
    assert one["groups"][0]["phase"] == "waiting"

    assert json.loads(render_json([example], is_everywhere=True)) == [one]


async def run(server: FakeApi, folder: Path, *words: str) -> str:
    """Run the command on a fake API server; return what it shows."""
    stream = io.StringIO()
    parsed = parse_mixed(
        STATUS_FLAGS, [f"-kubeconfig={write_kubeconfig(folder / 'config', server.url)}", *words]
    )
    await show(parsed, read_output(stream, {}))
    return stream.getvalue()


async def test_d_76_rights_to_list_sets_and_pods_are_enough(tmp_path: Path) -> None:
    """What else is requested may be refused or missing."""
    async with FakeApi() as server:
        server.on("GET", SETS, reply(EMPTY))
        server.on("GET", PODS, reply(EMPTY))
        server.on("GET", "/api/v1/namespaces/mimir", refuse(403, "Forbidden", ""))
        budgets = "/apis/rollout-operator.grafana.com/v1/namespaces/mimir"
        server.on("GET", f"{budgets}/zoneawarepoddisruptionbudgets", refuse(403, "Forbidden", ""))
        text = await run(server, tmp_path)
        assert "namespace mimir  0 rollout groups" in text
        assert "budgets are left out: cannot list zoneawarepoddisruptionbudgets" in text
        assert "operator not reached" in text
        methods = {request.method for request in server.requests}
        assert methods == {"GET"}

        with pytest.raises(InvalidInput, match="rollout group ingester not found in namespace"):
            await run(server, tmp_path, "-group=ingester")
        server.on("GET", "/apis/apps/v1/statefulsets", reply(EMPTY))
        assert await run(server, tmp_path, "-A") == "no rollout groups found\n"


async def test_without_these_rights_it_is_an_error(tmp_path: Path) -> None:
    async with FakeApi() as server:
        server.on("GET", SETS, refuse(403, "Forbidden", "no"))
        with pytest.raises(Denied, match='grant verb list on "statefulsets"'):
            await run(server, tmp_path)


class InspectionSource:
    """What `-w` reads, which fails where a test wants it."""

    def __init__(self, world: ObservedCluster) -> None:
        self._inspector = world.inspector()
        self.error: ApiError | None = None

    async def inspect(self, *, is_fresh: bool = True) -> list[Inspection]:
        if self.error is not None:
            raise self.error
        return [await self._inspector.inspect(is_fresh=is_fresh)]


@in_virtual_time
async def test_without_a_terminal_only_what_changes_is_written() -> None:
    async with observed_cluster(*ZONES) as world:
        lines: list[str] = []
        source = InspectionSource(world)
        task = asyncio.ensure_future(report_changes(source, VirtualClock(), lines.append))
        await VirtualClock().sleep(world.patience)
        assert len(lines) == 4, "a group and its zones"
        assert lines[1].endswith(" zone ingester-zone-a: 2/2 ready, 2/2 updated\n")

        lines.clear()
        source.error = Unreachable("refused")
        await VirtualClock().sleep(world.patience)
        source.error = None
        await VirtualClock().sleep(world.patience)
        assert [line[9:] for line in lines] == ["not read: refused\n", "the error is gone\n"]

        lines.clear()
        world.sandbox.cluster.fail_pod("ingester-zone-b-1")
        await VirtualClock().sleep(world.patience)
        assert {line[9:].partition(":")[0] for line in lines} == {
            "group ingester",
            "zone ingester-zone-b",
        }
        task.cancel()
        await asyncio.wait([task])
