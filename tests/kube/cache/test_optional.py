"""Following a kind that may be absent, forbidden, installed later or removed (FP-31, W-52)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import PODS, Page
from rollout_operator.kube.informer import Collection, Informer
from rollout_operator.kube.kinds import CHECK_INTERVAL, RETRY, OptionalInformer
from rollout_operator.kube.store import PodStore
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.names import ApiError, Denied, NotFound, Throttled, Unreachable
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.telemetry.metrics import Metrics
from tests.kube.scripted_watch import (
    NAMESPACE,
    SILENCE,
    Listing,
    ScriptedApi,
    Step,
    Wait,
    page,
    pod,
)
from tests.virtual_time import in_virtual_time

ABSENT = NotFound("list pods: the server could not find the requested resource", status=404)
FORBIDDEN = Denied("list pods: forbidden", status=403)
DOWN = Unreachable("list pods: connection refused")
PROBE: Listing = [page(1)]
POD: Listing = [page(2, pod("a-0", 2))]


class Rig:
    """An optional informer on a script: its probes are pages of the script, too."""

    def __init__(self, *script: Page | ApiError, watches: Sequence[Sequence[Step]] = ()) -> None:
        self.api = ScriptedApi([script], watches)
        self.store = PodStore()
        of: Collection[Pod | Unreadable] = Collection(
            resource=PODS, namespace=NAMESPACE, decode=decode_pod, store=self.store
        )
        self.clock = LoopClock()
        informer: Informer[Pod | Unreadable] = Informer(
            self.api, of, Metrics(), self.clock, lambda: 0.5
        )
        self.optional: OptionalInformer[Pod | Unreadable] = OptionalInformer(
            informer, self.api, PODS, NAMESPACE
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[OptionalInformer[Pod | Unreadable]]:
        """Run it to the end of the block."""
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.optional.run(self.clock), name="optional informer")
            yield self.optional
            task.cancel()

    def is_absent(self) -> bool:
        return self.optional.is_absent

    def is_forbidden(self) -> bool:
        return self.optional.is_forbidden

    @property
    def requested_at(self) -> list[float]:
        """Return when discovery was read for the kind."""
        return [call.at for call in self.api.lists if call.limit == 1]


@in_virtual_time
async def test_before_the_first_answer_nothing_is_known() -> None:
    """Nor is there a view that could be old."""
    rig = Rig(*PROBE, *POD)
    assert rig.optional.lack == "no answer yet"
    assert not rig.is_absent()
    assert not rig.is_forbidden()
    assert rig.optional.age == timedelta(0)
    async with rig.running():
        pass


@in_virtual_time
async def test_a_kind_that_is_there_is_followed() -> None:
    """The probe is cheap: one object. At version 0 the API server would send all it has cached."""
    rig = Rig(*PROBE, *POD)
    async with rig.running() as optional:
        await optional.wait_answered()
        assert optional.lack is None
        assert len(rig.store) == 1
        await asyncio.sleep(5)
        assert optional.age == timedelta(seconds=5)
    probe, first = rig.api.lists
    assert (probe.limit, probe.version) == (1, None)
    assert first.version is None


def reported_about(lines: list[str]) -> str:
    """Return the one line that says that a kind is not followed."""
    (line,) = [line for line in lines if "Kind is not followed" in line]
    return line


@in_virtual_time
async def test_fp31_a_kind_that_is_absent_has_no_objects_and_is_tried_quietly(
    lines: list[str],
) -> None:
    """Rollouts go on: there can be no budget. One line says so, and no warning."""
    rig = Rig(*[ABSENT] * 7)
    async with rig.running() as optional:
        await optional.wait_answered()
        assert rig.is_absent()
        assert optional.lack is None
        assert optional.age == timedelta(0)
        await asyncio.sleep(2.5 * CHECK_INTERVAL.total_seconds())
        assert optional.lack is None
    # MAZ-82: soon at first, for a definition that comes with the operator.
    assert rig.requested_at == [0, 1, 3, 7, 15, 31, 61]
    assert "level=info" in reported_about(lines)


@in_virtual_time
async def test_fp31_a_kind_that_is_installed_later_is_followed_then() -> None:
    rig = Rig(ABSENT, *PROBE, *POD)
    async with rig.running() as optional:
        await optional.wait_answered()
        assert rig.is_absent()
        await asyncio.sleep(CHECK_INTERVAL.total_seconds() + 1)
        assert not rig.is_absent()
        assert optional.lack is None
        assert len(rig.store) == 1


@in_virtual_time
async def test_fp31_between_the_probe_and_the_first_list_nothing_is_known() -> None:
    """It was installed a moment ago: what it holds must be seen first."""
    rig = Rig(ABSENT, *PROBE, DOWN, *POD)
    async with rig.running() as optional:
        await asyncio.sleep(1.01)
        assert not rig.is_absent()
        assert optional.lack == str(DOWN)
        await asyncio.sleep(10)
        assert optional.lack is None


@in_virtual_time
async def test_a_role_that_does_not_show_it_is_reported_once(lines: list[str]) -> None:
    """What that means is left to the callers."""
    rig = Rig(FORBIDDEN, FORBIDDEN, *PROBE, *POD)
    async with rig.running() as optional:
        await optional.wait_answered()
        assert (rig.is_forbidden(), rig.is_absent()) == (True, False)
        assert optional.lack == str(FORBIDDEN)
        await asyncio.sleep(2 * CHECK_INTERVAL.total_seconds() + 1)
        assert not rig.is_forbidden()
        assert rig.optional.lack is None
    assert "level=warn" in reported_about(lines)


@pytest.mark.parametrize("error", [DOWN, Throttled("later")])
@in_virtual_time
async def test_w52_an_error_at_the_start_says_nothing_of_the_kind(error: ApiError) -> None:
    """Nothing goes on before it is known, and it is read again soon."""
    rig = Rig(error, error, *PROBE, *POD)
    async with rig.running() as optional:
        await asyncio.sleep(1.5 * RETRY.total_seconds())
        assert optional.lack == str(error)
        assert not rig.is_absent()
        assert asyncio.get_running_loop().time() < 2
        await optional.wait_answered()
        assert asyncio.get_running_loop().time() == 2
    assert rig.requested_at == [0, 1, 2]


@pytest.mark.parametrize("known", [ABSENT, FORBIDDEN])
@in_virtual_time
async def test_an_error_later_leaves_what_was_known(known: ApiError) -> None:
    """A probe fails: that must not hold up everything."""
    rig = Rig(known, DOWN, DOWN, known)
    async with rig.running():
        await asyncio.sleep(2.5)
        assert rig.is_absent() == (known is ABSENT)
        assert rig.is_forbidden() == (known is FORBIDDEN)
        await asyncio.sleep(1)
    assert rig.requested_at == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("lists", "streams", "is_absent", "ages"),
    [
        # Its objects went before it did; a view of nothing does not grow old.
        pytest.param([ABSENT] * 100, [[ABSENT]] * 100, True, (0, 0), id="FP-31 removed"),
        pytest.param(
            [*[ABSENT] * 3, *POD, *POD], [*[[ABSENT]] * 3, SILENCE], False, (0, 99), id="FP-31 back"
        ),
        # Unreachable is not absent: who decides by it must know.
        pytest.param([DOWN] * 100, [[DOWN]] * 100, False, (60.001, 120), id="LI-13 cut off"),
    ],
)
@in_virtual_time
async def test_a_kind_whose_stream_ends(
    lists: Sequence[Page | ApiError],
    streams: Sequence[Sequence[Step]],
    is_absent: bool,
    ages: tuple[float, float],
) -> None:
    """FP-31, LI-13: its objects are those of the last list, or none, or of unknown age."""
    ends: Sequence[Step] = (Wait(20), ABSENT if ABSENT in lists else DOWN)
    rig = Rig(*PROBE, *POD, *lists, watches=[ends, *streams])
    async with rig.running() as optional:
        await optional.wait_answered()
        await asyncio.sleep(120)
        assert rig.is_absent() is is_absent
        assert optional.lack is None
        assert ages[0] <= optional.age.total_seconds() <= ages[1]
