"""The commands of stories of references: ReplicaTemplates, and groups that mirror them.

`put demo 3` creates one or changes its count, `want store demo` has a group want it. Readings are
shown when they change, and groups that were told, with the second. `StatefulSet.apps/a` is a
reference to another kind.
"""

import asyncio
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

from rollout_lab.apiserver.api import SimulatedApi
from rollout_lab.apiserver.store import Stream
from rollout_lab.model.history import History
from rollout_lab.model.request import MERGE_PATCH, ApiRequest
from rollout_lab.network.client import SimulatedClient
from rollout_lab.network.faults import AS_USUAL, Failure, FaultOutcome, Occasion, OccasionKind
from rollout_lab.network.link import Link
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES

from rollout_operator.kube.api import STATEFULSETS
from rollout_operator.kube.rate_limit import RateLimiter
from rollout_operator.kube.scales import References
from rollout_operator.model.names import ApiError, GroupName
from rollout_operator.model.scaling import NoScale, Reading, Reference, Scale
from tests import stories
from tests.contract.bodies import statefulset
from tests.virtual_time import EPOCH, VirtualClock, elapsed

ACTOR: Final = "operator-1"
NAMESPACE: Final = "default"
GROUP: Final = REPLICA_TEMPLATES.group


class Trouble:
    """Calls whose text ends like this fail like that: `get replicatemplates/demo/scale`."""

    def __init__(self) -> None:
        self.fails: dict[str, Failure] = {}
        self.answers_after = timedelta(0)
        """How long the answers to all calls are on their way."""
        self.requested: list[tuple[float, str]] = []

    def decide(self, sent: Occasion) -> FaultOutcome:
        if sent.kind is not OccasionKind.CALL:
            return AS_USUAL
        call = sent.text.partition(": ")[2].rstrip()
        self.requested.append((elapsed().total_seconds(), call))
        failure = self.fails.get(call) or self.fails.get(sent.verb)
        if failure is None and not self.answers_after:
            return AS_USUAL
        return FaultOutcome(fails=failure, after=self.answers_after)


class Server(SimulatedApi):
    """An API server that knows which watches are open."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.watches: list[Stream] = []

    def open_watch(self, request: ApiRequest) -> Stream:
        self.watches.append(super().open_watch(request))
        return self.watches[-1]


def read_reference(text: str) -> Reference:
    kind, _, name = text.rpartition("/") if ":" not in text else text.partition(":")
    if not kind:
        return Reference(GROUP, "ReplicaTemplate", name)
    kind, _, group = kind.partition(".")
    return Reference(group or GROUP, kind, name) if group != "core" else Reference("", kind, name)


class ReferenceStage(stories.Steps):
    """One process's references, and the API server behind them."""

    def __init__(self) -> None:
        self.api = Server(History(), elapsed=elapsed, epoch=EPOCH, rng=random.Random(1))
        self.trouble = Trouble()
        self.link = Link(ACTOR, faults=self.trouble, rng=random.Random(2))
        self.told: list[str] = []
        self.seen: Mapping[Reference, Reading] = {}
        self.kept: Mapping[Reference, Reading] = {}
        self.since = 0
        self.task: asyncio.Task[None] | None = None
        self._follow(5)
        # What was on its way to the API server arrives.
        self.stack.push_async_callback(asyncio.sleep, 60)

    def _follow(self, interval: float) -> None:
        client = SimulatedClient(self.api, self.link, name="mirroring", limits=RateLimiter(0, 0))
        self.references = References(
            client, NAMESPACE, reader=client, reconcile_interval=timedelta(seconds=interval),
            clock=VirtualClock(), rng=random.Random(3).random,
        )  # fmt: skip
        self.references.on_change(lambda group: self.told.append(f"told {group}"))

    async def do_every(self, seconds: str) -> None:
        """Begin with another interval."""
        self._follow(float(seconds))

    def look(self) -> list[str]:
        told, self.told = self.told, []
        assert self.kept == self.seen, "a reading is of one moment"
        before, self.kept = self.seen, self.references.readings
        self.seen = dict(self.kept)
        changed = [
            f"{one.name} {show(self.seen.get(one), one)}"
            for one in dict.fromkeys([*before, *self.seen])
            if self.seen.get(one) != before.get(one)
        ]
        counts = [f"{text} x{n}" if n > 1 else text for text, n in Counter(told).items()]
        if len(changed) > 4:
            changed = [*changed[:2], f"... {len(changed) - 3} ...", changed[-1]]
        return [*counts, *changed]

    # Objects and who wants them

    async def do_put(self, name: str, replicas: str) -> None:
        spec = {"spec": {"replicas": int(replicas)}}
        if self.api.get(REPLICA_TEMPLATES, NAMESPACE, name) is not None:
            return self._patch(name, spec)
        body = {"apiVersion": f"{GROUP}/v1", "kind": "ReplicaTemplate", "metadata": {"name": name}}
        return self._call("create", body={**body, **spec})

    async def do_status(self, name: str, replicas: str) -> None:
        self._patch(name, {"status": {"replicas": int(replicas)}}, subresource="status")

    async def do_scale(self, name: str, replicas: str) -> None:
        self._patch(name, {"spec": {"replicas": int(replicas)}}, subresource="scale")

    async def do_delete(self, name: str) -> None:
        self._call("delete", name=name)

    async def do_statefulset(self, name: str, replicas: str) -> None:
        self._call("create", resource=STATEFULSETS, body=statefulset(name, int(replicas)))

    def _patch(self, name: str, patch: Any, subresource: str = "") -> None:
        how = {"name": name, "subresource": subresource, "content_type": MERGE_PATCH}
        self._call("patch", body=patch, **how)

    def _call(self, verb: Any, resource: Any = REPLICA_TEMPLATES, **how: Any) -> None:
        answer = self.api.call_now(
            ApiRequest(verb=verb, resource=resource, namespace=NAMESPACE, **how)
        )
        assert answer.is_ok, answer.message

    async def do_want(self, group: str, *names: str) -> None:
        """Have a group want these; `demo*20` are twenty."""
        self.task = self.task or self.start(self.references.run(), "references")
        wanted = [read_reference(one) for name in names for one in _spread(name)]
        self.references.want(GroupName(group), wanted)

    async def do_many(self, name: str, replicas: str) -> None:
        """Create many: `demo*20`; `N` of a count is the number of each."""
        for number, one in enumerate(_spread(name)):
            await self.do_put(one, replicas.replace("N", f"{number}"))

    async def do_groups(self, count: str) -> None:
        """Have each of so many groups want one of its own."""
        for number in range(int(count)):
            await self.do_put(f"demo-{number}", f"{number}")
            await self.do_want(f"group-{number}", f"demo-{number}")

    async def do_changes(self, count: str, every: str) -> None:
        """Change the count of `demo` again and again, up from 0 or the count."""
        for replicas in range(int(count)):
            await self.do_put("demo", f"{replicas}")
            await asyncio.sleep(float(every))

    async def do_publish(self, name: str, replicas: str) -> str:
        try:
            await self.references.publish(read_reference(name), int(replicas))
        except ApiError as error:
            return f"{type(error).__name__} {_short(str(error))}"
        return "published"

    async def do_fight(self, count: str) -> str:
        """Have something else write the status each second; say what became of our own writes."""
        refusals = Counter[str]()
        for _ in range(int(count)):
            await self.do_status("demo", "1")
            found = await self.do_publish("demo", "3")
            refusals[re.sub(r" \d+ times| in \d+s", "", found)] += 1
            await asyncio.sleep(1)
        return ", ".join(f"{text} x{times}" for text, times in refusals.items())

    async def do_refresh(self, name: str) -> str:
        one = read_reference(name)
        return show(await self.references.refresh(one), one)

    # Trouble

    async def do_fail(self, what: str, how: str) -> None:
        """Let reads of these, `demo*20`, or all calls of a verb, `discover`, fail."""
        for one in _spread(what):
            verb = what in ("watch", "discover", "list")
            text = what if verb else f"get replicatemplates/{one}/scale"
            text = f"patch replicatemplates/{one[7:]}/status" if one.startswith("status-") else text
            self.trouble.fails[text] = Failure(how)

    async def do_heal(self) -> None:
        self.trouble.fails.clear()
        self.trouble.answers_after = timedelta(0)

    async def do_slow(self, seconds: str) -> None:
        self.trouble.answers_after = timedelta(seconds=float(seconds))

    async def do_forbid(self, verb: str, plural: str = "replicatemplates") -> None:
        self.api.forbidden.add((ACTOR, verb, plural))

    async def do_allow(self, verb: str = "", plural: str = "replicatemplates") -> None:
        """Give all rights back, or one."""
        if verb:
            self.api.forbidden.remove((ACTOR, verb, plural))
        else:
            self.api.forbidden.clear()

    async def do_cut(self) -> None:
        self.link.is_cut = True

    async def do_mend(self) -> None:
        self.link.is_cut = False

    async def do_bare(self) -> None:
        """Remove the kind."""
        self.api.absent.add(GROUP)

    async def do_install(self) -> None:
        self.api.absent.clear()

    async def do_end(self) -> None:
        """End all watches that were opened."""
        for one in self.api.watches:
            one.close()

    # Time and load

    async def do_shows(self, name: str, wanted: str = "") -> str:
        """Wait until a count is shown, `none` is none, and say how long that took at most."""

        def holds() -> bool:
            found = self.references.readings.get(read_reference(name))
            if wanted == "none":
                return isinstance(found, NoScale)
            is_shown = isinstance(found, Scale) and f"{found.replicas}" == wanted
            return found is not None if not wanted else is_shown

        return await self._until(holds)

    async def do_requested(self, name: str, times: str) -> str:
        """Wait until it was read so often."""
        text = f"get replicatemplates/{name}/scale"
        calls = self.trouble.requested
        return await self._until(
            lambda: [call for _, call in calls[self.since :]].count(text) == int(times)
        )

    async def _until(self, holds: Callable[[], bool]) -> str:
        began = elapsed().total_seconds()
        async with asyncio.timeout(1000):
            while not holds():  # noqa: ASYNC110 (virtual time: it costs nothing)
                await asyncio.sleep(0.01)
        took = elapsed().total_seconds() - began
        return f"within {math.ceil(took * 2) / 2:g}s"

    async def do_count(self) -> str:
        """Show what was requested since the last time, and most reads in a second."""
        calls = self.trouble.requested[self.since :]
        self.since = len(self.trouble.requested)
        reads = [(at, call) for at, call in calls if call.startswith("get")]
        times = Counter(_short(call) for _, call in calls)
        of_each = Counter(call for _, call in reads)
        if len(of_each) > 3:
            for call in of_each:
                del times[_short(call)]
            times[f"each of {len(of_each)} {min(of_each.values())} to {max(of_each.values())}"] = 1
        busiest = max(Counter(int(at) for at, _ in reads).values(), default=0)
        shown = [f"{call} x{count}" if count > 1 else call for call, count in times.items()]
        return ", ".join([*shown, *[f"{busiest} in a second"] * (busiest > 1)]) or "no request"

    async def do_lists(self) -> str:
        """Show the longest time between two lists."""
        lists = [at for at, call in self.trouble.requested if call.startswith("list")]
        longest = max(after - before for before, after in pairwise(lists))
        return f"{len(lists)} lists, at most {math.ceil(longest)}s apart"


def show(found: Reading | None, of: Reference) -> str:
    if found is None:
        return "unknown"
    if isinstance(found, NoScale):
        why = _short(found.why.removeprefix(f"{of}: "))
        return f"none ({'lasting' if found.is_lasting else 'passing'}: {why})"
    return f"{found.replicas}" + f" and {found.status_replicas} in its status" * bool(
        found.status_replicas
    )


def _short(text: str) -> str:
    text = text.replace("replicatemplates/", "").replace(" replicatemplates", "")
    text = text.replace(f".{GROUP}", "").replace(GROUP, "GROUP")
    return text if len(text) < 170 else f"{text[:80]}...{text[-80:]}"


def _spread(name: str) -> list[str]:
    stem, _, count = name.partition("*")
    return [f"{stem}-{number}" for number in range(int(count))] if count else [name]
