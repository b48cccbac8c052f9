"""The commands of stories of queues, shared work, back-offs and the server's clock."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import groupby, pairwise
from typing import Any, Final

from rollout_operator.aio.clock import ESTIMATE_LASTS, ServerClock, refine_time
from rollout_operator.aio.queue import Backoff, Rewrites, WorkQueue
from rollout_operator.aio.tasks import (
    Shared,
    SingleFlight,
    join_pieces,
    keep_a_second,
    keep_if_dear,
)
from tests.fakes_clock import FakeClock
from tests.stories import Stage, Steps
from tests.virtual_time import VirtualClock

THEN: Final = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
KEEPS: Final = {"dear": keep_if_dear, "second": keep_a_second}


class CallerStage(Steps):
    """Callers that wait for something; what they get is shown, also how many got the same."""

    def __init__(self) -> None:
        self.callers: dict[str, asyncio.Task[Any]] = {}

    def look(self) -> list[str]:
        found = [
            (name.rstrip("0123456789"), _describe(task))
            for name, task in self.callers.items()
            if task.done()
        ]
        for name in [name for name, task in self.callers.items() if task.done()]:
            del self.callers[name]
        counted = Counter(found).items()
        return [f"{name}{f' x{n}' if n > 1 else ''}: {said}" for (name, said), n in counted]

    def begin(self, name: str, made: Callable[[], Any], times: int = 1) -> None:
        for number in range(times):
            self.callers[f"{name}{number}"] = self.start(made(), may_fail=True)

    async def do_cancel(self, *names: str) -> None:
        for name in names:
            self.callers[f"{name}0"].cancel()
        await self.settle()


def _describe(task: "asyncio.Task[Any]") -> str:
    if task.cancelled():
        return "cancelled"
    error = task.exception()
    found = type(error).__name__ if error else task.result()
    return found.decode().strip() if isinstance(found, bytes) else f"{found}"


class QueueStage(CallerStage):
    """An empty queue; `take a` is a worker of that name who waits for a key."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[timedelta] = []
        self.queue: WorkQueue[str] = WorkQueue(on_taken=self.waits.append)

    def look(self) -> list[str]:
        waits, self.waits[:] = [*self.waits], []
        late = [f"waited {span.total_seconds():g}s" for span in waits if span]
        return [*super().look(), *late]

    async def do_add(self, *keys: str) -> None:
        for key in keys:
            self.queue.add(key)

    async def do_later(self, key: str, *seconds: str) -> None:
        for span in seconds:
            self.queue.add_after(key, timedelta(seconds=float(span)))

    async def do_within(self, key: str, seconds: str) -> None:
        self.queue.add_within(key, timedelta(seconds=float(seconds)))

    async def do_take(self, *names: str) -> None:
        for name in names:
            self.begin(name, self.queue.take)
            await self.settle()

    async def do_done(self, key: str) -> None:
        self.queue.done(key)
        await self.settle()

    async def do_close(self) -> None:
        self.queue.close()
        await self.settle()

    async def do_depth(self) -> str:
        return f"depth {self.queue.depth}"


class PageStage(CallerStage):
    """A page of three pieces that takes 30 ms to make; `made/piece` is its text."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.made = self.at_once = 0
        self.breaks = False
        self._build(timedelta(milliseconds=30), "dear")

    def _build(self, takes: timedelta, keep: str) -> None:
        self.takes = takes
        self.shared = Shared(lambda: join_pieces(self._render), self.clock, KEEPS[keep])

    def _render(self) -> Iterator[bytes]:
        self.made += 1
        self.at_once += 1
        assert self.at_once == 1
        try:
            for piece in range(3):
                self.clock.jump(self.takes / 3)
                if self.breaks:
                    raise ValueError("broken")
                yield b"%d/%d " % (self.made, piece)
        finally:
            self.at_once -= 1

    async def do_page(self, milliseconds: str, keep: str) -> None:
        """Have it take another time, and be kept by another rule."""
        self._build(timedelta(milliseconds=float(milliseconds)), keep)

    async def do_get(self, name: str, times: str = "1") -> None:
        """Have callers begin; what they get is all one copy in memory."""
        self.begin(name, self.shared.get, int(times))
        await asyncio.sleep(0)

    async def do_all(self) -> None:
        """Let all have their answer."""
        tasks = [*self.callers.values()]
        await asyncio.gather(*tasks, return_exceptions=True)
        pages = [one.result() for one in tasks if not one.cancelled() and not one.exception()]
        assert all(page is pages[0] for page in pages)

    async def do_break(self, is_broken: str) -> None:
        self.breaks = is_broken == "on"

    async def do_wait(self, seconds: float) -> None:
        self.clock.jump(timedelta(seconds=seconds))


class FlightStage(CallerStage):
    """Calls whose answers are their numbers; each answers with `answer`."""

    def __init__(self) -> None:
        super().__init__()
        self.flights: SingleFlight[str, int] = SingleFlight()
        self.calls: list[asyncio.Future[None]] = []
        self.told = 0

    def look(self) -> list[str]:
        begun, self.told = len(self.calls) - self.told, len(self.calls)
        return [*[f"{begun} begun"] * bool(begun), *super().look()]

    async def _call(self, fails: str = "") -> int:
        self.calls.append(asyncio.get_running_loop().create_future())
        number = len(self.calls)
        await self.calls[-1]
        if fails:
            raise ValueError(fails)
        return number

    async def do_ask(self, name: str, *words: str) -> None:
        """Call; an answer that was underway before is taken from `least` on."""
        how = {"times": "1", "key": "a", "least": "99", "fails": ""}
        how |= dict(word.split("=") for word in words)
        least = int(how["least"])
        self.begin(
            name,
            lambda: self.flights.share(
                how["key"], lambda: self._call(how["fails"]), lambda number: number >= least
            ),
            int(how["times"]),
        )
        await self.settle()

    async def do_answer(self) -> None:
        for call in self.calls:
            if not call.done():
                call.set_result(None)
        await self.settle()


class RewriteStage(Steps):
    """What was written to places; time is virtual."""

    def __init__(self) -> None:
        self.rewrites: Rewrites[str, str] = Rewrites(VirtualClock())

    async def do_write(self, place: str, value: str, times: str = "1") -> str:
        """Write where it is free; show how long it is not."""
        said = []
        for _ in range(int(times)):
            wait = self.rewrites.wait_before(place, value)
            if not wait:
                self.rewrites.record(place, value)
            said.append(f"in {wait.total_seconds():g}s" if wait else "free")
        return " ".join(f"{word} x{len([*same])}" for word, same in groupby(said))

    async def do_fight(self, hours: str) -> str:
        """Write each second where it is free; show the pauses."""
        times = []
        for second in range(int(hours) * 3600):
            if (await self.do_write("one", "3")).startswith("free"):
                times.append(second)
            await asyncio.sleep(1)
        gaps = [later - sooner for sooner, later in pairwise(times)]
        return " ".join(f"{gap} x{len([*same])}" for gap, same in groupby(gaps))

    async def do_count(self, place: str, value: str) -> str:
        return f"{self.rewrites.count(place, value)} times"

    async def do_forget(self, place: str) -> None:
        self.rewrites.forget(place)


class TableStage(Stage):
    """Cases of back-offs and of the time that the API server's answers show."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.clock.jump(timedelta(hours=7))
        self.server = ServerClock(self.clock)

    async def do_bound(self, failures: str) -> str:
        return f"{_backoff('0.1', '10').bound(int(failures)).total_seconds():g}s"

    async def do_delay(self, failures: str, rng: str) -> str:
        return f"{_backoff('0.1', '10').delay(int(failures), float(rng)).total_seconds():g}s"

    async def do_backoff(self, first: str, most: str) -> str:
        try:
            _backoff(first, most)
        except ValueError as error:
            return f"{error}"
        return "fine"

    async def do_header(self, text: str) -> str:
        """Show the time after a header that is none, before and after one that is."""
        self.server.record_header(text)
        before = self.server.now()
        self._hear(0)
        self.server.record_header(text)
        return f"{before}, {self._show()}"

    async def do_answers(self, *words: str) -> str:
        """Show the time by answers that come after a span, `5:4`, and show so many seconds."""
        for word in words:
            span, _, moment = word.replace("long", f"{ESTIMATE_LASTS.total_seconds():g}").partition(
                ":"
            )
            self.clock.jump(timedelta(seconds=float(span)))
            if moment:
                self._hear(float(moment))
        assert self.clock.now() < THEN - timedelta(days=365)
        return self._show()

    def _hear(self, seconds: float) -> None:
        moment = THEN + timedelta(seconds=seconds)
        self.server.record_header(format_datetime(moment, usegmt=True))

    def _show(self) -> str:
        now = self.server.now()
        return "unknown" if now is None else f"{(now - THEN).total_seconds():g}s"

    async def do_refine(self, own: str) -> str:
        """Show what our own clock adds to whole seconds, which is so far ahead."""
        shown = datetime(2026, 1, 1, tzinfo=UTC)
        assert refine_time(None, shown) == shown
        found = refine_time(shown, shown + timedelta(seconds=float(own)))
        return f"{(found - shown).total_seconds():g}s"


def _backoff(first: str, most: str) -> Backoff:
    return Backoff(first=timedelta(seconds=float(first)), most=timedelta(seconds=float(most)))
