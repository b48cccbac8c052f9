"""The way to the API server: by which proxy, and how many objects a page has (LI-01, D-54)."""

import asyncio
import json
import shlex

import pytest
from aiohttp import web

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import PODS, STATEFULSETS, Call
from rollout_operator.kube.client import MAX_BODY
from rollout_operator.kube.connection import SMALL_PAGES_LAST, PageSizes, choose_proxy
from rollout_operator.kube.informer import Collection, Informer
from rollout_operator.kube.store import PodStore
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.telemetry.metrics import Metrics
from tests.fakes_clock import FakeClock
from tests.kube.fake_api import POD_LIST, FakeApi
from tests.model.wire_trees import pod_tree, with_metadata
from tests.stories import check_tables

PODS_CALL = Call(verb="list", resource=PODS, namespace="prod")
SETS_CALL = Call(verb="list", resource=STATEFULSETS, namespace="prod")
COUNT = 10
# Four of them are too long.
LARGE = MAX_BODY // 3


def show_proxy(case: str) -> str:
    url, *words = shlex.split(case)
    environ = dict(word.split("=", 1) for word in words)
    for name in environ:
        environ[name] = environ[name].replace("PROXY", "http://proxy.example.org:3128")
    found = choose_proxy(url, environ)
    return "directly" if found is None else f"by {found}"


test_by_which_proxy_a_server_is_reached = check_tables(__file__, proxy=show_proxy)


async def large_pods(request: web.BaseRequest) -> web.StreamResponse:
    """Answer as an API server that has ten large pods."""
    if request.query.get("watch"):
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        return response
    start, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
    numbers = range(start, min(start + limit, COUNT))
    metadata = {"resourceVersion": "9"}
    if numbers.stop < COUNT:
        metadata["continue"] = f"{numbers.stop}"
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(b'{"metadata":%b,"items":[' % json.dumps(metadata).encode())
    for number in numbers:
        name = f"a-{number}"
        tree = with_metadata(pod_tree(), name=name, uid=name, annotations={"x": "y" * LARGE})
        comma = b"," if number > start else b""
        await response.write(comma + json.dumps(tree).encode())
    await response.write(b"]}")
    return response


@pytest.mark.slow
async def test_li01_an_informer_lists_in_pages_that_fit(api: FakeApi, lines: list[str]) -> None:
    """And says on the way what is wrong, for /ready and the log; a live read profits from it."""
    store = PodStore()
    errors: list[str] = []
    api.on("GET", POD_LIST, large_pods)
    of: Collection[Pod | Unreadable] = Collection(
        resource=PODS, namespace="prod", decode=decode_pod, store=store
    )
    informer = Informer(api.client(), of, Metrics(), LoopClock(), lambda: 0.0)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(informer.run(), name="informer")
        while not informer.has_synced:
            errors.append(f"{informer.last_error}")
            await asyncio.sleep(0)
        task.cancel()
    assert len(store) == COUNT
    page = await api.client().fetch_page(PODS, "prod", limit=500)
    assert len(page.items) == 1, "by another client"
    limits = [one.query["limit"] for one in api.requests if "limit" in one.query]
    assert limits[:10] == ["500", "250", "125", "62", "31", "15", "7", "3", "1", "1"]
    assert any("a page of 500 objects is too long, requesting 250 at a time" in e for e in errors)
    reported = [line for line in lines if "Requesting smaller pages" in line]
    assert 'call="list pods in namespace prod" objects_from=500 objects_to=250' in reported[0]


def test_the_size_of_one_collection_says_nothing_of_another() -> None:
    sizes = PageSizes(FakeClock())
    sizes.halve(PODS_CALL, 500)
    assert sizes.choose(PODS_CALL, 500) == 250
    assert sizes.choose(PODS_CALL, 1) == 1
    assert sizes.choose(PODS_CALL, 500) == 250
    assert sizes.choose(SETS_CALL, 500) == 500


def test_pages_grow_back_by_doubling() -> None:
    clock = FakeClock()
    sizes = PageSizes(clock)
    for requested in (500, 250):
        sizes.halve(PODS_CALL, requested)
    chosen = []
    for _ in range(4):
        chosen.append(sizes.choose(PODS_CALL, 500))
        clock.jump(SMALL_PAGES_LAST)
    assert chosen == [125, 250, 500, 500]


def test_one_object_that_is_too_long_is_reported_as_such() -> None:
    sizes = PageSizes(FakeClock())
    assert sizes.halve(PODS_CALL, 1) == "a page of one object is too long"
    assert sizes.choose(PODS_CALL, 500) == 500
