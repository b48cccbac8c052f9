"""How much of a large collection is handled at once (FP-39, MAZ-60)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from rollout_operator.aio.clock import LoopClock
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.kube.api import PODS, Page, WatchEvent
from rollout_operator.kube.informer import STEP, Collection, Informer
from rollout_operator.kube.store import PodStore
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.telemetry.metrics import Metrics
from tests.kube.cache.stage import NAMESPACE, AnyPod, Script, Step, pod_tree, raw
from tests.virtual_time import elapsed, in_virtual_time

COUNT: Final = 5_000


def pods(start: int, end: int) -> list[msgspec.Raw]:
    return [raw(pod_tree(NAMESPACE, f"a-{n}", f"{n + 1}", uid=f"u-{n}")) for n in range(start, end)]


class Turns:
    """Counts how much is decoded and reported between two turns of the loop."""

    def __init__(self) -> None:
        self.decoded = self.reported = self.most_decoded = self.most_reported = self.total = 0

    def decode(self, body: bytes | msgspec.Raw) -> AnyPod:
        self.total += 1
        self.decoded += 1
        self.most_decoded = max(self.most_decoded, self.decoded)
        return decode_pod(body)

    def record(self, old: object, new: object) -> None:
        self.reported += 1
        self.most_reported = max(self.most_reported, self.reported)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.decoded = self.reported = 0


def follow(
    lists: Sequence[Page], *events: Step, api: type[Script] = Script,
    tell: Callable[[str], None] = lambda text: None, **of: Any,
) -> tuple[Informer[AnyPod], PodStore]:  # fmt: skip
    store, script = PodStore(), api(tell)
    script.lists.append(lists)
    script.streams.append([*events, 10_000.0])
    collection: Collection[AnyPod] = Collection(
        resource=PODS, namespace=NAMESPACE, store=store, **{"decode": decode_pod, **of}
    )
    return Informer(script, collection, Metrics(), LoopClock(), lambda: 0.5), store


async def read_in_turns(lists: Sequence[Page], *events: Step, until: int) -> tuple[Turns, str]:
    """Run an informer until it holds so many pods, beside others who want the loop."""
    turns, told = Turns(), list[str]()
    informer, store = follow(lists, *events, decode=turns.decode, tell=told.append)
    informer.on_change(turns.record)
    async with TaskStack() as tasks:
        tasks.start("others", turns.run())
        tasks.start("informer", informer.run())
        await informer.wait_synced()
        while len(store) < until:  # noqa: ASYNC110  # each turn is one step of the loop
            await asyncio.sleep(0)
    assert turns.most_decoded <= STEP
    return turns, ", ".join(told)


@in_virtual_time
async def test_fp39_five_thousand_pods_come_in_small_steps() -> None:
    pages = [
        Page(
            items=pods(start, start + 500),
            resource_version="9000",
            next_token="more" if start < COUNT - 500 else "",
        )
        for start in range(0, COUNT, 500)
    ]
    turns, told = await read_in_turns(pages, until=COUNT)
    assert turns.total == COUNT
    assert told == f"list, stream, {'list more, ' * 9}watch 9000 40s"
    assert turns.most_reported <= STEP


@in_virtual_time
async def test_fp39_a_burst_of_events_lets_others_in() -> None:
    burst = [WatchEvent(type="ADDED", object=one) for one in pods(100, 2_100)]
    await read_in_turns([Page(items=[], resource_version="10", next_token="")], *burst, until=2_000)


@in_virtual_time
async def test_pages_of_several_namespaces_are_held_within_their_slots() -> None:
    """MAZ-60: dozens of namespaces begin at once, and no more pages are in memory than of one."""
    slots, most, held = asyncio.Semaphore(2), 0, 0

    class Held(Script):
        async def fetch_page(self, *named: Any, **how: Any) -> Page:
            nonlocal most, held
            held += 1
            most = max(most, held)
            await asyncio.sleep(1)
            held -= 1
            return await super().fetch_page(*named, **how)

    page = Page(items=[], resource_version="3", next_token="")
    async with TaskStack() as tasks:
        informers = [follow([page], api=Held, slots=slots)[0] for _ in range(6)]
        for number, informer in enumerate(informers):
            tasks.start(f"informer {number}", informer.run())
        await asyncio.gather(*(one.wait_synced() for one in informers))
        assert (most, elapsed().total_seconds()) == (2, 3)
