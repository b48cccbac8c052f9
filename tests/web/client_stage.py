"""What stories can do to calls of the API server, and a review that is remembered."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable
from datetime import timedelta
from typing import Any, Final
from unittest.mock import Mock

from rollout_operator.model.names import (
    LAST_DOWNSCALE,
    ApiError,
    Conflict,
    DeadlinePassed,
    Denied,
    NotFound,
    Refused,
    Throttled,
    TooManyRequests,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.web.connection import CURRENT
from tests import stories
from tests.controllers.fake_client import FakeClient
from tests.virtual_time import elapsed

ERRORS: Final[dict[str, ApiError]] = {
    "conflict": Conflict("changed", status=409),
    "busy": TooManyRequests("busy"),
    "deadline": DeadlinePassed("no answer within 8.8s"),
    "denied": Denied("grant verb patch", status=403),
    "later": TooManyRequests("busy", retry_after=timedelta(seconds=7)),
    "missing": NotFound("no such object", status=404),
    "refused": Refused("immutable"),
    "throttled": Throttled("own limiter"),
    "unauthorized": Denied("log in again", status=401),
    "unknown": UnknownOutcome("no answer"),
    "unreachable": Unreachable("time-out"),
}
FAULTS: Final[dict[str, Exception]] = {**ERRORS, "bug": KeyError("bug")}
TODAY: Final = "2026-01-02T"


class ClientStage(stories.Steps):
    """What can be done to calls to the API server, and a review whose verdict is remembered."""

    client: FakeClient

    def __init__(self) -> None:
        self.begun: dict[str, asyncio.Task[str | None]] = {}
        self.verdict: Verdict | None = None
        self.shown = 0
        """So many calls have been shown."""

    def _attend(self, client: FakeClient) -> None:
        self.client = client
        self.faults: list[tuple[str, Exception, int]] = []
        self.meanwhile: list[tuple[str, str]] = []
        self.hanging: list[tuple[str, float]] = []
        client.pause = self._go_on

    async def _do(self, *words: str) -> str | None:
        return await self.find_command(words[0], words[1:])(*words[1:])

    async def do_calls(self) -> str:
        """Show all calls to the API server until now, and forget them."""
        found = Counter(" ".join(call.split()[:2]) for call in self.client.calls)
        self.client.calls.clear()
        self.shown = 0
        return ", ".join(f"{call} x{n}" if n > 1 else call for call, n in found.items()) or "none"

    async def do_why(self) -> str:
        """Show the sentence of the last review, without its beginning, and its warnings."""
        assert self.verdict is not None
        text = self.verdict.reason.text
        begun = text.startswith("downscale of ")
        text = text.rpartition("replicas is not allowed because ")[2] if begun else text
        return " ".join(filter(None, ["because", text, *self.verdict.warnings]))

    async def do_now(self) -> str:
        return f"{elapsed().total_seconds():.1f} s"

    async def do_begin(self, name: str, *words: str) -> None:
        """Have something go on meanwhile; `end` waits for what came of it."""
        self.begun[name] = self.start(self._do(*words))
        await asyncio.sleep(0)

    async def do_connected(self, *words: str) -> str:
        """Do something on a connection; show what becomes of both."""
        CURRENT.set(connection := Mock())
        return f"{await self._do(*words)}; {connection.method_calls}"

    async def do_end(self, name: str) -> str | None:
        return await self.begun[name]

    async def flood(self, reviews: Iterable[Coroutine[Any, Any, Verdict | str]]) -> None:
        """Have reviews begin, all at once; `landed` waits for them."""
        self.flooding = [asyncio.create_task(one) for one in reviews]
        await asyncio.sleep(0.001)

    async def do_landed(self, call: str = "") -> str:
        """Show what came of a flood, without times, and how many such calls there were."""
        found = await asyncio.gather(*self.flooding)
        said = [one if isinstance(one, str) else digest(one) for one in found]
        counts = Counter(one.partition(" after ")[0] for one in said)
        words = ", ".join(f"{word} x{n}" for word, n in sorted(counts.items()))
        return f"{words}; {sum(call in one for one in self.client.calls)} calls"

    async def do_cancel(self, name: str) -> None:
        self.begun[name].cancel()
        await asyncio.gather(self.begun[name], return_exceptions=True)

    async def do_fail(self, error: str, call: str, times: str = "1000000") -> None:
        """Let calls that begin so fail."""
        self.faults.append((call, FAULTS[error], int(times)))

    async def do_hang(self, call: str, seconds: str = "86400") -> None:
        """Let calls that begin so take so long."""
        self.hanging.append((call, float(seconds)))

    async def do_heal(self) -> None:
        self.faults.clear()
        self.hanging.clear()

    async def do_during(self, call: str, *words: str) -> None:
        """Do something while the next call that begins so is on its way, `x9` for the next nine.

        `&` is between two commands.
        """
        *rest, last = words
        times = int(last[1:]) if last[0] == "x" else 1
        self.meanwhile += [(call, " ".join(rest if times > 1 else words))] * times

    async def _go_on(self, call: str) -> None:
        for one in self.meanwhile:
            if call.startswith(one[0]):
                self.meanwhile.remove(one)
                for command in one[1].split(" & "):
                    await self._do(*command.split())
                break
        for start, seconds in self.hanging:
            if call.startswith(start):
                await asyncio.sleep(seconds)
        for place, (start, error, times) in enumerate(self.faults):
            if call.startswith(start) and times:
                self.faults[place] = (start, error, times - 1)
                raise error


def digest(verdict: Verdict) -> str:
    stamp = brief(verdict.annotations.get(LAST_DOWNSCALE, ""))
    code = f"{verdict.reason.code}"
    if verdict.is_allowed:
        code = "allowed" if code == Code.PODS_PREPARED else f"allowed {code}"
    retry = "" if verdict.retry_after is None else f"retry {verdict.retry_after.total_seconds():g}s"
    words = [str(verdict.code or ""), code, stamp, "with a warning" * bool(verdict.warnings), retry]
    return " ".join(filter(None, words))


def brief(time: str) -> str:
    return time.removeprefix(TODAY).removesuffix("Z")
