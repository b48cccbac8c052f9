"""The commands of stories of two replicas over real TLS: one leads, one passes reviews on to it.

`ask` is a review that came to the one that does not lead; `ask times=3` are so many at once, and
`begin` does not wait for the answers: `answers` does. Numbers that depend on ports are not shown.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final

from aiohttp import web
from msgspec.structs import replace

from rollout_operator.aio.clock import LoopClock
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.lease import Lease
from rollout_operator.model.outcome import Code, Reason, Verdict
from rollout_operator.model.scaling import Review
from rollout_operator.pki.certificates import answer, carry_out, issue_leaf
from rollout_operator.pki.material import Examined, KeyMaterial, Pair, Question
from rollout_operator.pki.serving import ServingCertificate
from rollout_operator.planning.certificate import CertificateStep, Decision
from rollout_operator.web.dispatch import MOST_ANSWER, Forwarder, ForwardOutcome, LeaderOnly, Peers
from rollout_operator.web.webhooks import ServerOptions
from tests.pki.certificates import HOST, WANTED, Legacy, client_context
from tests.stories import Steps, read_words
from tests.web.served import ALLOWED, FINE, RULES, Gate, Line, ScriptedHook, body_of, post, serving

PATH: Final = "/admission/pod-eviction"
REFUSED: Final = Verdict(
    is_allowed=False, code=429, retry_after=timedelta(seconds=7),
    reason=Reason(code=Code.ZONE_NOT_READY, text="zone-b has 2 of 3 pods ready"),
)  # fmt: skip
ODD: Final[dict[str, Callable[[], web.Response]]] = {
    "an-error": lambda: web.Response(status=503),
    "a-redirect": lambda: web.Response(status=302, headers={"Location": "https://127.0.0.1:1/"}),
    "no-json": lambda: web.Response(body=b"yes"),
    "nested": lambda: web.Response(body=b"[" * 60_000),
    "nothing": lambda: web.Response(body=b""),
    "ended": web.Response,
    "of-another": lambda: web.Response(body=ALLOWED.replace(b"u-1", b"u-2")),
    "of-another-version": lambda: web.Response(body=ALLOWED.replace(b"v1", b"v1beta1")),
    "a-text": lambda: web.Response(body=ALLOWED.replace(b"true", b'"true"')),
    "long": lambda: web.Response(body=ALLOWED + b" " * MOST_ANSWER),
    "allowed": lambda: web.Response(body=ALLOWED),
}


@cache
def material(name: str) -> KeyMaterial:
    """Return what a Secret holds: a CA of its own and its leaf, or a step on from `ours`."""
    steps = {"next": CertificateStep.INTRODUCE_CA, "switched": CertificateStep.SWITCH_CA}
    if name == "earlier":  # of an earlier operator: for servers only
        data = Legacy().data()
        return KeyMaterial(cert=data["cert"], key=data["key"], ca=data["ca"])
    before = {"next": "ours", "switched": "next"}.get(name)
    step = steps.get(name, CertificateStep.START_OVER)
    held = KeyMaterial() if before is None else material(before)
    return carry_out(Decision(step=step, reason=""), held, WANTED, datetime.now(UTC))


def examined(name: str) -> Examined:
    return answer(Question(material=material(name)))


def serve_as(name: str) -> ServingCertificate:
    made = ServingCertificate()
    made.swap(examined(name))
    return made


class PeerStage(Steps):
    """A replica that leads, and one that follows, with the certificate of one Secret."""

    def __init__(self, lines: list[str]) -> None:
        self.log = lines
        self.clock, self.hook, self.own_hook = LoopClock(), ScriptedHook(), ScriptedHook()
        self.is_leading, self.follows, self.assess = True, True, False
        self.unknown: set[str] = set()
        self.gate = Gate()
        self.outcomes = Counter[ForwardOutcome]()
        self.tasks: list[asyncio.Task[str]] = []
        self.told = (0, 0)
        self.requested = 0
        self.lease: Lease | None = None

    async def set_up(self) -> None:
        await self.do_replicas("ours", "ours")

    async def do_replicas(self, leading: str, following: str) -> None:
        """Have both begin anew with these certificates."""
        await self.stack.aclose()
        self.leader, self.follower = serve_as(leading), serve_as(following)
        self.forwarder = Forwarder(
            Peers(
                find_leader=lambda: self.lease,
                trust=lambda: self.follower.peers.calling,
                host=HOST,
                namespace="prod",
            ),
            self.clock,
            lambda path, outcome: self.outcomes.update([outcome]),
        )
        self.stack.push_async_callback(self.forwarder.close)
        self.led = LeaderOnly(
            path=PATH,
            hook=self.own_hook,
            is_leading=lambda: not self.follows,
            describe=lambda: "another",
            confirms=lambda review: review.name not in self.unknown,
            forwarder=self.forwarder,
            assess=self._assess,
        )
        await self.do_return()

    def _assess(self, review: Review) -> Verdict | None:
        return REFUSED if self.assess else None

    def look(self) -> list[str]:
        counts, self.outcomes = self.outcomes, Counter[ForwardOutcome]()
        seen = len(self.hook.reviewed), len(self.own_hook.reviewed)
        more = [now - before for now, before in zip(seen, self.told, strict=True)]
        self.told = seen
        return [
            *(f"{n} {outcome}" for outcome, n in counts.items()),
            *(f"{n} at {who}" for who, n in zip(("leader", "follower"), more, strict=True) if n),
        ]

    # The replica that leads

    async def do_return(self, holder: str = "leader_1") -> None:
        """Have it serve, on a new port."""
        hook = LeaderOnly(
            path=PATH,
            hook=self.hook,
            is_leading=lambda: self.is_leading,
            describe=lambda: "another",
        )
        served = serving(
            clock=self.clock,
            hooks={PATH: hook},
            certificate=lambda: self.leader.peers.accepting,
            cluster=replace(RULES, enabled=True, excluded_paths=("none",)),
            options=ServerOptions(client_host=HOST),
        )
        self.server = (await self.stack.enter_async_context(served)).server
        self._hold_lease(self.server.port, holder)

    def _hold_lease(self, port: int, holder: str = "leader_1") -> None:
        self.lease = Lease(version="1", holder=holder, address=f"127.0.0.1:{port}")

    async def do_gone(self) -> None:
        await self.server.stop()

    async def do_lease(self, how: str) -> None:
        """Have there be no Lease, `none`, or one without an address, `bare`."""
        self.lease = None if how == "none" else Lease(version="1", holder="old_1")

    async def do_leads(self, who: str) -> None:
        """Have `neither` lead, or the `follower`."""
        self.is_leading, self.follows = False, who == "neither"

    async def do_hook(self, how: str) -> None:
        """Have its hook answer otherwise: `refuses`, or wait at a `gate`."""
        self.hook.verdict = REFUSED if how == "refuses" else FINE
        self.hook.act = self.gate if how == "gate" else None

    async def do_let(self) -> None:
        self.gate.opened.set()

    async def do_left(self, least: str, most: str) -> str:
        """Show whether its last review has so much time left."""
        left = (self.hook.until[-1] - self.clock.elapsed()).total_seconds()
        return "yes" if float(least) < left < float(most) else f"{left}"

    async def do_odd(self, how: str, certificate: str = "") -> None:
        """Have one of ours that is broken be at its address, or a stranger."""

        async def say(request: web.Request) -> web.StreamResponse:
            self.requested += 1
            await request.read()
            if how == "ended" and request.transport is not None:
                request.transport.abort()
            return ODD[how]()

        runner = web.ServerRunner(web.Server(say))  # type: ignore[arg-type]
        await runner.setup()
        stranger = serve_as(certificate).current if certificate else self.leader.peers.accepting
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=stranger).start()
        self.stack.push_async_callback(runner.cleanup)
        self._hold_lease(runner.addresses[0][1])

    async def do_requested(self) -> str:
        return f"{self.requested} requested"

    async def do_frozen(self) -> None:
        """Have its address take connections, and say nothing."""

        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.transport.abort()

        silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        await self.stack.enter_async_context(silent)
        self._hold_lease(silent.sockets[0].getsockname()[1])

    # The replica that follows

    async def do_assesses(self) -> None:
        """Have a review alone decide."""
        self.assess = True

    async def do_unknown(self, name: str) -> None:
        """Have its cache not show a name."""
        self.unknown.add(name)

    async def do_ask(self, *words: str) -> str:
        """Ask about `notes=200` annotations, a `name`, or with `span=1` seconds left."""
        return await _gather(self._ask_all(words))

    async def do_patient(self) -> str:
        """Ask until the one that leads says itself that its time is up.

        Both wait on this one loop: on a busy machine the moments between them may be lost.
        """
        answers = [await self.do_ask("span=1") for _ in range(5)]
        self.outcomes.clear()
        self.told = len(self.hook.reviewed), 0
        return next(one for one in answers if not one.startswith("by itself"))

    async def do_begin(self, *words: str) -> None:
        self.tasks += self._ask_all(words)

    def _ask_all(self, words: Sequence[str]) -> "list[asyncio.Task[str]]":
        how = read_words(words, "times name notes span")
        return [asyncio.create_task(self._ask(how)) for _ in range(int(how.get("times", 1)))]

    async def _ask(self, how: dict[str, str]) -> str:
        fields: dict[str, object] = {"name": how["name"]} if "name" in how else {}
        if "notes" in how:
            notes = {f"key-{number}": "x" * 1000 for number in range(int(how["notes"]))}
            meta = {"name": "zone-a", "uid": "u-2", "annotations": notes}
            tree = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta}
            fields["object"] = {**tree, "spec": {"replicas": 2, "serviceName": "zone-a"}}
        review = decode_review(body_of(**fields), keeps=self.led.forwards)
        until = self.clock.elapsed() + timedelta(seconds=float(how.get("span", 10)))
        return _describe(await self.led.review(review, until))

    async def do_answers(self) -> str:
        """Wait for all answers; show each once."""
        tasks, self.tasks = self.tasks, []
        return await _gather(tasks)

    async def do_reach(self, number: str) -> None:
        """Wait until so many reviews are at the gate."""
        for _ in range(int(number)):
            await self.gate.begun.acquire()

    async def do_hang_up(self) -> str:
        """Have the caller go; show that the review of the one that leads is cancelled."""
        ended = asyncio.Event()

        async def wait(review: Review, until: timedelta) -> Verdict:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return FINE

        self.hook.act = wait
        await self.do_begin()
        await self.hook.begun.wait()
        (asking,) = self.tasks
        asking.cancel()
        async with asyncio.timeout(5):
            await ended.wait()
        self.tasks = []
        await asyncio.gather(asking, return_exceptions=True)
        return "cancelled" if asking.cancelled() else "answered"

    async def do_same(self) -> str:
        """Show whether the last review at both is the same."""
        is_same = self.hook.reviewed[-1] == self.own_hook.reviewed[-1]
        return "the same" if is_same else "not the same"

    async def do_forwards(self) -> str:
        return "forwards" if self.led.forwards else "passes nothing on"

    async def do_swap(self, who: str, name: str) -> None:
        """Have one of them take up another certificate."""
        (self.leader if who == "leader" else self.follower).swap(examined(name))

    async def do_front(self) -> str:
        """Have an API server send a review to the one that follows; show what that reports."""
        codes: list[Code] = []
        front = serving(
            on_verdict=lambda path, review, verdict: codes.append(verdict.reason.code),
            hooks={PATH: self.led},
            keeps=lambda path: self.led.forwards,
        )
        async with front as served:
            answer = await served.send_request(post(body_of(), path=PATH))
        return f"{_describe(answer.body)}, reported {' '.join(codes) or 'nothing'}"

    async def do_call(self, *words: str) -> str:
        """Call the port for replicas with a certificate: of a `ca`, for a `name`, or `none`."""
        how = read_words(words, "none ca name path")
        shown = None
        if "none" not in how:
            ours = material(how.get("ca", "ours"))
            wanted = replace(WANTED, names=(how.get("name", HOST),), organisation="")
            shown = issue_leaf(Pair(cert=ours.ca, key=ours.ca_key), wanted, datetime.now(UTC))
        context = client_context(material("ours").ca, shown)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.server.port, ssl=context, server_hostname=HOST
        )
        line = Line(reader, writer)
        path = how.get("path", PATH)
        writer.write(post(body_of(), "X-Cluster: prod", "Connection: close", path=path))
        answer = await line.rest()
        await line.close()
        return answer[9:12].decode() or "cut"

    async def do_log(self, word: str) -> str:
        found = [re.findall(r'(?:level|msg)=("[^"]*"|\S+)', one) for one in self.log if word in one]
        return ", ".join(" ".join(words) for words in found)


def _describe(answer: Verdict | bytes) -> str:
    """Return `as it is` for what is passed back, and what the replica says by itself."""
    if isinstance(answer, bytes):
        words = ["allowed"] if answer == ALLOWED else []
        found = re.search(rb'"message":"(.*?)".*?"code":(\d+)', answer)
        words += [f"refused {found[2].decode()}: {found[1].decode()}"] if found else []
        retry = re.search(rb'"retryAfterSeconds":(\d+)', answer)
        words += [f"retry {retry[1].decode()}s"] if retry else []
        return re.sub(r"within [\d.]+ms", "within N ms", _shorten(" ".join(words)))
    if answer.is_allowed:
        return "allowed by itself"
    retry_after = answer.retry_after.total_seconds() if answer.retry_after else 0
    text = re.sub(r"\d+\.\d+s", "N s", _shorten(answer.reason.text))
    return f"by itself {answer.code} {answer.reason.code} retry {retry_after:g}s: {text}"


def _shorten(text: str) -> str:
    return text.replace("this replica does not decide that", "not here")


async def _gather(tasks: "Sequence[asyncio.Task[str]]") -> str:
    counts = Counter(await asyncio.gather(*tasks)).items()
    return ", ".join(said + f" x{n}" * (n > 1) for said, n in counts)
