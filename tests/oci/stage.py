"""The commands of stories of registries: what they hold, want and answer, and what is read of them.

There are two, of which the first is called, with TLS. A manifest or blob is `$name` by its digest;
ALL are texts that leave none out. A request is shown with the credential it carries, of the account
robot or a token. After each failed call: nothing of a credential is in the error, nor in a log.
"""

import asyncio
import base64
import gzip
import re
import traceback
from datetime import timedelta
from typing import Any, Final

import msgspec
import yaml
from aiohttp import web

from rollout_operator.aio.clock import LoopClock
from rollout_operator.outbound import Route
from rollout_operator.releases.registry import RESULTS, RegistryAccess, RegistryError
from tests import stories
from tests.oci.registries import (
    CONFIG,
    INDEX,
    MANIFEST,
    NAME,
    Answer,
    FakeRegistry,
    Seen,
    access,
    endless,
    hang,
    labels,
    open_reader,
    refuse,
    reply,
)

DOCKER: Final = "application/vnd.docker"
KINDS: Final = {
    "MANIFEST": MANIFEST,
    "INDEX": INDEX,
    "CONFIG": CONFIG,
    "DOCKER": f"{DOCKER}.distribution.manifest.v2+json",
    "LIST": f"{DOCKER}.distribution.manifest.list.v2+json",
    "IMAGE": f"{DOCKER}.container.image.v1+json",
    "V1": f"{DOCKER}.distribution.manifest.v1+json",
    "FLUX": "application/vnd.cncf.flux.config.v1+json",
    "HTML": "text/html",
}
ALL: Final = {
    "version": "1.0.0",
    "revision": "main@1",
    "source": "https://x/y",
    "title": "App",
    "description": "An app",
    "created": "2026-01-02T03:04:05Z",
}
ZEROS: Final = {"zero": f"sha256:{'0' * 64}", "one": f"sha256:{'1' * 64}"}
BASIC: Final = f"Basic {base64.b64encode(b'robot:hidden').decode()}"
ENTRIES: Final = {
    "robot": {"username": "robot", "password": "hidden"},
    "identity": {"identitytoken": "hidden", "auth": base64.b64encode(b"0:").decode()},
    "token": {"registrytoken": "abc"},
}
SHOWN: Final = {BASIC: " by robot", "Bearer abc": " by token", None: ""}


class AheadClock:
    """A clock that a story sets."""

    def __init__(self) -> None:
        self.now = LoopClock().now
        self.at = timedelta(0)

    def elapsed(self) -> timedelta:
        return self.at


class RegistryStage(stories.Steps):
    def __init__(self, lines: list[str]) -> None:
        self.registry, self.store, self.lines = FakeRegistry(), FakeRegistry(), lines
        self.clock = AheadClock()
        self.reader = open_reader(clock=self.clock)
        self.digests = dict(ZEROS)
        self.form: dict[str, object] = {}
        self.seen = {"": 0, "store ": 0}

    async def set_up(self) -> None:
        await self.stack.enter_async_context(self.registry)
        await self.stack.enter_async_context(self.store)
        self.stack.push_async_callback(lambda: self.reader.exchange.close())

    def look(self) -> list[str]:
        found: list[str] = []
        for mark, registry in (("", self.registry), ("store ", self.store)):
            new = registry.seen[self.seen[mark] :]
            self.seen[mark] = len(registry.seen)
            found += [f"{mark}{self._show_request(one)}" for one in new]
        return [f"calls {', '.join(found)}"] * bool(found)

    def _show_request(self, seen: Seen) -> str:
        query = "".join(f" {key}={text}" for key, text in sorted(seen.query.items()))
        form = f" {self.form}" if seen.method == "POST" else ""
        path = seen.path.removeprefix(f"/v2/{NAME}/")
        return self._shorten(f"{seen.method} {path}{query}{form}") + SHOWN[seen.shown]

    def _shorten(self, text: str) -> str:
        for name, digest in self.digests.items():
            text = text.replace(digest, f"${name}")
        for name, kind in KINDS.items():
            text = text.replace(kind, name)
        return text.replace(self.registry.host, "HOST").replace(self.store.host, "STORE")

    async def do_wait(self, seconds: float) -> None:
        self.clock.at += timedelta(seconds=seconds)

    async def do_push(self, name: str, kind: str, *text: str) -> None:
        """Keep a manifest under a tag: `push 1.0.0 MANIFEST {config: {digest: $blob}}`."""
        self.digests[name] = self.registry.push(name, self._read(text), KINDS[kind])

    async def do_blob(self, name: str, *text: str) -> None:
        self.digests[name] = self.registry.push_blob(self._read(text))

    async def do_fetch(self, tag: str = "1.0.0", *words: str) -> str:
        """Read a tag: `fetch 1.0.0 as=robot digest=$x`; a `stranger` does not know the CA."""
        given = dict(word.partition("=")[::2] for word in words)
        digest = self.digests[given["digest"][1:]] if "digest" in given else None
        route = access(self.registry, ENTRIES.get(given.get("as", "")))
        if "stranger" in given:
            route = RegistryAccess(is_insecure=True, route=Route())
        try:
            found = await self.reader.client.fetch_release(self.registry.image(tag, digest), route)
        except RegistryError as error:
            return self._show_error(tag, error)
        assert self.reader.results[-1] == "ok"
        fields = msgspec.structs.asdict(found)
        shown = [f"{key}={text if len(f'{text}') < 99 else f'{len(text)} characters'}"
                 for key, text in fields.items() if text]  # fmt: skip
        return self._shorten(" ".join(shown))

    def _show_error(self, tag: str, error: RegistryError) -> str:
        text = f"{error}"
        begin = f"cannot read tag {tag} of {NAME} in registry {self.registry.host}: "
        assert text.startswith(begin)
        assert "\n" not in text
        known = [error, *_list_causes(error)]
        secret = "".join([*self.lines, *traceback.format_exception(error), *map(repr, known)])
        assert "hidden" not in secret
        assert BASIC.removeprefix("Basic ") not in secret
        modules = {type(one).__module__.partition(".")[0] for one in known}
        assert modules <= {"rollout_operator", "asyncio", "builtins"}, (
            "else it holds all that was sent"
        )
        wait = error.retry_after
        later = f" (after {wait.total_seconds():g} s)" if wait else ""
        assert self.reader.results[-1] == RESULTS[type(error)]
        return self._shorten(f"{type(error).__name__}{later}: {text.removeprefix(begin)}")

    async def do_limit(self, what: str) -> None:
        """A client that gives a request, or all of them together, 300 ms."""
        short = timedelta(milliseconds=300)
        await self.reader.exchange.close()
        self.reader = open_reader(short) if what == "each" else open_reader(total=short)

    async def do_close(self) -> None:
        await self.reader.exchange.close()

    async def do_at(self, path: str, word: str, *rest: str) -> None:
        """Answer otherwise at a path: that of a tag, of a digest, or `/token`."""
        self.registry.at[self._find(path)] = self._answer(word, rest)

    async def do_store(self, path: str, word: str, *rest: str) -> None:
        """Answer so in the other registry."""
        self.store.at[path] = self._answer(word, rest)

    async def do_heads(self, status: str) -> None:
        """It knows no HEAD."""
        self.registry.guard = lambda request: (
            refuse(int(status), "UNSUPPORTED") if request.method == "HEAD" else None
        )

    async def do_wants(self, accepted: str, *challenge: str) -> None:
        """Only what is accepted is answered: by `robot`, by the token `abc`, or nothing."""
        wanted = {"robot": BASIC, "abc": "Bearer abc"}.get(accepted, accepted)
        text = self._fill(" ".join(challenge))
        self.registry.guard = lambda request: (
            refuse(401, "UNAUTHORIZED", WWW_Authenticate=text)
            if request.headers.get("Authorization") != wanted and request.path != "/token"
            else None
        )

    def _find(self, path: str) -> str:
        if path.startswith("$"):
            digest = self.digests[path[1:]]
            return next(stored for stored in self.registry.stored if stored.endswith(digest))
        return path if path.startswith("/") else f"/v2/{NAME}/manifests/{path}"

    def _answer(self, word: str, rest: tuple[str, ...]) -> Answer:
        if word.isdigit():
            headers = [self._fill(one) for one in rest if "=" in one]
            pairs = dict(one.split("=", 1) for one in headers)
            body = b"".join(self._build_body(one) for one in rest if "=" not in one)
            return reply(int(word), body, **pairs)
        return {"hang": hang, "trickle": trickle, "reset": reset, "breaks": break_off,
                "refuses": refuse_oddly, "grant": self._grant, "wrong": wrong_digest,
                "endless": endless([])}[word]  # fmt: skip

    def _build_body(self, word: str) -> bytes:
        if word.startswith("$"):
            return self.registry.stored[self._find(word)].body
        if word.startswith("bomb"):
            return gzip.compress(bytes(10**7))
        count, _, text = word.rpartition("*")
        return text.encode() * int(count or 1)

    async def _grant(self, request: web.Request) -> web.Response:
        self.form = dict(await request.post())
        return web.json_response({"access_token": "abc"})

    def _fill(self, text: str) -> str:
        text = re.sub(r"(\d+)\*x", lambda found: "x" * int(found[1]), text)
        return text.replace("HOST", self.registry.url).replace("STORE", self.store.url)

    def _read(self, text: tuple[str, ...]) -> Any:
        found: object = yaml.BaseLoader(" ".join(text)).get_single_data()
        return self._expand(found)

    def _expand(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            found = {name: self._expand(one, name) for name, one in value.items()}
            return labels(**found) if key in ("annotations", "Labels") else found
        if isinstance(value, list):
            return [self._expand(one) for one in value]
        if value == "ALL":
            return labels(**ALL)
        if value.startswith("$"):
            return self.digests[value[1:]]
        return KINDS.get(value, self._fill(value))


async def break_off(request: web.Request) -> web.StreamResponse:
    """Promise more than is sent."""
    response = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": MANIFEST})
    await response.prepare(request)
    await response.write(b"{}")
    return await reset(request)


async def reset(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def trickle(request: web.Request) -> web.StreamResponse:
    """Send a byte now and then, for ever."""
    response = web.StreamResponse(headers={"Content-Type": MANIFEST})
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.05)


async def refuse_oddly(request: web.Request) -> web.StreamResponse:
    return refuse(500, "UNKNOWN")


async def wrong_digest(request: web.Request) -> web.StreamResponse:
    """Name another digest beside the content; no HEAD shows it before."""
    if request.method == "HEAD":
        return refuse(405, "UNSUPPORTED")
    headers = {"Docker-Content-Digest": f"sha512:{'0' * 128}", "Content-Type": MANIFEST}
    return web.Response(body=b'{"config": {}}', headers=headers)


def _list_causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    for one in (error.__cause__, error.__context__):
        if one is not None and one not in found:
            found += [one, *_list_causes(one)]
    return found
