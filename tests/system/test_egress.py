"""Whom the operator connects to before a downscale: its own pods, whatever tenants have written."""

from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Final

import pytest

from rollout_operator.lab.zones import ZoneSpec
from tests.system.guarded import PATH, PREPARE, Guarded, guard, prepared_zone
from tests.world.api import Json
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
    yield from (f"80@{there}", f"80@{there}/", f"@{there}", f":@{there}", f"{there}", f"80/{there}")
    yield from (f"80#@{there}", f"80?@{there}", f"80\\@{there}", f"80%40{there}", f"80,{there}")
    yield from (f"80 {there}", f"80\r\nHost: {there}", f"80\n{place.port}", f"{place.port}\0")
    yield from (f"{place.port} ", f" {place.port}", f"{place.port}\t", f"+{place.port}", "-1", "0")
    yield from (f"0{place.port}", f"0x{place.port:x}", f"0o{place.port:o}", f"{place.port}.0")
    yield from (
        "65536",
        "99999999999999999999",
        "1e3",
        "8_0",
        "http",
        "NaN",
        "",
        " ",
        "\uff18\uff10",
        "٨٠",
    )
    yield from (
        f"{place.port}/",
        f"{place.port}#",
        f"{place.port}?",
        "८०",
        "²",
        "80" * 5000,
        "\ud7ff",
    )


def _paths(place: Place) -> Iterator[str]:
    there = f"{place.address}:{place.port}"
    number = int(IPv4Address(place.address))
    yield from (f"http://{there}/x", f"https://{there}/x", f"HTTP://{there}", f"//{there}/x")
    yield from (f"@{there}/x", f":80@{there}/", f"x@{there}", f"\\\\{there}\\x", f"/\\{there}/x")
    yield from (
        f"x\r\nHost: {there}",
        f"x HTTP/1.1\r\n\r\nGET http://{there}/",
        "x\n",
        "x\r",
        "x\0",
    )
    yield from (
        "../x",
        "x/../y",
        "x/..",
        "./x",
        "x/./y",
        "..",
        ".",
        "x/%2e%2e/y",
        "%2e%2e/x",
        "a//b",
    )
    yield from ("x?a=b", "x#a", "x;a", "x%00", "x%0d%0aHost:%20y", "%2f%2fhost", "x/", "/", "//")
    yield from (
        "x y",
        " x",
        "x ",
        "x\ty",
        "é",
        "\uff58",
        "x\u2028y",
        "x\u202ey",
        "\ufeffx",
        "[::1]",
    )
    yield from (f"[::ffff:{place.address}]:{place.port}/x", f"{number}:{place.port}", "x:80", "a,b")
    yield from ("", "x" * 257, "x" * 100_000, "{}", "%s", "${jndi:ldap://x}", "{{7*7}}", "<b>", "'")
    yield from (
        "x|y",
        "x&y",
        "x`y`",
        "$(x)",
        "file:///etc/passwd",
        "gopher://x",
        "unix:/x.sock",
        "*",
    )


SERVICES: Final = (
    *("a.b", "localhost", "127.0.0.1", "-a", "a-", "A", "a_b", "a..b", ".", "..", "a.", "@", "a@b"),
    *("a/b", "a#b", "a?b", "a:80", "[::1]", "a%2eb", "a b", "a\r\nb", "é", "0x7f000001", "x" * 64),
    *("kubernetes.default", "x.default.svc.cluster.local", "2130706433", "*", "{}"),
)

# Odd, but each is a DNS label, and stands between two dots.
LABELS: Final = {"localhost", "0x7f000001", "2130706433"}


async def _request(guarded: Guarded, set_name: str, route: Route) -> str:
    """Return what is wrong with the answer, empty where it is a refusal with its reason."""
    answer = await guarded.workload(set_name).scale(1, route)
    if not 400 <= answer.status < 500:
        return f"{answer}"
    is_plain = answer.message.isprintable() and len(answer.message) < 4500
    return "" if is_plain and "is not allowed because" in answer.message else answer.message


async def test_sec10_no_annotation_leads_anywhere_else(world: World) -> None:
    """SEC-10, SEC-11, SI-21, D-27: over 100 ports and paths, and redirects, on real objects."""
    async with EgressTrap(Place("127.0.0.1", 0), count=2) as trap:
        pods = await world.serve_pods()
        guarded = await guard(
            world, prepared_zone(pods, ZoneSpec(name="a", group=None, replicas=2)), pods=pods
        )
        pods.behave("a-1", BROKEN, method="POST")
        place = trap.places[-1]
        vectors = [{PORT_KEY: port, PATH_KEY: PATH} for port in _ports(place)]
        vectors += [{PORT_KEY: f"{pods.port}", PATH_KEY: path} for path in _paths(place)]
        assert len(vectors) > 100
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


async def test_sec10_no_service_name_leads_anywhere_else(world: World) -> None:
    """SEC-10, SEC-12, D-27: names that today's API server stores no more are refused here too.

    They are put into what the operator reads, as an older server would send them.
    """
    pods = await world.serve_pods()
    pods.behave("", BROKEN, method="POST")
    service = "a"

    def rewrite(resource: str, found: Json) -> None:
        if resource == "statefulsets":
            found["spec"]["serviceName"] = service

    world.proxy.rewrite = rewrite
    zone = prepared_zone(pods, ZoneSpec(name="a", group=None, replicas=2))
    async with EgressTrap(count=1) as trap:
        place = f"{trap.places[0].address}:{trap.places[0].port}"
        guarded = await guard(world, zone, pods=pods, is_through_proxy=True)
        for service in (*SERVICES, place, f"x@{place}", f"{place}#", f"x.{place}/?"):
            await world.annotate("a", touched=ascii(service))
            called = len(pods.calls)
            assert await _request(guarded, "a", Route.SCALE_MERGE) == "", service
            assert (len(pods.calls) > called) is (service in LABELS), service
    assert await judge_outreach(world.judge, pods.calls, [f"/{PATH}"]) == []
