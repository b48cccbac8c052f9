"""A Lease: where its holder is to be reached, and what other writers make of it: stories.

Of processes `me` and `other` it is shown when one begins and ceases to act.
"""

import asyncio
from datetime import timedelta
from typing import Any, Final

from rollout_lab.schemas.patches import merge

from rollout_operator.kube.api import LEASES
from rollout_operator.kube.election import Election
from rollout_operator.model.lease import Identity, Times
from rollout_operator.model.names import ADDRESS, ApiError, Denied, NotElected, Unreachable
from rollout_operator.telemetry.metrics import Metrics
from tests import stories
from tests.controllers.fake_client import FakeClient
from tests.stories import check_stories
from tests.virtual_time import VirtualClock, elapsed, in_virtual_time

HIGHEST: Final = 2**31 - 1
THERE: Final = "10.0.0.2:8444"
FAILURES: Final[dict[str, ApiError | TimeoutError]] = {
    "denied": Denied("forbidden", status=403),
    "away": Unreachable("away", status=0),
    "timeout": TimeoutError(),
    "unauthorized": Denied("log in again", status=401),
}
ODD: Final[dict[str, dict[str, object]]] = {
    "future": {"renewTime": "9999-12-31T23:59:59.999999Z", "leaseDurationSeconds": HIGHEST},
    "past": {"renewTime": "1970-01-01T00:00:00.000000Z", "leaseDurationSeconds": 1},
    "timeless": {"renewTime": None, "acquireTime": None, "leaseDurationSeconds": None},
    "nonsense": {"renewTime": "tomorrow", "acquireTime": "yesterday"},
    "often": {"leaseTransitions": HIGHEST},
}


class ElectionStage(stories.Steps):
    """Processes that take part, over one Lease in memory."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.api = FakeClient([], [])
        self.api.before, self.answer = self._check, self.api.pause
        self.fail: ApiError | TimeoutError | None = None
        self.fails_writes_only = False
        self.processes: dict[str, Election] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.acting: set[str] = set()
        self.told: list[str] = []
        self.seen: dict[str, str] = {}
        self._add("me")

    def _add(self, name: str, is_shadow: bool = False, **how: str) -> None:
        times = {key: timedelta(seconds=float(how.get(key, n))) for key, n in _TIMES.items()}
        port = {"me": "10.0.0.1:8444", "other": "10.0.0.3:8444"}[name]
        me = Identity(
            name=name, life=how.get("life", "1"), address=how.get("address", port),
            is_pod="life" in how,
        )  # fmt: skip
        self.processes[name] = Election(
            self.api, namespace="prod", name="lease", me=me, clock=VirtualClock(),
            metrics=Metrics(), times=Times(**times), is_shadow=is_shadow,
        )  # fmt: skip

    def look(self) -> list[str]:
        self._notice()
        told, self.told = self.told, []
        state = self._describe()
        changed = [f"{key} {state[key]}" for key in state if state[key] != self.seen.get(key)]
        self.seen = state
        return [*told, *changed]

    def _check(self, call: str) -> None:
        if self.fail is not None and not (self.fails_writes_only and call.startswith("get")):
            raise self.fail

    @property
    def body(self) -> dict[str, Any]:
        return self.api.objects.get((LEASES.plural, "lease"), {})

    def _store(self, metadata: dict[str, Any], spec: dict[str, Any]) -> None:
        """Have another client write this, and leave the rest."""
        held = self.body or {"metadata": {"namespace": "prod", "name": "lease", "uid": "u"}}
        version = int(held["metadata"].get("resourceVersion", 0)) + 1
        head = {**metadata, "resourceVersion": f"{version}"}
        self.api.put(LEASES.plural, dict(merge(held, {"metadata": head, "spec": spec})))

    def _describe(self) -> dict[str, str]:
        body = self.body
        spec, metadata = body.get("spec", {}), body.get("metadata", {})
        assert (spec.get("leaseTransitions") or 0) <= HIGHEST, "no API server takes that"
        address = metadata.get("annotations", {}).get(ADDRESS)
        lasts = spec.get("leaseDurationSeconds")
        holder = spec.get("holderIdentity", "")[:20] or "nobody"
        shown = f"{holder} at {address} for {lasts}s" if body else "none"
        found = {"lease of": shown.replace("None", "-")}
        for name, election in self.processes.items():
            leader = election.leader
            place = f" {leader.holder[:20]} {leader.address or 'nowhere'}" if leader else ""
            found[name] = election.state.name.lower() + ", led by" * bool(leader) + place
        return found

    def _notice(self) -> None:
        for name, election in self.processes.items():
            if election.may_act is not (name in self.acting):
                self.acting ^= {name}
                verb = "acts" if election.may_act else "acts no more"
                self.told.append(f"{elapsed().total_seconds():.1f} {name} {verb}")

    async def do_process(self, name: str, *words: str) -> None:
        """Begin with another: `lease=40`, `deadline=`, `retry=`, `address=`, `life=`, `shadow`."""
        how = dict(word.partition("=")[::2] for word in words)
        self._add(name, how.pop("shadow", None) is not None, **how)

    async def do_run(self, name: str = "me") -> None:
        if name not in self.processes:
            self._add(name)
        self.tasks[name] = self.start(self.processes[name].run())

    async def do_stop(self, name: str = "me") -> None:
        self.tasks[name].cancel()
        await asyncio.gather(self.tasks[name], return_exceptions=True)

    async def do_wait(self, seconds: float) -> None:
        end = elapsed().total_seconds() + seconds
        while (left := end - elapsed().total_seconds()) > 1e-6:
            await asyncio.sleep(min(left, 0.1 if seconds <= 100 else seconds / 100))
            self._notice()

    async def do_put(self, holder: str, *words: str) -> None:
        """Have another client write holder, address, and `future`, `past` or other odd times."""
        address: str | None = THERE
        holder = holder.replace("LONG", "x" * 300_000).replace("BREAK", "\n\x1b[31m")
        spec: dict[str, object] = {"holderIdentity": holder}
        for word in words:
            key, _, value = word.partition("=")
            if key in ODD:
                spec |= ODD[key]
            elif value:
                spec[key] = int(value)
            else:
                address = None if word == "-" else word
        self._store({"annotations": {ADDRESS: address}}, spec)

    async def do_renewals(self, count: str) -> str:
        """Have a stranger renew every 14 s, each time with an earlier time."""
        for minute in range(int(count) - 1, -1, -1):
            spec = {"holderIdentity": "stranger", "renewTime": f"2020-01-01T00:{minute:02}:00Z"}
            self._store({}, spec)
            await self.do_wait(14)
        return f"{elapsed().total_seconds():g}s"

    async def do_delete(self) -> None:
        self.api.objects.clear()

    async def do_fail(self, how: str, what: str = "") -> None:
        """Let all calls fail, or only `writes`."""
        self.fail, self.fails_writes_only = FAILURES[how], what == "writes"

    async def do_silence(self) -> None:
        """Let no call that is sent from now on ever have an answer, until `heal`."""

        async def wait_for_ever(call: str) -> None:
            await asyncio.Event().wait()

        self.api.pause = wait_for_ever

    async def do_heal(self) -> None:
        self.fail, self.api.pause = None, self.answer

    async def do_release(self) -> None:
        await self.processes["me"].release()

    async def do_read(self) -> None:
        await self.processes["me"].read_leader()

    async def do_superseded(self) -> str:
        await self.processes["me"].wait_superseded()
        return self.processes["me"].loss or "no loss"

    async def do_loss(self) -> str:
        return self.processes["me"].loss or "no loss"

    async def do_text(self) -> str:
        text = self.processes["me"].text
        return text if len(text) < 100 else f"{text[:20]}... of {len(text)} characters"

    async def do_calls(self) -> str:
        return f"{len(self.api.calls)} calls"

    async def do_check(self) -> str:
        """Show for how long a write may be sent."""
        try:
            left = self.processes["me"].check("delete pod a-0")
        except NotElected as error:
            return str(error)
        return "for ever" if left is None else f"for {left.total_seconds():g}s"

    async def do_log(self, *words: str) -> str:
        """Count the lines with these words by level, and forget all."""
        found = [line.split()[0] for line in self.lines if " ".join(words) in line]
        self.lines.clear()
        return ", ".join(f"{one} x{found.count(one)}" for one in dict.fromkeys(found)) or "no line"


_TIMES: Final = {
    "lease": Times().lease.total_seconds(),
    "deadline": Times().deadline.total_seconds(),
    "retry": Times().retry.total_seconds(),
}


test_story = in_virtual_time(check_stories(__file__, election=ElectionStage))
