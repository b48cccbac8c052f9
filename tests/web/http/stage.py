"""The commands of stories of the webhook server over TLS: connections by letters, and a hook.

`post a` sends a review on connection a and shows the answer, `post -` on one of its own. Words are
of the review (`user=kate`, `scale`, `dry`) or of the request (`path=/x`, `method=GET`, `type=x`,
`size=9`, `length=9`, `header="X: y"`). In pieces of `raw` and `garble`, `{head}` is the beginning
of a request, `{chunked}` a whole head, `{review}` a body, and `x*9` nine of x.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace

from rollout_operator.model.outcome import Code, Reason, Verdict
from rollout_operator.model.scaling import Review
from rollout_operator.web.connection import ConnectionLimits, giving_way
from rollout_operator.web.middleware import ClusterRules
from rollout_operator.web.webhooks import MAX_BODY, MAX_ON_LOOP, ServerOptions
from tests.model.review_trees import review_tree
from tests.stories import Steps, read_words
from tests.web.served import (
    ALLOWED,
    FINE,
    LONG,
    PATH,
    Answer,
    Gate,
    Line,
    ServedWebhooks,
    contexts,
    post,
    serving,
)

REFUSED: Final = Reason(code=Code.NO_DOWNSCALE, text="it has <the> label")
VERDICTS: Final = {
    "fine": FINE,
    "refuses": Verdict(is_allowed=False, reason=REFUSED),
    "warns": Verdict(is_allowed=True, reason=FINE.reason, warnings=("odd",)),
    "patches": Verdict(is_allowed=True, reason=FINE.reason, annotations={"a": "b"}),
}
SIZES: Final = {"largest": MAX_BODY, "larger": MAX_BODY + 1, "beside": MAX_ON_LOOP + 1}
HEAD: Final = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
CHUNKED: Final = f"{HEAD}Transfer-Encoding: chunked\r\n\r\n"
_WORDS: Final = re.compile(r'(?:level|msg|peer|user)=(?:"(?:\\.|[^"])*"|\S+)')
_STACK: Final = ", in _break"
_HOW: Final = "user scale dry gone version body size length last then header path method type times"
GRAIN: Final = 0.3
"""Seconds by which limits are told apart: what is measured is a moment more."""


class WireStage(Steps):
    """A server of one hook, which allows all; short limits are given by `server`."""

    def __init__(self, lines: list[str]) -> None:
        self.log = lines
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.asked: list[str] = []

    async def set_up(self) -> None:
        await self.do_server()

    async def do_server(self, *words: str) -> None:
        """Begin anew with `timeout=100ms`, `connections=4`, limits such as `idle=50ms`, ..."""
        await self.stack.aclose()
        how = read_words(words, "timeout connections handshake idle head cluster patched")
        spans = {key: _span(how.get(key, "1h")) for key in ("handshake", "idle", "head")}
        limits = ConnectionLimits(connections=int(how.get("connections", 256)), **spans)
        if how:
            limits = replace(limits, sweep=timedelta(milliseconds=10))
        cluster = ClusterRules(namespace="prod", enabled="cluster" in how)
        if how.get("cluster"):
            cluster = replace(cluster, excluded_paths=(how["cluster"],))
        setting = serving(
            request_timeout=_span(how.get("timeout", "10s")),
            cluster=cluster,
            options=ServerOptions(limits=limits),
            may_patch=self._may_patch if "patched" in how else lambda path: False,
            on_verdict=lambda path, review, verdict: self.asked.append(f"{verdict.reason.code}"),
        )
        self.served: ServedWebhooks = await self.stack.enter_async_context(setting)
        self.connections: dict[str, Line] = {}
        self.gate = Gate()
        self.ended = 0

    def _may_patch(self, path: str) -> bool:
        self.asked.append("patch")
        return path == PATH

    async def do_seen(self) -> str:
        """Show how many reviews came to the hook."""
        return f"{len(self.served.hook.reviewed)} reviewed"

    # Connections

    async def do_open(self, *names: str) -> None:
        for name in names:
            self.connections[name] = await self.served.connect()

    async def do_dial(self, *names: str) -> None:
        """Open connections without TLS."""
        for name in names:
            self.connections[name] = await self.served.dial()

    async def do_crowd(self, number: str) -> None:
        """Open connections without TLS; all but the last ten are ended."""
        lines = [await self.served.dial() for _ in range(int(number))]
        assert {await line.rest() for line in lines[:-10]} == {b""}

    async def do_close(self, *names: str) -> None:
        for name in names:
            await self.connections[name].close()

    async def do_post(self, name: str, *words: str) -> str:
        line = self.connections[name] if name in self.connections else await self.served.connect()
        if name != "-":
            self.connections[name] = line
        return _describe(await line.send_request(make_request(words)))

    async def do_send(self, name: str, *words: str) -> None:
        self.connections[name].writer.write(make_request(words))
        await self.connections[name].writer.drain()

    async def do_hold(self, *names: str) -> None:
        """Have reviews wait until `let`."""
        for name in names:
            await self.served.hold(self.connections[name], self.gate)

    async def do_unsure(self) -> None:
        """Let the connections of reviews that are held go for others."""
        self.gate.waits = giving_way

    async def do_let(self) -> None:
        self.gate.opened.set()

    async def do_raw(self, name: str, *pieces: str) -> None:
        self.connections[name].writer.write(make_bytes(pieces))
        await self.connections[name].writer.drain()

    async def do_chunk(self, name: str, size: str) -> None:
        """Send a review of a size in chunks."""
        body = make_request([f"size={size}"]).partition(b"\r\n\r\n")[2]
        parts = [body[start : start + 10_000] for start in range(0, len(body), 10_000)]
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
        self.connections[name].writer.write(CHUNKED.encode() + chunks + b"0\r\n\r\n")

    async def do_half(self, *names: str) -> None:
        """Send half of the largest review."""
        for name in names:
            body = make_request([f"size={MAX_BODY // 2}", "length=largest"])
            self.connections[name].writer.write(body)

    async def do_hazard(self, name: str, char: str, times: str) -> str:
        """Send such a body; show whether it is none that can be read."""
        body = make_bytes([char]) * int(times)
        answer = await self.connections[name].send_request(post(body))
        return f"{answer.status} {answer.body[:28].decode()}"

    async def do_read(self, name: str) -> str:
        return _describe(await self.connections[name].read())

    async def do_rest(self, *names: str) -> str:
        """Show what still comes until the server ends the connections."""
        found = [await self.connections[name].rest() for name in names]
        return " ".join(_describe_rest(one) for one in found)

    async def do_garble(self, *pieces: str) -> str:
        """Send bytes and a review; show the end of the connection. The next is served."""
        await self.do_open("g")
        self.connections["g"].writer.write(make_bytes(pieces) + make_request(()))
        said = await self.do_rest("g")
        assert self.served.hook.reviewed == []
        assert (await self.do_post("-")) == "200 allowed"
        return said

    async def do_renew(self) -> None:
        """Have another certificate, of another CA, be served from now on."""
        self.old = self.served.client_context
        contexts.cache_clear()
        self.served.server_context, self.served.client_context = contexts()

    async def do_distrust(self) -> str:
        """Connect as one who trusts the former CA."""
        self.served.client_context = self.old
        try:
            await self.served.connect()
        except OSError as error:
            return type(error).__name__
        return "connected"

    # The hook

    async def do_hook(self, how: str) -> None:
        """Have it answer otherwise: `refuses`, `warns`, `patches`; or it `breaks` or `hangs`."""
        acts = {"breaks": self._break, "hangs": self._hang}
        self.served.hook.act = acts.get(how)
        self.served.hook.verdict = VERDICTS.get(how, FINE)

    async def _break(self, review: Review, until: timedelta) -> Verdict:
        raise TimeoutError("my own")

    async def _hang(self, review: Review, until: timedelta) -> Verdict:
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1
        return FINE

    async def do_ended(self) -> str:
        """Wait until a hook that hangs is cancelled."""
        async with asyncio.timeout(10):
            while not self.ended:  # noqa: ASYNC110 (no event)
                await asyncio.sleep(0.001)
        return f"{self.ended} cancelled"

    async def do_begun(self) -> None:
        """Wait until a review has reached the hook."""
        await self.served.hook.begun.wait()

    async def do_deadline(self, query: str = "") -> str:
        """Show how much time a review has."""
        begin = self.served.clock.elapsed()
        await self.do_post("-", f"path={PATH}{query}")
        span = (self.served.hook.until[-1] - begin).total_seconds()
        return f"{int(span / GRAIN + 0.01) * GRAIN:g}s"

    async def do_replicas(self) -> str:
        """Show what the hook got last."""
        review: Any = self.served.hook.reviewed[-1]
        return f"{review.old.replicas} to {review.new.replicas}, dry run {review.dry_run}"

    # The server

    async def do_drain(self, span: str = "10s") -> None:
        self.tasks["drain"] = self.start(self.served.server.drain(_span(span)))
        await asyncio.sleep(0)

    async def do_drained(self) -> None:
        async with asyncio.timeout(10):
            await self.tasks["drain"]

    async def do_leave(self) -> None:
        self.served.server.leave()

    async def do_stop(self) -> None:
        await self.served.server.stop()

    async def do_start(self) -> None:
        await self.served.server.start()

    async def do_state(self) -> str:
        draining = self.tasks.get("drain")
        is_draining = ", draining" * (draining is not None and not draining.done())
        return ("serving" if self.served.server.is_serving else "not serving") + is_draining

    async def do_given(self) -> str:
        """Show how often the certificate was read."""
        return f"{self.served.given} given"

    async def do_asked(self) -> str:
        """Show which verdicts were reported, and whether the right to patch was looked up."""
        asked, self.asked = self.asked, []
        return " ".join(asked) or "none"

    async def do_log(self, word: str, how: str = "") -> str:
        """Show the lines of the log with a word, also `full`, and forget all."""
        found = [line for line in self.log if word in line]
        self.log.clear()
        full = [" ".join(line.split(" ", 2)[::2]).strip() for line in found]
        short = [" ".join(_WORDS.findall(line)) + _STACK * (_STACK in line) for line in found]
        return "\n".join(full if how else short) or "nothing"

    async def do_series(self, name: str, word: str = "") -> str:
        return "\n".join(line for line in self.served.series(name) if word in line)


def make_request(words: Sequence[str]) -> bytes:
    how = read_words(words, _HOW)
    request: dict[str, Any] = {}
    if "user" in how:
        name = how["user"].encode().decode("unicode_escape")
        request["userInfo"] = {"username": name, "groups": ["system:authenticated"]}
    if "scale" in how:
        request["subResource"] = "scale"
    if "dry" in how:
        request["dryRun"] = True
    if "gone" in how:
        request["object"] = None
    version = how.get("version", "v1")
    body = json.dumps(review_tree(f"admission.k8s.io/{version}", **request)).encode()
    body = how["body"].encode() if "body" in how else body
    size = SIZES.get(how.get("size", ""), 0) or int(how.get("size", 0))
    body += b" " * (size - len(body))
    announced = SIZES.get(how.get("length", ""), 0) or int(how.get("length", len(body)))
    whole = post(body)
    body = body[:-1] if "last" in how or "then" in how else body
    headers = [how["header"].replace(r"\r\n", "\r\n")] if "header" in how else []
    made = post(body, *headers, path=how.get("path", PATH), length=announced)
    made = made.replace(b"POST", how.get("method", "POST").encode(), 1)
    if "type" in how:
        kind = f"Content-Type: {how['type']}\r\n".encode() if how["type"] else b""
        made = made.replace(b"Content-Type: application/json\r\n", kind)
    return whole * ("then" in how) + made * int(how.get("times", 1))


def make_bytes(pieces: Sequence[str]) -> bytes:
    made = b""
    for piece in pieces:
        text, star, times = piece.rpartition("*")
        is_many = bool(star) and times.isdigit()
        plain = text if is_many else piece
        plain = plain.replace("{head}", HEAD).replace("{chunked}", CHUNKED)
        part = plain.encode().decode("unicode_escape").encode("latin-1")
        made += part * (int(times) if is_many else 1)
    return made


def _describe(answer: Answer) -> str:
    words = [str(answer.status)]
    if answer.headers.get("content-type") == "application/json":
        is_plain = answer.body == ALLOWED
        words.append("allowed" if is_plain else _digest(json.loads(answer.body)))
    else:
        words.append(answer.body.decode().strip())
    if answer.headers.get("connection") == "close":
        words.append("and is the last")
    if "allow" in answer.headers:
        words.append(f"(allow {answer.headers['allow']})")
    return " ".join(words)


def _digest(tree: dict[str, Any]) -> str:
    if "response" not in tree:
        return json.dumps(tree)
    response, status = tree["response"], tree["response"].get("status", {})
    version = tree["apiVersion"].rpartition("/")[2]
    words = [
        version * (version != "v1"),
        "allowed" if response["allowed"] else "refused",
        str(status.get("code", "")),
        status.get("message", ""),
        *response.get("warnings", []),
        "patched" * ("patchType" in response),
    ]
    return " ".join(filter(None, words))


def _describe_rest(raw: bytes) -> str:
    answers = raw.count(b"\r\nDate: ")
    status = raw[9:12].decode() if raw.startswith(b"HTTP/") else ""
    return " ".join(filter(None, [status, f"x{answers}" * (answers > 1), "ended"]))


def _span(text: str) -> timedelta:
    number = float(text.rstrip("hms"))
    if text.endswith("ms"):
        return timedelta(milliseconds=number)
    return LONG * number if text.endswith("h") else timedelta(seconds=number)
