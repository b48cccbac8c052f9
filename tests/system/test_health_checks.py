"""Health checks between zones on the real control plane, with Prometheus itself.

The pods of revision v2 make twice as many errors as those of others. Prometheus scrapes all of
them, and ranges are some seconds.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec, three_zones

from rollout_operator.model.names import HEALTH_CHECK, HEALTH_CHECK_BYPASS
from tests.system.waits import wait_line, wait_true
from tests.world.api import EVENTS, PODS, ApiError, Json, Resource
from tests.world.budgets import FOLDER, install_kinds
from tests.world.kubelet import image_of
from tests.world.prometheus import scraping, serving_metrics
from tests.world.world import World

pytestmark = pytest.mark.controlplane

HEALTH_CHECKS: Final = Resource("rollout-operator.grafana.com/v1", "rollouthealthchecks")
# Errors a second of a pod.
RATE: Final = 10
SPAN: Final = "4s"
CHECK: Final[Json] = {
    "name": "errors",
    "query": "scalar(avg(rate(errors{${targetMatchers}}[${range}])))",
    "successQuery": "${current} < bool (1.5 * ${baseline})",
    "currentRange": SPAN,
    "baselineRange": SPAN,
    "failurePolicy": {"reevaluationInterval": "2s"},
    "errorPolicy": {"retryInterval": "1s"},
    "noDataPolicy": {"retryInterval": "1s"},
}


class Errors:
    """The counters of pods: twice as fast at image v2, and at 0 for each new pod."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._since: dict[str, float] = {}

    async def show(self, pod: str) -> str:
        try:
            found = await self._world.get(PODS, pod)
        except ApiError:
            return ""
        now = asyncio.get_running_loop().time()
        since = self._since.setdefault(found["metadata"]["uid"], now)
        rate = RATE * 2 if image_of(found) == "v2" else RATE
        return f"errors {rate * (now - since)}\n"


async def bind(world: World, zones: Sequence[ZoneSpec], url: str, **spec: Any) -> list[ZoneSpec]:
    """Create a health check of the zones' group, and return the zones bound to it."""
    group = zones[0].group
    fields = {
        "selector": {"matchLabels": {"rollout-group": group}},
        "prometheusURL": url,
        "checks": [CHECK],
        **spec,
    }
    kind = {"apiVersion": HEALTH_CHECKS.api_version, "kind": "RolloutHealthCheck"}
    await world.post(HEALTH_CHECKS, {**kind, "metadata": {"name": group}, "spec": fields})
    return [replace(zone, annotations={HEALTH_CHECK: f"{group}"}) for zone in zones]


async def wait_scraped(url: str, pods: int) -> None:
    """Wait until so many pods have samples of more than a range: a rollout begins a second ago."""
    query = "count(count_over_time(errors[8s]) >= 13)"

    async def is_whole() -> bool:
        asked = f"{url}/api/v1/query?{urlencode({'query': query})}"
        with await asyncio.to_thread(urlopen, asked) as answer:
            result = json.load(answer)["data"]["result"]
        return bool(result) and int(result[0]["value"][1]) == pods

    await wait_true("samples of all pods", is_whole)


async def list_deleted(world: World, group: str) -> set[str]:
    """Return the zones of a group of which the operator has deleted pods."""
    names = [one.name for one in await world.judge.deletes() if one.is_done]
    return {name[-3] for name in names if name.startswith(f"{group}-zone-")}


async def read_check(world: World, group: str) -> Json:
    found = await world.get(HEALTH_CHECKS, group)
    [entry] = found["status"]["groups"]
    [check] = entry["checks"]
    return dict(check)


async def test_a_revision_that_doubles_the_errors_stops_after_the_first_zone(world: World) -> None:
    """HC-08: or after the first pod, where its health check says so.

    It says why with both numbers, whoever kills it, and goes on after a rollback or a bypass.
    """
    await install_kinds(world.api)
    await install_kinds(world.api, FOLDER / "health-checks")
    await world.grant("health-checks")
    zones, small = three_zones("ingester"), three_zones("small", replicas=2)[:2]
    pods = [f"{zone.name}-{number}" for zone in (*zones, *small) for number in range(3)]
    async with (
        serving_metrics(Errors(world).show) as place,
        scraping(world.folder, place, world.namespace, pods, "500ms") as url,
    ):
        names = await world.create(
            *await bind(world, zones, url), *await bind(world, small, url, firstZonePods=1)
        )
        operator = await world.operator(f"-health-checks.allowed-urls={url}")
        await wait_scraped(url, 13)

        await world.set_image(names, "v2")
        stop = "small-zone-a stops after 1 updated pod"
        await wait_line(operator, "group=small ", stop, 'check \\"errors\\" fails: current')
        said = await wait_line(operator, "group=ingester ", 'check \\"errors\\" fails: current')
        numbers = re.search(r"current ([0-9.]+), baseline ([0-9.]+)", said)
        assert numbers is not None, said
        assert [round(float(number) / RATE) for number in numbers.groups()] == [2, 1]
        assert await list_deleted(world, "ingester") == {"a"}

        for _ in range(3):
            before = (await read_check(world, "ingester"))["failures"]
            operator.kill()
            operator.start()
            await operator.wait_ready()

            async def is_counted(before: int = before) -> bool:
                return bool((await read_check(world, "ingester"))["failures"] > before)

            await wait_true("another failure", is_counted)
        assert await list_deleted(world, "ingester") == {"a"}
        held = {
            ("RolloutBlockedByHealthCheck", name) for name in ("ingester-zone-b", small[0].name)
        }
        assert held <= await list_events(world)
        deleted = [one.name for one in await world.judge.deletes() if one.is_done]
        assert sum(name.startswith("small-") for name in deleted) == 1

        await world.roll(names, "v1")
        assert await list_deleted(world, "ingester") == {"a"}

        await wait_scraped(url, 13)
        await world.roll(names, "v3")
        assert await list_deleted(world, "ingester") == {"a", "b", "c"}

        await wait_scraped(url, 13)
        await world.set_image(names, "v2")
        await world.wait_image(f"{names[0]}-2", "v2")
        until = (datetime.now(UTC) + timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
        for name in names:
            await world.annotate(name, **{HEALTH_CHECK_BYPASS: until})
        await world.wait_rolled(names)
    await world.judge.assert_clean()


async def list_events(world: World) -> set[tuple[str, str]]:
    """Return the reasons of Events, with the object of each."""
    events = await world.api.items(EVENTS, world.namespace)
    return {(one["reason"], one["regarding"]["name"]) for one in events}
