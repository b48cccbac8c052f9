"""A kind that is followed once for all namespaces, and what each of them has of it (MAZ-60)."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import PODS, Page
from rollout_operator.kube.informer import Collection, Informer
from rollout_operator.kube.kinds import CHECK_INTERVAL, ClusterKind, NamespaceShare
from rollout_operator.kube.store import PodStore
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.names import ApiError, Denied, NotFound, Unreachable
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics
from tests.kube.informer_rig import after
from tests.kube.scripted_watch import (
    SILENCE,
    ScriptedApi,
    Step,
    Wait,
    added,
    as_raw,
    deleted,
    modified,
    page,
    pod_tree,
)
from tests.samples import read_samples
from tests.virtual_time import in_virtual_time

OF_ALL = replace(PODS, is_namespaced=False)
PROBE = page(1)
ABSENT = NotFound("list pods: the server could not find the requested resource", status=404)
FORBIDDEN = Denied("list pods: forbidden", status=403)
DOWN = Unreachable("list pods: connection refused")

AnyPod = Pod | Unreadable


def pod(namespace: str, version: int, *, ready: bool = True) -> msgspec.Raw:
    tree = pod_tree("a-0", version, uid=f"uid-{namespace}", ready=ready)
    return as_raw({**tree, "metadata": {**_head(tree), "namespace": namespace}})


def broken_pod(namespace: str, version: int) -> msgspec.Raw:
    tree = pod_tree("a-0", version, uid=f"uid-{namespace}")
    head = {**_head(tree), "namespace": namespace}
    return as_raw({"metadata": head, "status": {"phase": 7}})


def _head(tree: dict[str, object]) -> dict[str, object]:
    head = tree["metadata"]
    assert isinstance(head, dict)
    return head


class Namespace:
    """A namespace that has a share, and what it was reported."""

    def __init__(self, name: str, kind: ClusterKind[AnyPod]) -> None:
        self.metrics = Metrics()
        self.store = PodStore()
        self.reported: list[str] = []
        self.store.on_replaced(lambda: self.reported.append("list"))
        of: Collection[AnyPod] = Collection(
            resource=PODS, namespace=name, decode=decode_pod, store=self.store
        )
        found = kind.find_share(of, self.metrics)
        assert found is not None
        self.share: NamespaceShare[AnyPod] = found
        self.share.on_change(self._record)

    @property
    def cached(self) -> dict[tuple[str, ...], float]:
        return read_samples(self.metrics, "cached_objects")

    def _record(self, old: AnyPod | None, new: AnyPod | None) -> None:
        log.info("Reported")
        versions = ("" if one is None else one.resource_version for one in (old, new))
        self.reported.append(">".join(versions))


class Rig:
    """A kind of the cluster on a script; its first page says whether it may be listed."""

    def __init__(self, *script: Page | ApiError, watches: Sequence[Sequence[Step]] = ()) -> None:
        self.api = ScriptedApi([script], watches)
        self.clock = LoopClock()
        self.metrics = Metrics()
        self._tasks: list[asyncio.Task[None]] = []
        self.kind: ClusterKind[AnyPod] = ClusterKind(
            lambda store: Informer(
                self.api,
                Collection(resource=OF_ALL, namespace="", decode=decode_pod, store=store),
                self.metrics,
                self.clock,
                lambda: 0.5,
            ),
            self.api,
            OF_ALL,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.TaskGroup]:
        """Follow to the end of the block; yield what namespaces run in."""
        async with asyncio.TaskGroup() as tasks:
            self.start(tasks, self.kind.follow.run(self.clock))
            yield tasks
            for task in self._tasks:
                task.cancel()

    def start(self, tasks: asyncio.TaskGroup, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(tasks.create_task(work))

    async def join(self, tasks: asyncio.TaskGroup, name: str) -> Namespace:
        namespace = Namespace(name, self.kind)
        assert not namespace.share.has_synced
        assert namespace.share.age == timedelta.max
        self.start(tasks, namespace.share.run())
        await namespace.share.wait_synced()
        return namespace


@in_virtual_time
async def test_each_namespace_has_a_list_and_then_its_own_changes() -> None:
    """One list and one stream serve all: a share begins with what is known."""
    events: list[Step] = [
        Wait(1), modified(pod("one", 11)), added(pod("two", 12)),
        Wait(1), modified(pod("one", 13, ready=False)), deleted(pod("two", 14)),
    ]  # fmt: skip
    rig = Rig(PROBE, page(10, pod("one", 3), pod("three", 4)), watches=[[*events, *SILENCE]])
    async with rig.running() as tasks:
        await rig.kind.follow.wait_answered()
        one, two = await rig.join(tasks, "one"), await rig.join(tasks, "two")
        assert (one.reported, two.reported) == (["list", ">3"], ["list"])
        await after(5)
        assert one.reported == ["list", ">3", "11>13"], "11 decides nothing"
        assert two.reported == ["list", ">12", "12>"]
        assert (one.cached, two.cached) == ({("Pod",): 1}, {("Pod",): 0})
        three = await rig.join(tasks, "three")
        assert three.reported == ["list", ">4"]
        assert one.share.age == three.share.age == rig.kind.informer.age
    assert [call.verb for call in rig.api.calls] == ["list", "list", "watch"]


@in_virtual_time
async def test_a_list_of_all_is_one_of_each_namespace() -> None:
    """Also of one that has nothing any more."""
    rig = Rig(PROBE, page(10, pod("one", 3), pod("two", 4)), page(20, pod("one", 15, ready=False)))
    async with rig.running() as tasks:
        await rig.kind.follow.wait_answered()
        one, two = await rig.join(tasks, "one"), await rig.join(tasks, "two")
        assert two.share.refresh("a live read shows more")
        await after(1)
        assert one.reported == ["list", ">3", "list", "3>15"]
        assert two.reported == ["list", ">4", "list", "4>"]


@in_virtual_time
async def test_what_is_reported_is_logged_with_the_namespace(
    capfd: pytest.CaptureFixture[str],
) -> None:
    rig = Rig(PROBE, page(10, pod("one", 3)))
    async with rig.running() as tasks:
        await rig.kind.follow.wait_answered()
        await rig.join(tasks, "one")
    assert [
        line
        for line in capfd.readouterr().err.splitlines()
        if "Reported" in line and "namespace=one" in line
    ]


@pytest.mark.parametrize("errors", [[], [FORBIDDEN], [DOWN]], ids=["no answer", "denied", "down"])
@in_virtual_time
async def test_there_is_no_share_in_what_may_not_be_listed(errors: list[ApiError]) -> None:
    """Its own Role may show a namespace what the ClusterRole does not."""
    rig = Rig(*errors, PROBE, page(10))
    of: Collection[AnyPod] = Collection(
        resource=PODS, namespace="one", decode=decode_pod, store=PodStore()
    )
    async with rig.running():
        if errors:
            await after(0.5)
        assert rig.kind.find_share(of, Metrics()) is None
        await after(CHECK_INTERVAL.total_seconds() * 2)
        assert rig.kind.find_share(of, Metrics()) is not None


@in_virtual_time
async def test_a_share_in_a_kind_that_is_installed_later_fills_then() -> None:
    rig = Rig(ABSENT, PROBE, page(10, pod("one", 3)))
    async with rig.running() as tasks:
        await rig.kind.follow.wait_answered()
        one = Namespace("one", rig.kind)
        rig.start(tasks, one.share.run())
        await asyncio.sleep(0.5)
        assert one.reported == ["list"]
        assert not one.share.has_synced
        await one.share.wait_synced()
        assert one.reported == ["list", "list", ">3"]


@in_virtual_time
async def test_li11_an_unreadable_object_is_read_again_by_namespace_and_name() -> None:
    """Other namespaces have one of that name."""
    rig = Rig(PROBE, page(10, broken_pod("one", 3), pod("two", 4)), page(11, pod("one", 3)))
    async with rig.running() as tasks:
        await rig.kind.follow.wait_answered()
        one, two = await rig.join(tasks, "one"), await rig.join(tasks, "two")
        await after(7)
        assert rig.api.field_selectors[-1] == "metadata.name=a-0,metadata.namespace=one"
        assert one.reported == ["list", ">3", "3>3"]
        assert two.reported == ["list", ">4"]
        assert read_samples(one.metrics, "unreadable_objects") == {("Pod",): 0}


@in_virtual_time
async def test_what_went_before_a_namespace_joins_is_not_handed_over() -> None:
    rig = Rig(PROBE, page(10, pod("one", 3), pod("two", 4)), page(20))
    async with rig.running() as tasks:
        await rig.kind.follow.wait_answered()
        one = await rig.join(tasks, "one")
        assert read_samples(rig.metrics, "cached_objects") == {("Pod",): 2}
        one.share.refresh("a live read shows less")
        await after(1)
        assert one.reported == ["list", ">3", "list", "3>"]
        assert read_samples(rig.metrics, "cached_objects") == {("Pod",): 0}
        two = await rig.join(tasks, "two")
        assert two.reported == ["list"]
