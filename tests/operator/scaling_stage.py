"""The commands of stories of one operator on a simulated cluster in which replicas move.

Zones are letters. Each write of replicas by the operator stands with the seconds since a person's
last action, `+300s b=2`; a refusal of such a write would stand there, too.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace
from rollout_lab.admission.webhooks import HookCall, HookCaller
from rollout_lab.model.fields import child, name_of
from rollout_lab.model.history import Called, Commit, PodCalled, Reviewed
from rollout_lab.nodes.behaviour import Behaviour, PodReply, Response
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import STATEFULSETS, JsonObject
from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    LAST_DOWNSCALE,
    LEADING_ZONE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    MIRROR_API_VERSION,
    MIRROR_KIND,
    MIRROR_NAME,
    NO_DOWNSCALE,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
)
from tests import stories
from tests.simulation.chaos import later_webhook
from tests.simulation.scenarios import name_unrolled
from tests.simulation.scenarios_people import People, Route
from tests.simulation.traces_downscales import QUOTA_PATH, Quota
from tests.virtual_time import elapsed

OPERATOR: Final = "operator-1"
QUICK: Final = Behaviour(
    starts_after=timedelta(milliseconds=100),
    ready_after=timedelta(milliseconds=400),
    terminates_after=timedelta(milliseconds=200),
)
HANGS: Final = Response(reply=PodReply.HANGS)
PREPARED: Final[Mapping[str, str]] = {PREPARE_PATH: "prepare", PREPARE_PORT: "80"}
ROUTES: Final = {"scale": Route.SCALE_MERGE, "merge": Route.MERGE, "put": Route.PUT_FRESH}
MIRRORING: Final = {
    MIRROR_KIND: "ReplicaTemplate",
    MIRROR_API_VERSION: "rollout-operator.grafana.com/v1",
}
GIVEN: Final = {
    "chain": "zone a; zone b follows=a; zone c follows=b; start",
    "bare": "zone a plain; zone b follows=a; zone c follows=b; start",
    "unguarded": "zone a unguarded; zone b follows=a unguarded; zone c follows=b unguarded; start",
    "hour": "zone a wait=1h; zone b follows=a wait=1h; start",
    "hour unguarded": "zone a wait=1h unguarded; zone b follows=a wait=1h unguarded; start",
    "hours": "zone a wait=1h; zone b wait=1h; start",
}


class OperatorStage(stories.Steps):
    """Zones of three pods, whose pods are called before they go, five minutes one after another."""

    def __init__(self, *, has_webhooks: bool = True) -> None:
        self.has_webhooks = has_webhooks
        self.stack = AsyncExitStack()
        self.zones: list[ZoneSpec] = []
        self.templates: dict[str, int] = {}
        self.args: list[str] = []
        self.hanging = "none"
        self.seen: Counter[type[Any]] = Counter()
        self.began = timedelta(0)

    async def play(self, commands: Sequence[str]) -> list[str]:
        async with self.stack:
            return await super().play(commands)

    def look(self) -> list[str]:
        if not hasattr(self, "sandbox"):
            return []
        lines = []
        for one in self.take(Commit):
            if one.actor != OPERATOR or one.resource != STATEFULSETS or one.before is None:
                continue
            if _count(one.before) != _count(one.after):
                seconds = (one.at - self.began).total_seconds()
                name = one.name.removeprefix("zone-")
                lines.append(f"+{seconds:.0f}s {name}={_count(one.after)}")
        own = {one.number for one in self.sandbox.history.list_all(Called) if one.actor == OPERATOR}
        refusals = {
            f"refused by {one.message.split(chr(34))[1]}"
            for one in self.take(Reviewed)
            if not one.allowed and one.call in own
        }
        return [*lines, *sorted(refusals)]

    def take(self, kind: type[Any]) -> list[Any]:
        """Return what of a kind has happened since the last time."""
        found = list(self.sandbox.history.list_all(kind))
        since, self.seen[kind] = self.seen[kind], len(found)
        return found[since:]

    # The world at its beginning

    async def do_given(self, name: str, *more: str) -> None:
        await self.act(f"{GIVEN[' '.join([name, *more])]} > wait")

    async def do_tracked(self, *name: str) -> None:
        """Begin with a tracker in the place of annotations."""
        self.args.append("-use-zone-tracker=true")
        await self.do_given(*name)

    async def do_zone(self, letter: str, *words: str) -> None:
        """Add a zone: `follows=a wait=5m unguarded locked`, `mirror=demo delay=2m` or `plain`."""
        given = dict(word.split("=", 1) for word in words if "=" in word)
        labels: dict[str, str] = {}
        annotations: dict[str, str] = {}
        if "mirror" in given:
            annotations = {**MIRRORING, MIRROR_NAME: given["mirror"]}
            if "delay" in given:
                annotations[DOWNSCALE_DELAY] = given["delay"]
                annotations[DOWNSCALE_DELAY_URL] = "http://pod/delayed"
        elif "plain" not in words:
            annotations = {**PREPARED, MIN_TIME_BETWEEN_DOWNSCALES: given.get("wait", "5m")}
            labels = {} if "unguarded" in words else {PREPARE_DOWNSCALE: "true"}
            labels |= {NO_DOWNSCALE: "true"} if "locked" in words else {}
        if "follows" in given:
            annotations[LEADING_ZONE] = f"zone-{given['follows']}"
        group = given.get("group", "ingester")
        zone = ZoneSpec(name=f"zone-{letter}", group=group, labels=labels, annotations=annotations)
        self.zones.append(zone)

    async def do_groups(self, count: str) -> None:
        """Add groups of two zones, each of which mirrors an object of its own."""
        for number in range(int(count)):
            await self.do_template(f"demo-{number}", "2")
            for letter in "ab":
                await self.do_zone(
                    f"{letter}{number}", f"mirror=demo-{number}", f"group=group-{number}"
                )

    async def do_hanging(self, letter: str) -> None:
        """Have the pods of a zone answer no call."""
        self.hanging = f"zone-{letter}"

    async def do_start(self) -> None:
        hanging = replace(QUICK, prepare=HANGS, cancel=HANGS)

        def choose(pod: JsonObject) -> Behaviour:
            return hanging if name_of(pod).startswith(self.hanging) else QUICK

        self.sandbox = await self.stack.enter_async_context(Sandbox(choose=choose))
        self.people = People(sandbox=self.sandbox, rng=random.Random(0))
        self.process = self.sandbox.process(OPERATOR, webhooks=self.has_webhooks, args=self.args)
        for name, replicas in self.templates.items():
            await self.people.create_template(name, replicas)
        for zone in self.zones:
            await self.people.create(zone)
        await asyncio.sleep(5)
        if self.has_webhooks:
            await self.people.register_webhooks()
        self.process.start()
        await self.process.wait_ready()
        await asyncio.sleep(5)

    # People

    async def do_scale(self, letter: str, replicas: str, route: str = "scale") -> str:
        self.began = elapsed()
        people, count = self.people, int(replicas)
        is_done = await people.attempt(lambda: people.scale(f"zone-{letter}", count, ROUTES[route]))
        return "" if is_done else "refused"

    async def do_template(self, name: str, replicas: str) -> None:
        """Set what zones mirror, as an autoscaler does."""
        self.began = elapsed()
        if hasattr(self, "people"):
            await self.people.scale_template(name, int(replicas))
        self.templates[name] = int(replicas)

    async def do_status(self, name: str) -> str:
        """Show what an object that zones mirror says of them."""
        found = self.sandbox.api.get(REPLICA_TEMPLATES, self.sandbox.namespace, name)
        assert found is not None
        return f"status {child(found, 'status').get('replicas')}"

    async def do_image(self, letters: str) -> str:
        """Have zones get a new image; show how long it takes until all pods have it."""
        self.began = elapsed()
        for letter in letters:
            await self.people.set_image(f"zone-{letter}", "v2")
        written = asyncio.Event()
        self.sandbox.api.on_commit(lambda commit: written.set())
        async with asyncio.timeout(600):
            while name_unrolled(self.sandbox):
                written.clear()
                await written.wait()
        return f"rolled out in {(elapsed() - self.began).total_seconds():.0f}s"

    async def do_tracker(self) -> None:
        await self.people.create_tracker()

    async def do_record(self, letter: str, time: str) -> None:
        """Write when a zone was scaled down last: `none`, `later`, or a year."""
        self.began = elapsed()
        later = (self.sandbox.api.now() + timedelta(minutes=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
        text = {"none": None, "later": later}.get(time, f"{time}-01-01T00:00:00Z")
        is_tracked = bool(self.args)
        await self.people.rewrite_record(f"zone-{letter}", text, is_tracked=is_tracked)

    async def do_quota(self, letter: str) -> None:
        """Have a webhook behind ours forbid to take replicas from a zone."""
        assert self.sandbox.api.hooks is not None
        self.sandbox.api.hooks = OnlyOthers(self.sandbox.api.hooks, f"zone-{letter}")
        await self.sandbox.call(
            later_webhook(self.sandbox.namespace, name="quota", path=QUOTA_PATH, policy="Fail")
        )

    # The process

    async def do_wait(self, seconds: float = 0) -> None:
        await asyncio.sleep(seconds)

    async def do_crash(self) -> None:
        self.process.crash()

    async def do_again(self) -> None:
        self.process.start()

    async def do_stop(self) -> str:
        began = elapsed()
        await self.process.stop()
        return f"stopped in {(elapsed() - began).total_seconds():.0f}s"

    async def do_cut(self, word: str = "cut") -> None:
        """Cut the operator from the API server, or `cut no` more."""
        self.process.link.is_cut = word == "cut"

    # What is shown

    async def do_count(self, letter: str) -> str:
        found = self.people.find(f"zone-{letter}")
        assert found is not None
        has_time = LAST_DOWNSCALE in child(found, "metadata", "annotations")
        return f"{letter} has {_count(found)}" + ", no time" * (not has_time)

    async def do_waits(self) -> str:
        """Show the reasons that the group is told of, and what watches say that prove nothing."""
        (entry,) = self.process.entries()
        lines = self.process.telemetry.health.list_descriptions()
        silent = [line.partition(" watch")[0] for line in lines if " s ago: " in line]
        codes = ", ".join(sorted({reason.code for reason in entry.plan.waits}))
        return codes + f", no proof of {' '.join(silent)}" * bool(silent)

    async def do_requests(self, *most: str) -> str:
        """Show what the operator has sent since the last time, watches left out.

        How often depends on chance: `patch=21` is a limit for that, `all=60` for all together.
        """
        found = Counter(
            f"{one.request.verb} {one.request.resource.plural}"
            + " live" * ("labelSelector" in one.request.query)
            for one in self.take(Called)
            if one.actor == OPERATOR and one.request.verb != "watch"
        )
        for verb, _, number in (word.partition("=") for word in most):
            count = sum(count for name, count in found.items() if verb in ("all", name.split()[0]))
            assert count <= int(number), found
        return ", ".join(sorted(found)) or "none"

    async def do_calls(self, most: str = "1000000") -> str:
        """Show which pods were called since the last time, at most so often together."""
        found = [f"{one.method} {one.pod.removeprefix('zone-')}" for one in self.take(PodCalled)]
        assert len(found) <= int(most), len(found)
        return ", ".join(sorted(set(found))) or "no call"

    async def do_silently(self) -> None:
        """Forget what was sent until now."""
        self.take(Called)
        self.take(PodCalled)


class OnlyOthers(Quota):
    """A webhook that forbids to take replicas from one zone."""

    def __init__(self, inner: HookCaller, name: str) -> None:
        super().__init__(inner)
        self._name = name

    async def __call__(self, call: HookCall) -> bytes:
        request = json.loads(call.body)["request"]
        is_less = _count(request["object"]) < _count(request["oldObject"])
        self.is_used_up = is_less and request["name"] == self._name
        return await super().__call__(call)


def _count(one: JsonObject | None) -> Any:
    return None if one is None else child(one, "spec")["replicas"]
