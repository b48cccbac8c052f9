"""The commands of stories of calls to pods: what pods answer, who is called, what came of it.

`answer 503` has every pod answer a status, `answer raw 'HTTP/1.1 200'` these bytes; other words are
methods of `Answers`. `prepare 4`, `cancel 4` and `fetch 4` call the pod of an ordinal, and
`prepare *64` so many, the highest first; `begin` does so beside what follows, until `ended`. Words
such as `path=a/b` change the endpoint. `(may arrive)` is a call that the pod may still get.
"""

import asyncio
import gzip
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from msgspec.structs import replace

from rollout_operator import __version__
from rollout_operator.aio.clock import LoopClock
from rollout_operator.model.scaling import PodAnswer
from rollout_operator.pki.certificates import issue_ca, issue_leaf
from rollout_operator.pki.serving import server_context
from rollout_operator.planning.certificate import Wanted
from rollout_operator.pods import HttpSender, PodClient, PodError
from rollout_operator.telemetry.metrics import REQUEST_BUCKETS, Metrics
from tests import stories
from tests.pods.pod_servers import OK, Answer, PodServers, Seen, endless, hang, reply, reset, status
from tests.samples import read_samples

# No answer is late here, however slow the machine is.
LONG: Final = timedelta(seconds=20)
SHORT: Final = timedelta(milliseconds=200)
GOOD: Final = b'{"timestamp": 1700000000}'
# Its head holds the time, here one of quotation marks, which a line of the log escapes.
BOMB: Final = gzip.compress(bytes(10**6), mtime=0x22222222)
PACKED: Final = bytes.fromhex(
    "1f8b0800000000000203ab562ac9cc4d2d2e49cc2d50b25230343780825a00fc4ff19319000000"
)
BODIES: Final = {"GOOD": GOOD, "BOMB": BOMB, "PACKED": PACKED}


@asynccontextmanager
async def opened(
    limit: timedelta, metrics: Metrics, *, at_most: int = 64
) -> AsyncIterator[PodClient]:
    client = PodClient(
        HttpSender("prod"), timeout=limit, metrics=metrics, clock=LoopClock(), at_most=at_most
    )
    yield client
    await client.close()


def read_bytes(text: str) -> bytes:
    r"""Return a text such as `a\r\n`, `GOOD` or `x*1000` as bytes."""
    text, _, times = text.partition("*")
    data = BODIES.get(text) or text.encode("latin-1").decode("unicode_escape").encode("latin-1")
    return data * int(times or 1)


class Answers:
    """What pods may answer beside a status."""

    def __init__(self, stage: "PodStage") -> None:
        self._stage = stage

    def raw(self, *texts: str) -> Answer:
        return reply(b"".join(map(read_bytes, texts)))

    def pieces(self, *texts: str) -> Answer:
        """Answer piece by piece."""

        async def answer(seen: Seen) -> None:
            for text in texts:
                await seen.send(read_bytes(text))
                await asyncio.sleep(0.01)

        return answer

    def stops(self, *texts: str) -> Answer:
        """Answer so much, and nothing more."""

        async def answer(seen: Seen) -> None:
            await self.raw(*texts)(seen)
            await hang(seen)

        return answer

    def drip(self, text: str, *head: str) -> Answer:
        """Answer a text again and again, slowly."""

        async def answer(seen: Seen) -> None:
            await self.raw(*head)(seen)
            while True:
                await seen.send(read_bytes(text))
                await asyncio.sleep(0.02)

        return answer

    def flood(self, *head: str) -> Answer:
        """Answer without an end."""
        return endless(b"".join(map(read_bytes, head)), b" " * 4096, self._stage.flooded)

    def interim(self) -> Answer:
        return endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", [])

    def headers(self, number: str, length: str) -> Answer:
        lines = [b"x-%d: %s" % (at, b"v" * int(length)) for at in range(int(number))]
        return reply(b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"", b""]))

    def hang(self) -> Answer:
        return hang

    def reset(self) -> Answer:
        return reset

    def elsewhere(self, code: str) -> Answer:
        """Redirect to the same server."""
        to = f"Location: http://127.0.0.1:{self._stage.pods.port}/metadata"
        return status(int(code), to)

    def gate(self) -> Answer:
        """Hold all requests back until `let` lets them pass, one by one."""

        async def answer(seen: Seen) -> None:
            await self._stage.passes.acquire()
            await seen.send(OK)

        return answer

    def held(self, number: str, body: str) -> Answer:
        """Answer 200 once so many requests were seen."""

        async def answer(seen: Seen) -> None:
            await self._stage.do_reach("seen", number)
            await status(200, body=read_bytes(body))(seen)

        return answer

    def after(self, seconds: str) -> Answer:
        async def answer(seen: Seen) -> None:
            await asyncio.sleep(float(seconds))
            await seen.send(OK)

        return answer


class PodStage(stories.Steps):
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.metrics = Metrics()
        self.pods = PodServers(hang)
        self.answers = Answers(self)
        self.flooded: list[int] = []
        self.passes = asyncio.Semaphore(0)
        self.shown = 0
        self.begun: list[asyncio.Task[str]] = []
        self.trust: ssl.SSLContext | None = None
        self.requested: list[str | None] = []

    async def set_up(self) -> None:
        await self.stack.enter_async_context(asyncio.timeout(15))
        await self.stack.enter_async_context(self.pods)
        self.client = self._make_client()
        self.stack.push_async_callback(self.do_close)

    async def do_client(self, *words: str) -> None:
        """Have another client: `within=0.2` seconds a call, `turns=1` at a time, `trust=own`."""
        how = dict(word.split("=") for word in words)
        await self.client.close()
        self.client = self._make_client(**how)

    def _make_client(
        self, within: str = "20", turns: str = "64", trust: str = "system"
    ) -> PodClient:
        sender = HttpSender("prod", trust=self.trust if trust == "own" else None)
        limit = timedelta(seconds=float(within))
        metrics, clock = self.metrics, LoopClock()
        return PodClient(sender, timeout=limit, metrics=metrics, clock=clock, at_most=int(turns))

    async def do_tls(self, *names: str) -> None:
        """Have pods serve a certificate for these names, from `age=40` days ago; trust its CA.

        With `of=system` its CA is one of the system.
        """
        how = dict(one.split("=") for one in names if "=" in one)
        wanted = Wanted(
            names=tuple(one for one in names if "=" not in one),
            organisation="",
            expiration=timedelta(days=30),
            ca_life=timedelta(days=90),
        )
        born = datetime.now(UTC) - timedelta(days=int(how.get("age", 0)))
        ca = issue_ca(wanted, born)
        serving = server_context(issue_leaf(ca, wanted, born))
        serving.sni_callback = lambda _, name, __: self.requested.append(name)
        self.trust = ssl.create_default_context(cadata=ca.cert.decode())
        if "of" in how:
            self._trust_in_system(ca.cert)
        self.pods = await self.stack.enter_async_context(PodServers(self.pods.answer, serving))

    def _trust_in_system(self, ca: bytes) -> None:
        file = Path(self.stack.enter_context(TemporaryDirectory()), "ca.crt")
        file.write_bytes(ca)
        patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("SSL_CERT_FILE", f"{file}")

    async def do_requested(self) -> str:
        """Show the names that were requested of the pods' servers."""
        return ", ".join(f"{name}" for name in self.requested)

    async def do_close(self) -> None:
        await self.client.close()

    async def do_answer(self, how: str, *words: str) -> None:
        self.pods.answer = self._make_answer(how, *words)

    async def do_except(self, ordinals: str, how: str, *words: str) -> None:
        """Have these pods answer otherwise; `active=1 seen=64`: once that is so."""
        others, own = self.pods.answer, self._make_answer(how)
        named = {int(one) for one in ordinals.split(",")}
        when = dict(word.split("=") for word in words)

        async def answer(seen: Seen) -> None:
            if seen.ordinal not in named:
                return await others(seen)
            for what, number in when.items():
                await self.do_reach(what, number)
            return await own(seen)

        self.pods.answer = answer

    def _make_answer(self, how: str, *words: str) -> Answer:
        if not how.isdigit():
            make: Callable[..., Answer] = getattr(self.answers, how)
            return make(*words)
        *headers, body = [*words, ""] if not words or ": " in words[-1] else words
        return status(int(how), *headers, body=read_bytes(body))

    # Calls

    async def do_prepare(self, which: str, *changes: str) -> str:
        return await self._call("prepare", which, *changes)

    async def do_cancel(self, which: str, *changes: str) -> str:
        return await self._call("cancel", which, *changes)

    async def do_fetch(self, which: str, *changes: str) -> str:
        return await self._call("fetch", which, *changes)

    async def do_begin(self, verb: str, which: str) -> None:
        self.begun.append(asyncio.create_task(self._call(verb, which)))

    async def do_ended(self) -> str:
        """Wait for what was begun, and show what came of it."""
        begun, self.begun = self.begun, []
        found = await asyncio.gather(*begun, return_exceptions=True)
        return ", ".join(one if isinstance(one, str) else "cancelled" for one in found)

    async def do_hang_up(self) -> None:
        for task in self.begun:
            task.cancel()

    async def do_reach(self, what: str, number: str) -> None:
        """Wait until so many requests were `seen`, or are `active`."""
        pods, wanted = self.pods, int(number)
        if what == "seen":
            await pods.reach(lambda: len(pods.seen) >= wanted)
        else:
            await pods.reach(lambda: pods.active == wanted)

    async def do_let(self, number: str, until: str = "") -> None:
        """Let requests pass; with `until`, one whenever another has come, up to so many seen."""
        if until:
            for seen in range(int(number), int(until)):
                await self.do_reach("seen", f"{seen}")
                self.passes.release()
        else:
            for _ in range(int(number)):
                self.passes.release()

    async def _call(self, verb: str, which: str, *changes: str) -> str:
        changed: dict[str, Any] = dict(word.split("=", 1) for word in changes)
        if "shows_port" in changed:
            changed["shows_port"] = changed["shows_port"] == "yes"
        if which.startswith("*"):
            called = self.pods.endpoints(int(which[1:]))
        else:
            called = [self.pods.endpoint(int(which))]
        called = [replace(one, **changed) for one in called]
        if verb == "prepare":
            errors = await self.client.prepare_all(called)
            return _show([_describe(one) for one in errors]) or "confirmed"
        if verb == "cancel":
            failures = await self.client.cancel_all(called)
            for uid, error in failures.items():
                assert f"zone-a-{uid.removeprefix('uid-')}:" in f"{error}"
            return _show([_describe(one) for one in failures.values()]) or "cancelled all"
        began = datetime.now(UTC)
        found = await self.client.fetch_answers(called)
        assert set(found) == {one.uid for one in called}
        assert all(began <= one.called_at <= datetime.now(UTC) for one in found.values())
        return _show([_describe_answer(one) for one in found.values()])

    # What is seen

    async def do_seen(self) -> str:
        """Show the requests since the last time, each pod once, and how many connections."""
        seen, self.shown = self.pods.seen[self.shown :], len(self.pods.seen)
        found = Counter(f"{one.method} {one.ordinal}" for one in seen)
        assert all(count == 1 for count in found.values()) or len(found) == 1, found
        shown = [f"{one} x{count}" if count > 1 else one for one, count in found.items()]
        if len(shown) > 6:
            methods = Counter(one.method for one in seen)
            shown = [f"{method} to {count} pods" for method, count in methods.items()]
        return f"{', '.join(shown) or 'nothing'} on {self.pods.connections} connections"

    async def do_order(self) -> str:
        ordinals = [one.ordinal for one in self.pods.seen]
        assert ordinals == sorted(ordinals, reverse=True)
        return f"{ordinals[0]} down to {ordinals[-1]}"

    async def do_peak(self) -> str:
        return f"{self.pods.peak} at a time"

    async def do_head(self) -> str:
        """Show the last request."""
        text = self.pods.seen[-1].head.decode().removesuffix("\r\n\r\n")
        text = text.replace(f":{self.pods.port}", ":PORT").replace(__version__, "VERSION")
        first, *lines = text.split("\r\n")
        return "; ".join([f"{self.pods.seen[-1].ip} {first}", *sorted(lines)])

    async def do_target(self) -> str:
        return self.pods.seen[-1].head.decode().split()[1]

    async def do_left(self) -> str:
        """Wait until the client has left; show whether little of an endless answer was sent."""
        await self.do_reach("active", "0")
        # A few reads of ours, and what the kernel holds at both ends.
        return ", ".join("little sent" if count < 400_000 else f"{count} sent"
                         for count in self.flooded)  # fmt: skip

    async def do_counts(self) -> str:
        name = "pod_http_client_request_duration_seconds_count"
        found = read_samples(self.metrics, name)
        buckets = b"".join(self.metrics.render()).count(b"request_duration_seconds_bucket{path")
        assert buckets == len(found) * (len(REQUEST_BUCKETS) + 1)
        return ", ".join(f"{' '.join(key)} {count:g}" for key, count in found.items())

    async def do_logged(self, most: str = "200") -> str:
        """Show what was logged of the last body, which is printable, or its beginning."""
        body = [line for line in self.lines if "Pod refused" in line][-1].partition("body=")[2]
        # The line quotes what it holds: a backslash and a quotation mark are two characters there.
        quoted = body.strip().removeprefix('"').removesuffix('"')
        text = re.sub(r'\\([\\"])', r"\1", quoted)
        assert text.isprintable()
        assert len(text) <= 200
        return re.sub(
            r"(.{1,4}?)\1{9,}",
            lambda one: f"{one[1]}*{len(one[0]) // len(one[1])}",
            text[: int(most)],
        )

    async def do_lines(self) -> str:
        return (
            f"{len(self.lines)} lines, {sum('secret' in one for one in self.lines)} with a secret"
        )


def _describe(error: PodError) -> str:
    return f"{error}" + " (may arrive)" * error.may_arrive


def _describe_answer(answer: PodAnswer) -> str:
    if answer.since is not None:
        assert answer.problem == ""
        return f"since {answer.since:%Y-%m-%d %H:%M:%S}"
    return answer.problem + " (may arrive)" * answer.is_lost


def _show(texts: Sequence[str]) -> str:
    """Return the texts; of several that differ in the pod alone how many there are."""
    if len(texts) < 4:
        return ", ".join(texts)
    found = Counter(re.sub(r"zone-a-\d+", "zone-a-N", text) for text in texts)
    return ", ".join(f"{count} x {text}" for text, count in sorted(found.items()))
