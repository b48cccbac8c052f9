"""The commands of stories of the admin server: `get /ready x-cluster=dev` and `raw` bytes.

An answer is shown by its status, kind and first line; `raw` ones by their status.
"""

import asyncio
import re
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Final
from urllib.parse import urljoin

from aiohttp import ClientResponse
from msgspec.structs import replace
from multidict import CIMultiDict

from rollout_operator.model.names import ConfigError
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.admin import AdminServer
from rollout_operator.web.middleware import ClusterRules, name_route
from tests.recorded_spans import recorded
from tests.stories import Steps, read_words
from tests.web.http.stage import make_bytes
from tests.web.served import RULES, ServedAdmin, serving_admin

MOST: Final = 40
"""Characters of the first line of a page that are shown."""
ALWAYS: Final = {
    "Server": "rollout-operator",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_WORDS: Final = re.compile(r'(?:level|route|label|peer|rejected)=("(?:\\.|[^"])*"|\S+)')


class AdminStage(Steps):
    """A server without cluster validation, before there is an operator."""

    def __init__(self, lines: list[str]) -> None:
        self.log = lines
        self.parts: dict[str, str] = {}

    async def set_up(self) -> None:
        await self._begin(RULES)

    async def _begin(self, rules: ClusterRules) -> None:
        await self.stack.aclose()
        self.served: ServedAdmin = await self.stack.enter_async_context(serving_admin(rules))

    async def do_cluster(self, *words: str) -> str | None:
        """Begin anew with validation, `soft`, excluding `paths` and `agents`; or `off`."""
        how = read_words(words, "off soft paths agents")
        lists = [tuple(filter(None, how.get(key, "").split(","))) for key in ("paths", "agents")]
        rules = replace(RULES, enabled="off" not in how, soft="soft" in how)
        rules = replace(rules, excluded_paths=lists[0], excluded_user_agents=lists[1])
        try:
            await self._begin(rules)
        except ConfigError as error:
            return f"{error}"
        return None

    # Requests

    async def do_get(self, path: str, *words: str) -> str:
        return await self._request("GET", path, words)

    async def do_head(self, path: str, *words: str) -> str:
        return await self._request("HEAD", path, words)

    async def do_send(self, method: str, path: str, *words: str) -> str:
        return await self._request(method, path, words)

    async def _request(self, method: str, path: str, words: Sequence[str]) -> str:
        """Send with headers; `x*9` is nine of x."""
        pairs = (word.partition("=")[::2] for word in words)
        headers = CIMultiDict((key, make_bytes([value]).decode()) for key, value in pairs)
        url = self.served.url(path)
        body = b"" if method in ("GET", "HEAD") else b"x" * 100
        async with self.served.client.request(method, url, headers=headers, data=body) as answer:
            return await _describe(answer)

    async def do_times(self, number: str, path: str, *words: str) -> str:
        """Send so many at once, `#` is the number; show each status once."""
        given = ([word.replace("#", f"{at}") for word in words] for at in range(int(number)))
        found = await asyncio.gather(*(self._request("GET", path, words) for words in given))
        statuses = [one.partition(" ")[0] for one in found]
        return ", ".join(f"{one} x{statuses.count(one)}" for one in dict.fromkeys(statuses))

    async def do_raw(self, *pieces: str) -> str:
        answer = await self.served.send(make_bytes(pieces))
        errors = [line for line in self.log if "level=error" in line]
        return answer[:12].decode() + "; an error is logged" * bool(errors)

    async def do_crowd(self, number: str) -> str:
        """Use a connection, and open so many more; show how many bytes come on it at the end."""
        first = await self.served.open_line(self.served.server.port)
        await first.send_request(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(int(number)):
            await self.served.open_line(self.served.server.port)
        return f"ended with {len(await first.rest())} bytes more"

    async def do_location(self, path: str) -> str:
        """Show where a path leads to behind a proxy."""
        answer = await self.served.send(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        (target,) = re.findall(r"Location: (\S+)", answer.decode())
        return urljoin(f"http://a/proxy{path}", f"{target}")

    async def do_body(self, path: str, word: str, *words: str) -> str:
        """Show the lines of a body with a word."""
        _, text = await self.served.get(path, **read_words(words))
        return "\n".join(line for line in text.splitlines() if word in line) or "none"

    # What it shows

    async def do_part(self, name: str, *words: str) -> None:
        """Have a part of the operator lack something, or nothing any more."""
        is_known, self.parts[name] = name in self.parts, " ".join(words)
        if not is_known:
            self.served.health.part(name, is_ready=lambda: self.parts[name] or None)

    async def do_dead(self, name: str, *words: str) -> None:
        text = " ".join(words).replace(r"\n", "\n")
        self.served.health.part(name, is_alive=lambda: text)

    async def do_stopping(self) -> None:
        self.served.health.stopping()

    async def do_group(self, name: str) -> None:
        self.served.metrics.begin_group(name)

    async def do_series(self, name: str) -> str:
        return "\n".join(self.served.series(name)) or "none"

    async def do_violations(self, number: str = "9") -> str:
        """Show how many labels of clusters were counted, and which most often."""
        lines = self.served.series("server_invalid_cluster_validation_label_requests_total")
        assert all('{protocol="http",method="other",cluster_' in line for line in lines)
        pairs = re.findall(r'request_cluster_validation_label="(.*?)"} (\d+)', "\n".join(lines))
        most = sorted(pairs, key=lambda pair: -int(pair[1]))[: int(number)]
        return f"{len(lines)} counted" + "".join(f", {label} x{n}" for label, n in most)

    async def do_traced(self, path: str, *words: str) -> str:
        """Show a kind of answer before and while requests are traced."""
        found = []
        for is_traced in (False, True):
            with recorded() if is_traced else nullcontext():
                pairs = [word.partition("=")[::2] for word in words]
                url, headers = self.served.url(path), CIMultiDict(pairs)
                async with self.served.client.get(url, headers=headers) as answer:
                    is_ended = (await answer.text()).endswith("# EOF\n")
                    found.append(f"{answer.content_type}{' ended' * is_ended}")
        return ", ".join(found)

    async def do_route(self, template: str) -> str:
        return name_route(template)

    async def do_port(self, port: str = "") -> str:
        """Start another server on its port, or another."""
        own = self.served.server.port
        other = AdminServer(int(port or own), Metrics(), self.served.health, RULES)
        try:
            await other.start()
        except ConfigError as error:
            return f"{error}".replace(f"{own}", "N")
        finally:
            await other.stop()
        return "started"

    async def do_warned(self) -> str:
        """Show what was logged, and forget it."""
        found = [" ".join(_WORDS.findall(line)) for line in self.log]
        self.log.clear()
        return "\n".join(found) or "nothing"


async def _describe(answer: ClientResponse) -> str:
    text = await answer.text()
    first = text.splitlines()[0] if text else ""
    plain = answer.headers["Content-Type"].replace("; charset=utf-8", "")
    first = re.sub(r"(?<=^rollout-operator )\S+", "N", first)
    is_cut = answer.status == 200 and len(first) > MOST
    words = [f"{answer.status}", plain, f"{first[:MOST]}..." if is_cut else first]
    if "Allow" in answer.headers:
        words.append(f"(allow {answer.headers['Allow']})")
    lacks = [key for key, value in ALWAYS.items() if answer.headers.get(key) != value]
    words += [f"(no {key})" for key in lacks if answer.status != 511 or key == "Server"]
    if "Vary" in answer.headers:
        words.append(f"(vary {answer.headers['Vary']})")
    return " ".join(filter(None, words))
