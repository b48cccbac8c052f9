"""Following a kind that comes and goes, in whichever version there is (RELB-27)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import Page, Resource
from rollout_operator.kube.informer import Collection, Informer
from rollout_operator.kube.kinds import FOLLOW_CHECK_INTERVAL, FollowedKind, KindSource
from rollout_operator.kube.store import WatchedStore
from rollout_operator.model.decode.objects import place_decoder
from rollout_operator.model.names import ApiError, Denied, NotFound, Unreachable
from rollout_operator.model.objects import AnyWatched
from rollout_operator.telemetry.metrics import Metrics
from tests.kube.scripted_watch import NAMESPACE, Listing, ScriptedApi, Step, Wait, page, pod
from tests.virtual_time import in_virtual_time

VERSIONS = tuple(Resource("", version, "pods", "Pod") for version in ("v2", "v1"))
ABSENT = NotFound("list pods: the server could not find the requested resource", status=404)
FORBIDDEN = Denied("list pods: forbidden", status=403)
DOWN = Unreachable("list pods: connection refused")
PROBE: Listing = [page(1)]
POD: Listing = [page(2, pod("a-0", 2))]
OVER: Sequence[Step] = (Wait(2), ABSENT)


class Rig:
    """A followed kind on a script; probes are pages of the script, too."""

    def __init__(self, *script: Page | ApiError, watches: Sequence[Sequence[Step]] = ()) -> None:
        self.api = ScriptedApi([script], watches)
        self.clock = LoopClock()
        self.store = WatchedStore()
        source = KindSource(
            resources=VERSIONS, namespace=NAMESPACE, client=self.api, make_informer=self._make
        )
        self.kind = FollowedKind(source, self.store)
        self.changes: list[str] = []
        self.kind.on_change(lambda old, new: self.changes.append("gone" if new is None else "new"))
        self.news: list[bool] = []
        self.kind.on_news(lambda: self.news.append(self.kind.is_absent))

    def _make(self, resource: Resource) -> Informer[AnyWatched]:
        of: Collection[AnyWatched] = Collection(
            resource=resource, namespace=NAMESPACE, decode=place_decoder("Pod"), store=self.store
        )
        return Informer(self.api, of, Metrics(), self.clock, lambda: 0.5)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FollowedKind]:
        """Run it to the end of the block."""
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.kind.run(self.clock), name="followed kind")
            yield self.kind
            task.cancel()


def show(rig: Rig) -> str:
    """Return the version that is followed and the objects that are known."""
    kind = rig.kind
    if kind.is_absent or kind.resource is None:
        return "none"
    names = [one.name for one in rig.store.list_all()]
    return kind.lack or " ".join((kind.resource.version, *names))


@in_virtual_time
async def test_before_the_first_answer_nothing_is_known() -> None:
    rig = Rig(*PROBE, *POD)
    assert rig.kind.lack == "Pod: no answer yet"
    assert (rig.kind.is_absent, rig.kind.resource, rig.kind.age) == (False, None, timedelta(0))
    async with rig.running():
        pass


@in_virtual_time
async def test_the_first_version_that_is_served_is_followed() -> None:
    rig = Rig(ABSENT, *PROBE, *POD)
    async with rig.running() as kind:
        await asyncio.sleep(1)
        assert kind.resource == VERSIONS[1]
        assert kind.lack is None
        assert len(rig.store) == 1
        assert rig.changes == ["new"]
        await asyncio.sleep(4)
        assert kind.age == timedelta(seconds=5)


@in_virtual_time
async def test_a_kind_that_is_absent_is_picked_up_when_it_comes() -> None:
    rig = Rig(ABSENT, ABSENT, *PROBE, *POD)
    async with rig.running() as kind:
        await asyncio.sleep(1)
        assert (kind.is_absent, kind.lack) == (True, None)
        await asyncio.sleep(FOLLOW_CHECK_INTERVAL.total_seconds())
        assert kind.resource == VERSIONS[0]
        assert len(rig.store) == 1
    assert rig.news == [True, False]


@in_virtual_time
async def test_a_kind_that_goes_is_forgotten_and_another_version_of_it_found() -> None:
    """Also where the deletion of its objects was missed."""
    back = [page(9, pod("b-0", 9))]
    rig = Rig(
        *(*PROBE, *POD, *[ABSENT] * 5),
        *(*PROBE, *back),
        watches=[OVER],
    )
    async with rig.running() as kind:
        await asyncio.sleep(1)
        assert [one.name for one in rig.store.list_all()] == ["a-0"]
        while not kind.is_absent:  # noqa: ASYNC110 (virtual time)
            await asyncio.sleep(1)
        assert show(rig) == "none"
        assert rig.changes == ["new", "gone"]
        while show(rig) != "v1 b-0":  # noqa: ASYNC110 (virtual time)
            await asyncio.sleep(1)


@in_virtual_time
async def test_a_role_that_does_not_show_it_is_reported_and_read_again() -> None:
    rig = Rig(FORBIDDEN, *PROBE, *POD)
    async with rig.running() as kind:
        await asyncio.sleep(1)
        assert (kind.is_forbidden, kind.is_absent) == (True, False)
        assert kind.lack == "Pod: list pods: forbidden"
        await asyncio.sleep(FOLLOW_CHECK_INTERVAL.total_seconds())
        assert show(rig) == "v2 a-0"


@in_virtual_time
async def test_an_error_that_says_nothing_of_the_kind_is_tried_again_soon() -> None:
    rig = Rig(DOWN, *PROBE, *POD)
    async with rig.running() as kind:
        await asyncio.sleep(0.5)
        assert kind.lack == f"Pod: {DOWN}"
        await asyncio.sleep(1)
        assert kind.lack is None
