"""The commands of stories of large bodies: how fast they must come, and what room they have.

`upload a 7168k per=10` begins, of so many bytes and bytes a second; what came of it is shown with
the seconds that it took.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import timedelta
from typing import Any, Final, cast

from aiohttp import web

from rollout_operator.model.scaling import Review
from rollout_operator.web.webhooks import Bodies, Rejected
from tests.aio.stages import CallerStage
from tests.stories import read_words
from tests.virtual_time import VirtualClock, elapsed
from tests.web.served import body_of

LIMIT: Final = timedelta(seconds=9)
PART: Final = 1 << 15


class Hand(Executor):
    """A thread that works at once, or when it is told."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []
        self.is_idle = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append(lambda: future.set_result(fn(*args, **kwargs)))
        if not self.is_idle:
            self.work()
        return future

    def work(self) -> None:
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job()


class Upload:
    """A request whose body comes at a pace, in parts: what is read of aiohttp's request."""

    def __init__(
        self,
        body: bytes,
        per_s: float,
        *,
        is_announced: bool = True,
        change: "Callable[[Upload], None]" = lambda upload: None,
    ) -> None:
        self.content_length = len(body) if is_announced else None
        self.can_read_body = True
        self.content = self
        self.per_s, self.change = per_s, change
        self.left = memoryview(body)
        self.arrived = 0
        self.comes_at: float | None = None

    def as_request(self) -> web.BaseRequest:
        return cast(web.BaseRequest, self)

    def is_eof(self) -> bool:
        return False

    def at_eof(self) -> bool:
        return not self.left

    def read_nowait(self) -> bytes:
        raise AssertionError("never whole at once")

    async def readany(self) -> bytes:
        self.change(self)
        size = PART if self.per_s >= PART else 1024
        now = asyncio.get_running_loop().time()
        # What is waited for in two steps does not begin anew.
        if self.comes_at is None:
            self.comes_at = now + (size / self.per_s if self.per_s else 3600)
        await asyncio.sleep(self.comes_at - now)
        self.comes_at = None
        part, self.left = self.left[:size], self.left[size:]
        self.arrived += len(part)
        return bytes(part)


class RoomStage(CallerStage):
    """The room for bodies of one process."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = Hand()
        self.bodies = Bodies(VirtualClock(), self.thread)
        self.most = 0

    async def do_upload(self, name: str, size: str, *words: str) -> None:
        """Begin `times=8`; `until=96k` it stalls, then or in a crowd it `slows`; `chunks`."""
        how = read_words(words, "times until slows chunks per")
        body = body_of()
        body += b" " * (_read(size) - len(body))

        def change(upload: Upload) -> None:
            self.most = max(self.most, self.bodies.room.used)
            if "until" in how and upload.arrived >= _read(how["until"]):
                upload.per_s = 0
            is_last = len(upload.left) < 2 * PART
            if "slows" in how and (is_last or self.bodies.room.is_crowded):
                upload.per_s = _read(how["slows"])

        def make() -> Any:
            announced = "chunks" not in how
            upload = Upload(body, _read(how["per"]), is_announced=announced, change=change)
            return self._read_body(upload, is_alone="times" not in how)

        self.begin(name, make, int(how.get("times", 1)))
        await asyncio.sleep(0)

    async def _read_body(self, upload: Upload, *, is_alone: bool) -> str:
        begin = elapsed()
        try:
            review = await self.bodies.read(upload.as_request(), begin + LIMIT)
            said = "200" if isinstance(review, Review) else "none"
        except Rejected as error:
            said = f"{error.status} {error}"
        took = (elapsed() - begin).total_seconds()
        return f"{said} after {took:.1f}s" if is_alone else said

    async def do_room(self) -> str:
        """Show what is used, the most that was, and whether others wait."""
        room = self.bodies.room
        parts = [f"{room.used >> 10}k of {self.most >> 10}k used"]
        return ", ".join([*parts, *["crowded"] * room.is_crowded])

    async def do_thread(self, how: str) -> None:
        """Have the thread be `idle`, or `work` off what it has, until nothing is left."""
        self.thread.is_idle = how == "idle"
        self.thread.work()

    async def do_jobs(self) -> str:
        return f"{len(self.thread.jobs)} jobs"


def _read(text: str) -> int:
    return int(text[:-1]) << 10 if text.endswith("k") else int(text)
