"""The commands of stories of the client: what a scripted HTTP server answers to each use of it.

`each 404:NotFound` has all uses answered so and shows what came of each, `each hang writes` some.
Answers after one another are joined by `/`. What every request has to carry is always checked.
"""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from rollout_operator import __version__
from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import (
    DEFAULT_TIMEOUTS,
    PODS,
    SERVICES,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    JsonObject,
    Page,
    Timeouts,
    no_fence,
)
from rollout_operator.kube.client import Client
from rollout_operator.kube.kubeconfig import token_file
from rollout_operator.kube.rate_limit import RateLimiter
from rollout_operator.model.names import (
    ApiError,
    InvalidInput,
    NotElected,
    Throttled,
    TooManyRequests,
)
from tests import stories
from tests.kube.fake_api import (
    SHORT,
    THIS,
    Answer,
    FakeApi,
    cut,
    event,
    pods,
    refuse,
    reply,
    stream,
)

Run = Callable[[Client], Awaitable[object]]

PODS_PATH: Final = "/api/v1/namespaces/prod/pods"
SETS_PATH: Final = "/apis/apps/v1/namespaces/prod/statefulsets"
HOOKS_PATH: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
GROUP: Final = "x.example.org"
GUARD: Final = "metadata.name=guard"
SERVICE: Final = "/api/v1/namespaces/prod/services/a:80/proxy/status.json"
FAR: Final = "Sun, 29 Nov 2099 18:00:00 GMT"
WRITTEN: Final[JsonObject] = {"spec": {"replicas": 1}}
STEPS: Final[list[JsonObject]] = [{"op": "remove", "path": "/spec/replicas"}]
READS: Final = ("fetch", "page", "watch")
BARE: Final = ("delete", "status")
OBJECTS: Final = ("create", "replace", "patch", "json-patch")
ALL: Final = {"all": (*READS, *BARE, *OBJECTS), "reads": READS, "writes": (*BARE, *OBJECTS),
              "bare": BARE, "objects": OBJECTS}  # fmt: skip
HEAD: Final = "HTTP/1.1 {} X\r\nContent-Type: application/json\r\n{}\r\n\r\n"
CHUNKED: Final = HEAD.format(200, "Transfer-Encoding: chunked").encode()


def read_watch(seconds: float, what: Any = PODS, namespace: str = "prod", **how: Any) -> Run:
    async def run(client: Client) -> object:
        how.setdefault("resource_version", "5")
        lasts = timedelta(seconds=seconds)
        async with client.watch(what, namespace, lasts=lasts, **how) as events:
            return " ".join([one.type async for one in events])

    return run


def with_deep_owners(body: JsonObject) -> JsonObject:
    """Return an object whose owners of fields nest deeply."""
    deep: dict[str, object] = {}
    for _ in range(900):
        deep = {"f:a": deep}
    return {"metadata": {"name": "a", "managedFields": [deep]}, **body}


USES: Final[dict[str, tuple[str, Run]]] = {
    "fetch": (f"GET {PODS_PATH}/a-0", lambda c: c.fetch(PODS, "prod", "a-0")),
    "page": (f"GET {PODS_PATH}", lambda c: c.fetch_page(PODS, "prod")),
    "watch": (f"GET {PODS_PATH}", read_watch(1)),
    "delete": (
        f"DELETE {PODS_PATH}/a-0", lambda c: c.delete(PODS, "prod", "a-0", precondition=THIS)
    ),
    "status": (
        f"PUT {SETS_PATH}/a/status",
        lambda c: c.replace_status(STATEFULSETS, "prod", "a", {"status": {"replicas": 1}}),
    ),
    "create": (
        f"POST {SETS_PATH}", lambda c: c.create(STATEFULSETS, "prod", {"metadata": {"name": "a"}})
    ),
    "replace": (f"PUT {SETS_PATH}/a", lambda c: c.replace(STATEFULSETS, "prod", "a", WRITTEN)),
    "patch": (f"PATCH {SETS_PATH}/a", lambda c: c.patch(STATEFULSETS, "prod", "a", WRITTEN)),
    "json-patch": (f"PATCH {SETS_PATH}/a", lambda c: c.patch(STATEFULSETS, "prod", "a", STEPS)),
    # Further ones, which `each` leaves out
    "status-deep": (
        f"PUT {SETS_PATH}/a/status",
        lambda c: c.replace_status(STATEFULSETS, "prod", "a", with_deep_owners(WRITTEN)),
    ),
    "replace-deep": (
        f"PUT {SETS_PATH}/a",
        lambda c: c.replace(STATEFULSETS, "prod", "a", with_deep_owners(WRITTEN)),
    ),
    "patch-nothing": (f"PATCH {SETS_PATH}/a", lambda c: c.patch(STATEFULSETS, "prod", "a", {})),
    "no-steps": (f"PATCH {SETS_PATH}/a", lambda c: c.patch(STATEFULSETS, "prod", "a", [])),
    "apply": (
        f"PATCH {SETS_PATH}/a",
        lambda c: c.apply(STATEFULSETS, "prod", "a", WRITTEN, manager="a/b"),
    ),
    "apply-forced": (
        f"PATCH {SETS_PATH}/a",
        lambda c: c.apply(STATEFULSETS, "prod", "a", WRITTEN, manager="a/b", is_forced=True),
    ),
    "delete-soon": (
        f"DELETE {PODS_PATH}/a-0",
        lambda c: c.delete(
            PODS, "prod", "a-0", precondition=THIS, sent_within=timedelta(seconds=5)
        ),
    ),
    "some": (
        f"GET {PODS_PATH}",
        lambda c: c.fetch_page(PODS, "prod", selector="a in (b,c),!d", limit=2),
    ),
    "next": (
        f"GET {PODS_PATH}",
        lambda c: c.fetch_page(PODS, "prod", limit=2, token="next+/=", resource_version="0"),
    ),
    "cached": (f"GET {PODS_PATH}", lambda c: c.fetch_page(PODS, "prod", resource_version="0")),
    "turn": (f"GET {PODS_PATH}", lambda c: c.wait_turn(PODS, "prod")),
    "page-of-turn": (f"GET {PODS_PATH}", lambda c: c.fetch_page(PODS, "prod", has_turn=True)),
    "watch-some": (f"GET {PODS_PATH}", read_watch(40.4, selector="a=b", resource_version="")),
    "watch-state": (f"GET {PODS_PATH}", read_watch(60, resource_version="", has_state=True)),
    "watch-long": (f"GET {PODS_PATH}", read_watch(600)),
    "hooks": (
        f"GET {HOOKS_PATH}",
        lambda c: c.fetch_page(VALIDATING_WEBHOOKS, "", field_selector=GUARD),
    ),
    "watch-hooks": (
        f"GET {HOOKS_PATH}", read_watch(5, VALIDATING_WEBHOOKS, "", field_selector=GUARD)
    ),
    "patch-hook": (
        f"PATCH {HOOKS_PATH}/guard", lambda c: c.patch(VALIDATING_WEBHOOKS, "", "guard", {})
    ),
    "try-create": (
        f"POST {PODS_PATH}", lambda c: c.try_write("create", PODS, "prod", {"kind": "Pod"})
    ),
    "try-scale": (
        f"PATCH {SETS_PATH}/a/scale",
        lambda c: c.try_write("patch", STATEFULSETS, "prod", WRITTEN, "a", "scale"),
    ),
    "try-evict": (
        f"POST {PODS_PATH}/a-0/eviction",
        lambda c: c.try_write("create", PODS, "prod", {"kind": "Eviction"}, "a-0", "eviction"),
    ),
    "scale": (f"GET {SETS_PATH}/a/scale", lambda c: c.fetch(STATEFULSETS, "prod", "a", "scale")),
    "group": (f"GET /apis/{GROUP}", lambda c: c.fetch_group(GROUP)),
    "core": ("GET /api", lambda c: c.fetch_group("")),
    "odd-group": ("GET /apis/..", lambda c: c.fetch_group("../api/v1/secrets")),
    "kinds": (f"GET /apis/{GROUP}/v2", lambda c: c.fetch_resources(GROUP, "v2")),
    "core-kinds": ("GET /api/v1", lambda c: c.fetch_resources("", "v1")),
    "service": (
        f"GET {SERVICE}", lambda c: c.fetch(SERVICES, "prod", "a:80", "proxy/status.json")
    ),
}  # fmt: skip


class CallStage(stories.Steps):
    """A client on a server of its own."""

    def __init__(self, tmp_path: Path, lines: list[str]) -> None:
        self.folder, self.lines = tmp_path, lines
        self.released = asyncio.Event()
        self.how: dict[str, Any] = {}
        self.shown = 0

    async def set_up(self) -> None:
        self.server = await self.stack.enter_async_context(FakeApi())
        self.stack.callback(self.released.set)

    def _client(self) -> Client:
        timeouts = self.how.get("timeouts", DEFAULT_TIMEOUTS)
        return self.server.client(self.limits, timeouts, self.how.get("fence", no_fence))

    limits: RateLimiter | None = None

    # The server

    async def do_on(self, use: str, answers: str) -> None:
        """Script the answers to a use."""
        method, path = USES[use][0].split()
        self.server.on(method, path, *(self._answer(use, one) for one in answers.split("/")))

    def _answer(self, use: str, word: str) -> Answer:
        if found := re.fullmatch(r"(\d+):(\w+)", word):
            grants = (
                f'forbidden: User "x" cannot get {"path" if "group" in use else "resource"} "x"'
            )
            message = grants if found[1] == "403" else "because"
            return refuse(int(found[1]), found[2], message, Retry_After="3", Date=FAR)
        if word.startswith("30"):
            return reply({}, int(word), Location="/elsewhere")
        if word.startswith("json"):
            status, _, body = word[4:].partition(":")
            raw = body.encode()
            if "\\" in body:
                raw = raw.decode("unicode_escape").encode("latin-1")
            return reply(raw, int(status or 200), Date=FAR)
        both = event("ADDED", 6) + event("BOOKMARK", 9)
        return {
            "ok": reply(pods(0)) if use in ("page", "hooks") else reply({}, 201),
            "events": stream([both[:20], both[20:21], both[21:]]),
            "none": stream([]),
            "silent": stream(self._wait_after(event("ADDED", 6))),
            "hang": self._hang,
            "cut": cut(),
            "half": cut(HEAD.format(200, "Content-Length: 999").encode() + b'{"items":[]}'),
            "half409": cut(HEAD.format(409, "Content-Length: 999").encode() + b"{"),
            "chunk": cut(CHUNKED + b'20\r\n{"type":"ADD'),
            "head": cut(CHUNKED),
            "part": stream([event("ADDED", 6)[:-9]]),
            "garbage": stream([b"not json\n"]),
            "brackets": stream([b'{"type":"ADDED","object":' + b"[" * 100_000 + b"\n"]),
            "18MB": stream([b"x" * 9_000_000, b"y" * 9_000_000]),
            "endless": stream(self._endless()),
            "html": reply(b"<html>", 200, Content_Type="text/html"),
            "html502": reply(b"<p>\n" * 1_000_000, 502, Content_Type="text/html"),
            "page404": reply(b"404 page not found\n", 404),
            "plain404": reply(b"404 page not found\n", 404, Content_Type="text/plain"),
            "plain401": reply(b"set\n", 401, Content_Type="text/plain"),
            "pods": reply(pods(2, "100", "next+/=")),
            "null": reply({"metadata": {"resourceVersion": "3"}, "items": None}),
            "other": reply(_OTHER_CLUSTER, 511),
            "versions": reply({"versions": [{"version": "v2"}, {"version": "v1"}]}),
            "things": reply(_THINGS),
        }[word]  # fmt: skip

    async def _hang(self, request: web.BaseRequest) -> web.StreamResponse:
        await self.released.wait()
        return web.json_response({})

    async def _wait_after(self, first: bytes) -> AsyncIterator[bytes]:
        yield first
        await self.released.wait()

    async def _endless(self) -> AsyncIterator[bytes]:
        while True:
            yield b" " * 1_000_000

    async def do_gone(self) -> None:
        """Have the client call a server that is not there."""
        async with FakeApi() as server:
            url = server.url
        self.server.connect(url)

    async def do_mute(self) -> None:
        """Have it call one that takes connections and says nothing."""
        self.server.connect(await self.stack.enter_async_context(silence()))

    # The client

    async def do_client(self, *words: str) -> None:
        """Have it limits, `qps=0.1 burst=1`, a fence, `fence=0.1`, or other timeouts."""
        how = dict(word.split("=") for word in words)
        if "qps" in how:
            self.limits = RateLimiter(float(how["qps"]), int(how["burst"]))
        if "at_most" in how:
            self.how["timeouts"] = Timeouts().at_most(timedelta(seconds=float(how["at_most"])))
        if how.get("timeouts") == "short":
            self.how["timeouts"] = SHORT
        if "fence" in how:
            self.how["fence"] = _keep if how["fence"] == "keep" else (
                lambda call: timedelta(seconds=float(how["fence"]))
            )  # fmt: skip

    async def do_token(self, text: str) -> None:
        """Give it a token in a file, or change it there."""
        file = self.folder / "token"
        is_new = not file.exists()
        file.write_text(text)
        if is_new:
            credential = token_file(file, LoopClock())
            self.server.connect(credential=credential)

    async def do_run(self, use: str, times: str = "x1", within: str = "20") -> str:
        found = []
        for _ in range(int(times[1:])):
            async with asyncio.timeout(float(within)):
                found.append(await self._run(use))
        return ", ".join(found)

    async def _run(self, use: str) -> str:
        self.has_failed = False
        try:
            result = await USES[use][1](self._client())
        except (ApiError, InvalidInput) as error:
            self.has_failed = True
            return _digest(error)
        finally:
            self._check_requests()
        if isinstance(result, Page):
            items: Any = [msgspec.json.decode(item) for item in result.items]
            assert items == [{"metadata": {"name": f"a-{n}"}} for n in range(len(items))]
            token = f" then {result.next_token}" if result.next_token else ""
            return f"{len(result.items)} of version {result.resource_version}{token}"
        if isinstance(result, tuple):
            return " ".join(_show(one) for one in result) or "none"
        return result.decode() if isinstance(result, bytes) else f"{result or 'done'}"

    async def do_each(self, answers: str, uses: str = "all", runs: str = "x1") -> str:
        """Show what comes of each use, after how many requests, with the last of some runs."""
        found: dict[str, list[str]] = defaultdict(list)
        for use in ALL.get(uses) or uses.split(","):
            method, path = USES[use][0].split()
            good = "none" if use == "watch" else "ok"
            self.server._answers.pop((method, path), None)
            await self.do_on(use, answers.replace("ok", good))
            before = len(self.server.requests)
            outcome = (await self.do_run(use, runs)).rpartition(", ")[2]
            outcome = outcome if self.has_failed else "succeeds"
            count = len(self.server.requests) - before
            found[outcome + f" after {count} requests" * (count != 1)].append(use)
        return "\n".join(f"{outcome}: {' '.join(names)}" for outcome, names in found.items())

    def _check_requests(self) -> None:
        for one in self.server.requests:
            assert one.headers["x-cluster"] == "ops"
            assert one.headers["user-agent"] == f"rollout-operator/{__version__}"
            assert one.headers["accept"] == "application/json"
            assert one.headers["accept-encoding"] == "identity"

    # What is shown

    async def do_sent(self) -> str:
        """Show the requests since the last time."""
        requests, self.shown = self.server.requests[self.shown :], len(self.server.requests)
        shown = []
        for one in requests:
            query = "&".join(f"{key}={value}" for key, value in one.query.items())
            kind = one.headers.get("content-type", "").removeprefix("application/")
            body = json.dumps(one.json) if one.body else ""
            token = one.headers.get("authorization", "")
            path = re.sub(r".*/(namespaces/prod|v1)/", "", one.path)
            parts = (one.method, path + f"?{query}" * bool(query), kind, body, token)
            shown.append(" ".join(filter(None, parts)))
        return "\n".join(shown) or "nothing"

    async def do_count(self) -> str:
        return f"{len(self.server.requests)} requests"

    async def do_measured(self) -> str:
        found = sorted(self.server.measured().items())
        return ", ".join(f"{' '.join(key)} x{value:g}" for key, value in found) or "nothing"

    async def do_counted(self) -> str:
        metrics = self.server.metrics
        limited = metrics.api_rate_limited.labels("core")._value
        other = metrics.client_invalid_cluster.labels("api_pods", "http", "ops")._value
        return f"limited {limited:g}, of another cluster {other:g}"

    async def do_latency(self) -> str:
        labels = ("core/v1/pods object", "GET", "200")
        total = self.server.metrics.api_request_duration.labels(*labels)._sum
        return "short" if total < 0.15 else f"{total} s"

    async def do_time(self) -> str:
        """Show the year of the server's time, by this client and a new one."""
        times = [client.server_time() for client in (self._client(), self.server.client())]
        return " ".join(f"{one.year}" if one else "unknown" for one in times)

    async def do_log(self, *words: str) -> str:
        return f"{sum(' '.join(words) in line for line in self.lines)} lines"


_OTHER_CLUSTER: Final[JsonObject] = {
    "cluster_validation_error_message": 'wrong label "ops"', "route": "api_pods"
}  # fmt: skip
_THINGS: Final[JsonObject] = {
    "resources": [
        {"name": "things", "kind": "Thing", "namespaced": True},
        {"name": "things/scale", "kind": "Scale", "namespaced": True},
    ]
}


def _digest(error: ApiError | InvalidInput) -> str:
    """Return class and problem, without call, address, time or cause."""
    text = str(error)
    assert text.isprintable()
    assert len(text) < 1000
    assert not re.search("Bearer (first|second|third)", f"{error!r} {text}")
    kind = next(one.__name__ for one in type(error).__mro__ if one.__name__[0] != "_")
    if not isinstance(error, ApiError):
        return kind
    problem = str(error.problem).replace(error.call or "-", "it").partition(": <")[0]
    problem = re.sub(r"127\.0\.0\.1:\d+(/\S*)?", "it", problem).partition(": the next token")[0]
    problem = problem.rpartition("; ")[2] if "; grant" in problem else problem[:90]
    status = f"{error.status}"
    shown = "" if status == "0" or problem.startswith(status) else f" {status}"
    retry = getattr(error, "retry_after", None) if isinstance(error, TooManyRequests) else None
    after = f"; again in {retry.total_seconds():g}s" if retry else ""
    of = f" {error.call}:" if isinstance(error, Throttled) else ""
    return f"{kind}{shown}{of} {problem}{after}".replace(", ", "; ")


def _show(one: Any) -> str:
    if isinstance(one, str):
        return one
    return f"{one.resource.kind} {one.resource.plural} {' '.join(one.subresources)}"


def _keep(call: str) -> timedelta | None:
    raise NotElected(f"cannot {call}", call=call)


@asynccontextmanager
async def silence() -> AsyncIterator[str]:
    """Take connections and say nothing, so that no handshake comes to its end; yield the URL."""
    closing = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await closing.wait()
        writer.transport.abort()

    async with await asyncio.start_server(wait, "127.0.0.1", 0) as server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        closing.set()
