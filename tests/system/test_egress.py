"""Whom the operator connects to before a downscale: its own pods, whatever tenants have written."""

from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.system.guarded import PATH, PREPARE, Guarded, guard, prepared_zone
from tests.world.clients import Route
from tests.world.egress import EgressTrap, Place
from tests.world.outreach import judge_outreach
from tests.world.webpods import BROKEN, redirect
from tests.world.world import World

pytestmark = pytest.mark.controlplane

PORT_KEY: Final = f"{PREPARE}-http-port"
PATH_KEY: Final = f"{PREPARE}-http-path"


def _ports(place: Place) -> Iterator[str]:
    """Yield ports that a lenient reader takes for a place, or for nothing at all."""
    there = f"{place.address}:{place.port}"
    yield from (f"80@{there}", f":@{there}", f"80/{there}", f"80#@{there}", f"80\\@{there}")
    yield from (f"80\r\nHost: {there}", f" {place.port}", f"0x{place.port:x}", "65536", "٨٠", "")


def _paths(place: Place) -> Iterator[str]:
    """Yield paths that a lenient reader takes for another place, or for another path there."""
    there = f"{place.address}:{place.port}"
    number = int(IPv4Address(place.address))
    yield from (f"http://{there}/x", f"//{there}/x", f"@{there}/x", f"\\\\{there}\\x")
    yield from (f"x\r\nHost: {there}", f"x HTTP/1.1\r\n\r\nGET http://{there}/", "x/../y", "..")
    yield from (f"{number}:{place.port}", "%2e%2e/x", "x?a=b", "x#a", "x%0d%0aHost:%20y", "x" * 257)


async def _request(guarded: Guarded, set_name: str, route: Route) -> str:
    """Return what is wrong with the answer, empty where it is a refusal with its reason."""
    answer = await guarded.workload(set_name).scale(1, route)
    if not 400 <= answer.status < 500:
        return f"{answer}"
    is_plain = answer.message.isprintable() and len(answer.message) < 4500
    return "" if is_plain and "is not allowed because" in answer.message else answer.message


async def test_sec10_no_annotation_leads_anywhere_else(world: World) -> None:
    """SEC-10, SEC-11, SI-21, D-27: ports and paths, and redirects, on real objects.

    Hundreds more, and names of Services that today's API server does not store (SEC-12):
    `tests/planning/downscales/test_endpoint.py`.
    """
    async with EgressTrap(Place("127.0.0.1", 0), count=2) as trap:
        pods = await world.serve_pods()
        guarded = await guard(
            world, prepared_zone(pods, ZoneSpec(name="a", group=None, replicas=2)), pods=pods
        )
        pods.behave("a-1", BROKEN, method="POST")
        place = trap.places[-1]
        vectors = [{PORT_KEY: port, PATH_KEY: PATH} for port in _ports(place)]
        vectors += [{PORT_KEY: f"{pods.port}", PATH_KEY: path} for path in _paths(place)]
        wrong = []
        for number, annotations in enumerate(vectors):
            await world.annotate("a", **annotations)
            route = (Route.MERGE, Route.SCALE_MERGE)[number % 2]
            if text := await _request(guarded, "a", route):
                wrong.append((annotations, text))
        assert wrong == []
        assert pods.calls == [], "SI-21: none of them names a pod's endpoint"

        good = {PORT_KEY: f"{pods.port}", PATH_KEY: PATH}
        await world.annotate("a", **good)
        for place in trap.places:
            for status in (301, 302, 303, 307, 308):
                url = f"http://{place.address}:{place.port}/x"
                pods.behave("a-1", redirect(url, status), method="POST")
                assert await _request(guarded, "a", Route.MERGE) == ""
        pods.behave_well("a-1")
        assert (await guarded.workload("a").scale(1, Route.MERGE)).status == 200
        assert await judge_outreach(world.judge, pods.calls, [f"/{PATH}"]) == []
        await trap.settle()
        trap.assert_silent()
        assert "Traceback" not in guarded.operator.log.read_text()
