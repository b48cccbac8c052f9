"""One object whose `managedFields` nest as deeply as the API server takes hides no other (LI-09).

Each case with 1,500 levels, too many for Python 3.11, with the most that the API server stores,
and with more than any Python decodes.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator

import msgspec
import pytest
from aiohttp import web

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import PODS, STATEFULSETS
from rollout_operator.kube.informer import Collection, Informer
from rollout_operator.kube.scales import change_decoder
from rollout_operator.kube.store import PodStore
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.telemetry.metrics import Metrics
from tests.kube.fake_api import POD_LIST, SET, SET_STATUS, Answer, FakeApi, refuse, reply, stream
from tests.model.wire_trees import as_json, pod_tree, set_tree, with_metadata

DEPTHS = pytest.mark.parametrize("levels", [1_500, 9_995, 20_000])
LIMIT = 120
"""Seconds, of a test that would wait for ever."""


def deep_pod(name: str, version: str, levels: int, **status: object) -> bytes:
    tree = with_metadata(pod_tree(**status), name=name, uid=f"u-{name}", resourceVersion=version)
    return deepened(as_json(with_metadata(tree, managedFields=[])), levels)


def deepened(body: bytes, levels: int) -> bytes:
    nested = b'{"f:a":' * levels + b"{}" + b"}" * levels
    return body.replace(b'"managedFields": []', b'"managedFields": [{"fieldsV1": %b}]' % nested)


def listed(*items: bytes) -> bytes:
    return b'{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[%b]}' % b",".join(items)


def answer_list_and_watch(page: bytes, seen: asyncio.Event, *objects: bytes) -> Answer:
    """Answer a list with a page, a watch with these objects, and end it once they were seen.

    As a server that streams no lists.
    """

    async def chunks() -> AsyncIterator[bytes]:
        for one in objects:
            yield b'{"type":"MODIFIED","object":%b}\n' % one
        await seen.wait()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if "sendInitialEvents" in request.query:
            return await refuse(422, "Invalid", "sendInitialEvents: Forbidden")(request)
        return await (stream(chunks()) if request.query.get("watch") else reply(page))(request)

    return answer


@DEPTHS
async def test_li09_an_informer_lists_and_follows_a_deep_pod(api: FakeApi, levels: int) -> None:
    page = listed(deep_pod("a-0", "5", 1), deep_pod("a-1", "5", levels), deep_pod("a-2", "5", 1))
    store, seen = PodStore(), asyncio.Event()

    def record(_: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        if isinstance(new, Pod) and new.name == "a-2" and new.phase == "Failed":
            seen.set()

    last = deep_pod("a-2", "11", 1, phase="Failed")
    api.on("GET", POD_LIST, answer_list_and_watch(page, seen, deep_pod("a-1", "10", levels), last))
    of: Collection[Pod | Unreadable] = Collection(
        resource=PODS, namespace="prod", decode=decode_pod, store=store
    )
    informer = Informer(api.client(), of, Metrics(), LoopClock(), lambda: 0.5)
    informer.on_change(record)
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(informer.run(), name="informer")
        await seen.wait()
        task.cancel()
    items = {item.name: item for item in store.list_all()}
    assert sorted(items) == ["a-0", "a-1", "a-2"]
    assert all(isinstance(item, Pod) for item in items.values())
    assert items["a-1"].resource_version == "10"


@DEPTHS
def test_li09_of_a_deep_object_that_zones_mirror_the_version_is_read(levels: int) -> None:
    assert change_decoder("Pod")(deep_pod("a-1", "10", levels)).resource_version == "10"


@DEPTHS
async def test_li09_single_reads_and_writes_return_what_every_decoder_takes(
    api: FakeApi, levels: int
) -> None:
    body = deepened(as_json(with_metadata(set_tree(), managedFields=[])), levels)
    api.on("GET", SET, reply(body))
    api.on("PATCH", SET, reply(body))
    api.on("PUT", SET_STATUS, reply(b"{}"))
    read = await api.client().fetch(STATEFULSETS, "prod", "a")
    written = await api.client().patch(STATEFULSETS, "prod", "a", {"spec": {}})
    for answer in (read, written):
        whole = msgspec.json.decode(answer, type=dict[str, object])
        assert whole["spec"] == set_tree()["spec"]
        await api.client().replace_status(STATEFULSETS, "prod", "a", whole)
        assert decode_statefulset(answer) == decode_statefulset(as_json(set_tree()))


async def test_li09_what_was_read_is_decoded_in_one_go_from_a_deeper_stack(api: FakeApi) -> None:
    """LI-09: a body just within what the client itself can decode leaves no one else a long cut."""
    plain = as_json(with_metadata(set_tree(), managedFields=[]))
    deepest = bisect_left(range(20_000), True, key=lambda levels: not _decodes(levels))
    for levels in range(deepest - 120, deepest + 20, 5):
        api.on("GET", SET, reply(deepened(plain, levels)))
        api.on("PATCH", SET, reply(deepened(plain, levels)))
        read = await api.client().fetch(STATEFULSETS, "prod", "a")
        written = await api.client().patch(STATEFULSETS, "prod", "a", {"spec": {}})
        for answer in (read, written):
            assert _decode_below(answer, frames=80)["spec"] == set_tree()["spec"]


@pytest.mark.parametrize("more", [0, 1], ids=["64 KiB", "one byte more"])
async def test_li09_a_large_item_of_a_list_is_cut_by_the_client(api: FakeApi, more: int) -> None:
    """LI-09: in turns with everything else on the loop; later cuts hold it, and are short below."""
    item = _almost_too_deep(64 * 1024 + more)
    api.on("GET", POD_LIST, reply(listed(item)))
    page = await api.client().fetch_page(PODS, "prod")
    assert _is_cut(page.items[0], item) is bool(more)


@pytest.mark.parametrize("more", [0, 1], ids=["64 KiB", "one byte more"])
async def test_li09_a_large_line_of_a_watch_is_cut_by_the_client(api: FakeApi, more: int) -> None:
    head, end = b'{"type":"MODIFIED","object":', b"}"
    item = _almost_too_deep(64 * 1024 + more - len(head + end))
    api.on("GET", POD_LIST, stream([head + item + end + b"\n"]))
    async with api.watch(1) as events:
        (event,) = [event async for event in events]
    assert _is_cut(event.object, item) is bool(more)


def _almost_too_deep(size: int) -> bytes:
    """Return a pod of so many bytes, as deep as the client decodes but few others would."""
    levels = bisect_left(range(20_000), True, key=lambda levels: not _decodes(levels)) - 150
    plain = as_json(with_metadata(pod_tree(), name="a-0", managedFields=[]))
    nested = b'"managedFields": [%b], "pad": "%b"'
    lists = b"[" * levels + b"]" * levels
    body = plain.replace(b'"managedFields": []', nested % (lists, b"%b"))
    return body.replace(b"%b", b"x" * (size - len(body) + len(b"%b")))


def _is_cut(found: msgspec.Raw, sent: bytes) -> bool:
    """Return whether nothing deep is left of a pod; else it is as it was sent."""
    if bytes(found) == sent:
        return False
    assert _decode_below(bytes(found), frames=80)["spec"] == pod_tree()["spec"]
    return True


def _decodes(levels: int) -> bool:
    try:
        msgspec.json.decode(b'{"f:a":' * levels + b"{}" + b"}" * levels, type=msgspec.Raw)
    except RecursionError:
        return False
    return True


def _decode_below(body: bytes, *, frames: int) -> dict[str, object]:
    if frames:
        return _decode_below(body, frames=frames - 1)
    return msgspec.json.decode(body, type=dict[str, object])
