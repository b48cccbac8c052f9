"""The commands of stories of the whole operator on a simulated cluster.

Zones are letters, of three pods, `a-1` is a pod of zone a. Each write of replicas by a process
stands with the seconds since a person's last action, `+300s b=2`, and so do deletes of pods, by
the time of the first; a refusal of a write of replicas would stand there, too.
"""

import asyncio
import itertools
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace
from prometheus_client import generate_latest
from rollout_lab.admission.webhooks import HookCall, HookCaller
from rollout_lab.drains import evict
from rollout_lab.model.fields import child, name_of
from rollout_lab.model.history import Called, Commit, PodCalled, Reviewed
from rollout_lab.model.request import MERGE_PATCH, ApiRequest
from rollout_lab.network.faults import AS_USUAL, Failure, FaultOutcome, Occasion, OccasionKind
from rollout_lab.nodes.behaviour import DEFAULT, Behaviour, PodReply, Response, image_of
from rollout_lab.process import SimulatedProcess
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec

from rollout_operator.controllers.budgets import BudgetReports
from rollout_operator.controllers.unobeyed import UnobeyedPolicies
from rollout_operator.kube.api import (
    LEASES,
    MULTI_AZ_ROLLOUTS,
    PODS,
    STATEFULSETS,
    ZONE_BUDGETS,
    JsonObject,
)
from rollout_operator.model.description import GroupDescription
from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    DOWNSCALE_INTENT,
    GROUP_LABEL,
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
    TOPOLOGY_KEYS,
    ZONE_SOAK,
)
from rollout_operator.planning.text import render_description
from tests import stories
from tests.operator.forged import MADE_UP, ask_eviction, make_up
from tests.simulation.chaos import later_webhook
from tests.simulation.scenarios import People, Route, name_unrolled
from tests.simulation.scenarios_drains import zone_budget
from tests.simulation.traces import QUOTA_PATH, Quota
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
WRITES: Final = frozenset({"create", "update", "patch", "delete"})
FEATURES: Final = {"reports": BudgetReports, "unobeyed": UnobeyedPolicies}
# What a budget or a policy may select: all zones, those that stay, or only the one that is short.
STORE: Final = {"app": "store"}
WHO: Final = {
    "all": STORE,
    "stays": {**STORE, "stays": "true"},
    "alone": {**STORE, "stays": "alone"},
}
SELECTORS: Final = {ZONE_BUDGETS: "selector", MULTI_AZ_ROLLOUTS: "statefulSetSelector"}
LEFT: Final = "zone-a was deleted or left while it was short"
PAIR: Final = "zone a plain; zone b plain"
GIVEN: Final = {
    "chain": "zone a; zone b follows=a; zone c follows=b; start",
    "bare": "zone a plain; zone b follows=a; zone c follows=b; start",
    "unguarded": "zone a unguarded; zone b follows=a unguarded; zone c follows=b unguarded; start",
    "hour": "zone a wait=1h; zone b follows=a wait=1h; start",
    "hour unguarded": "zone a wait=1h unguarded; zone b follows=a wait=1h unguarded; start",
    "hours": "zone a wait=1h; zone b wait=1h; start",
    # A process has acted for long enough to know what others delete.
    "pair": f"{PAIR}; start; 110s",
    "shadow": f"{PAIR}; start shadow; 110s",
    "both": f"{PAIR}; start 1 shadow; 110s",
    "replicas": "zone a 2 plain; zone b 2 plain; 25s; start 1 2 elects; lead",
    "store": "zone a plain who=alone; zone b plain who=stays; zone c plain who=stays",
    "short": "given store; start; 30s; short",
    "rolling": "given short; image bc; 20s",
    "budget": "given store; budget; start hooks; 30s",
    "partitions": "given store; budget partitions; start hooks; 30s",
    "following": "zone a plain who=alone; zone b plain who=stays;"
    " zone c plain who=stays follows=b; start; 30s; short",
    "prepared": "zone a who=alone wait=0s; zone b who=stays wait=0s; zone c who=stays wait=0s;"
    " start hooks; 30s; short",
    "moving": "given store; start -multi-az-rollouts.enabled; 30s; short",
    "moving policy": "given zonal; policy; start; 30s; short",
    "zonal": "zone a plain who=alone zonal; zone b plain who=stays zonal;"
    " zone c plain who=stays zonal",
    "batch": "given zonal; policy; start; 30s; image a bad; 20s; image bc; 20s",
    "four": "zone a 4 most=4 plain; zone b 4 most=4 plain; zone c 4 most=4 plain; start; 30s",
    "four pods": "zone a 4 plain who=all; zone b 4 plain who=all; zone c 4 plain who=all;"
    " budget; start hooks; 30s",
    "four pairs": "zone a 4 plain who=all; zone b 4 plain who=all; budget; start hooks; 30s",
    "called": "zone a 2 who=all wait=0s; zone b 2 who=all wait=0s; budget; start hooks; 30s",
}
# How a zone leaves, or what guards it.
WAYS: Final = {
    "nothing": "wait",
    "orphaned": "remove a Orphan",
    "deleted": "remove a",
    "unlabelled": "label a none",
    "moved": "label a other",
    "unlabelled, deleted": "label a none; remove a",
    "made outside": "remove a Orphan; 5s; zone a plain who=alone bare group=none",
    "orphaned, renamed": "remove a Orphan; 5s; drop store; 10s; add store-new",
    "deleted, renamed": "remove a; 5s; add store-new; 10s; drop store",
    "unlabelled, renamed": "label a none; add store-new; 10s; drop store",
    "orphaned in between": "drop store; 5s; remove a Orphan; 5s; add store-new",
    "deleted with both": "add store-new; 5s; remove a; 5s; drop store",
    "renamed, orphaned": "drop store; 10s; add store-new; remove a Orphan",
    "renamed and narrowed": "drop store; 10s; add store-new stays",
    "narrowed, renamed": "add store-new stays; 10s; drop store",
    "deleted, renamed, narrowed": "remove a; 5s; drop store; 10s; add store-new stays",
    "narrowed, orphaned, renamed": "add store-new stays; 5s; remove a Orphan; 5s; drop store",
    "renamed, narrowed": "drop store; 10s; add store-new; drop store-new; 10s;"
    " add store-newer stays",
    "split off": "add store-new stays; 5s; select store alone",
    "alone, split off": "select store alone; 5s; add store-new stays",
    "narrowed": "select store stays",
    "renewed": "drop store; add store stays",
    "to a policy": "policy stays; group bc none",
    "to a later policy": "group bc none; policy stays",
    "with a policy": "policy stays",
    "to a group": "group bc ingester; drop store",
    "to a later group": "drop store; 5s; group bc ingester",
}


class LatePods:
    """The watch of pods lags, events of another kind come broken, or watches are refused."""

    lag = timedelta()
    spoiled = refused = ""

    def decide(self, occasion: Occasion) -> FaultOutcome:
        if occasion.verb == "watch" and occasion.plural == self.refused:
            return FaultOutcome(fails=Failure.UNAUTHORIZED)
        if occasion.kind is not OccasionKind.EVENT:
            return AS_USUAL
        if occasion.plural == self.spoiled:
            return FaultOutcome(fails=Failure.SPOIL)
        return FaultOutcome(before=self.lag) if occasion.plural == PODS.plural else AS_USUAL


class OperatorStage(stories.Steps):
    """Zones whose pods are called before they go, five minutes one after another, unless plain."""

    def __init__(
        self, lines: list[str] | None = None, *, has_webhooks: bool = True, is_quick: bool = True
    ) -> None:
        self.lines = [] if lines is None else lines
        self.has_webhooks = has_webhooks
        self.pods = QUICK if is_quick else None
        self.late = LatePods()
        self.processes: dict[str, SimulatedProcess] = {}
        self.names: dict[str, str] = {}
        self.args: list[str] = []
        self.guarded = ZONE_BUDGETS
        self.by_partition = False
        self.hanging = "none"
        self.seen: Counter[object] = Counter()
        self.began = self.started = timedelta(0)
        self.depth = 0

    async def set_up(self) -> None:
        self.sandbox = await self.stack.enter_async_context(self._make_sandbox())
        self.people = People(sandbox=self.sandbox, rng=random.Random(0))

    def _make_sandbox(self) -> Sandbox:
        return Sandbox(choose=self._choose, faults=self.late)

    def _choose(self, pod: JsonObject) -> Behaviour:
        if self.pods is None:
            return DEFAULT(pod)
        hanging = replace(self.pods, prepare=HANGS, cancel=HANGS)
        return hanging if name_of(pod).startswith(self.hanging) else self.pods

    def look(self) -> list[str]:
        if self.depth:
            return []
        lines = []
        for one in self.take(Commit):
            if not one.actor.startswith("operator-") or one.resource != STATEFULSETS:
                continue
            if one.before and one.after and _count(one.before) != _count(one.after):
                name = one.name.removeprefix("zone-")
                lines.append(f"{self._since(one.at)} {name}={_count(one.after)}")
        own = {one.number for one in self.sandbox.history.list_all(Called) if _is_own(one)}
        refusals = {
            f"refused by {one.message.split(chr(34))[1]}"
            for one in self.take(Reviewed)
            if not one.allowed and one.call in own
        }
        return [*lines, *sorted(refusals), *self._list_deletes()]

    def take(self, kind: type[Any], purpose: str = "") -> list[Any]:
        """Return what of a kind has happened since the last time."""
        found = list(self.sandbox.history.list_all(kind))
        since, self.seen[kind, purpose] = self.seen[kind, purpose], len(found)
        return found[since:]

    def _list_deletes(self) -> Iterator[str]:
        found: dict[str, list[Called]] = defaultdict(list)
        for one in self.take(Called, "deletes"):
            if _is_own(one) and _is_delete(one):
                found[one.actor].append(one)
        for actor, deletes in found.items():
            who = f"{self.names.get(actor, actor)} " * (len(self.processes) > 1)
            pods = [one.request.name.removeprefix("zone-") for one in deletes]
            shown = " ".join(pods) if len(pods) < 12 else f"{len(pods)} pods"
            yield f"{self._since(deletes[0].at)} {who}deletes {shown}"

    def _since(self, at: timedelta) -> str:
        return f"+{(at - self.began).total_seconds():.0f}s"

    # The world at its beginning

    async def do_given(self, *name: str) -> None:
        await self._quietly(GIVEN[" ".join(name)])

    async def do_leave(self, *way: str) -> None:
        self.began = elapsed()
        await self._quietly(WAYS[" ".join(way)])

    async def _quietly(self, commands: str) -> None:
        self.depth += 1
        await self.act(f"{commands} > wait")
        self.depth -= 1

    async def do_tracked(self, *name: str) -> None:
        """Begin with a tracker in the place of annotations."""
        self.args.append("-use-zone-tracker=true")
        await self.do_given(*name)

    async def do_zone(self, letter: str, *words: str) -> None:
        """Create a zone: `follows=a wait=5m unguarded locked`, `mirror=demo delay=2m`, `plain`."""
        given = dict(word.split("=", 1) for word in words if "=" in word)
        labels: dict[str, str] = dict(WHO[given["who"]]) if "who" in given else {}
        pod_labels = {**labels, GROUP_LABEL: "ingester"} if labels or "guarded" in words else {}
        annotations: dict[str, str] = {}
        if "mirror" in given:
            annotations = {**MIRRORING, MIRROR_NAME: given["mirror"]}
            if "delay" in given:
                annotations[DOWNSCALE_DELAY] = given["delay"]
                annotations[DOWNSCALE_DELAY_URL] = "http://pod/delayed"
        elif "plain" not in words:
            annotations = {**PREPARED, MIN_TIME_BETWEEN_DOWNSCALES: given.get("wait", "5m")}
            labels |= {} if "unguarded" in words else {PREPARE_DOWNSCALE: "true"}
            labels |= {NO_DOWNSCALE: "true"} if "locked" in words else {}
        if "follows" in given:
            annotations[LEADING_ZONE] = f"zone-{given['follows']}"
        if "soak" in given:
            annotations[ZONE_SOAK] = given["soak"]
        if "marked" in words:
            annotations[DOWNSCALE_INTENT] = "x"
        group: str | None = given.get("group", "ingester")
        if "bare" in words:
            labels = {}
        if "zonal" in words or "zonal" in given:
            group, labels[TOPOLOGY_KEYS[0]] = None, given.get("zonal", letter)
        zone = ZoneSpec(
            name=f"zone-{letter}",
            group=None if group == "none" else group,
            replicas=next((int(word) for word in words if word.isdigit()), 3),
            max_unavailable=given.get("most"),
            labels=labels,
            annotations=annotations,
            pod_labels=pod_labels,
        )
        await self.people.create(zone)

    async def do_groups(self, count: str) -> None:
        """Add groups of two zones, each of which mirrors an object of its own."""
        for number in range(int(count)):
            await self.do_template(f"demo-{number}", "2")
            for letter in "ab":
                await self.do_zone(
                    f"{letter}{number}", f"mirror=demo-{number}", f"group=group-{number}"
                )

    async def do_fleet(self, groups: str, zones: str, pods: str) -> None:
        """Add groups of so many zones of so many pods."""
        for number in range(int(groups)):
            for letter in "abc"[: int(zones)]:
                await self.do_zone(f"{number:02}{letter}", "plain", pods, f"group=g{number}")

    async def do_hanging(self, letter: str) -> None:
        """Have the pods of a zone answer no call."""
        self.hanging = f"zone-{letter}"

    async def do_pages(self, size: str) -> None:
        """Have the API server answer lists in pages of this size at most."""
        self.sandbox.api.largest_page = int(size)

    async def do_start(self, *words: str) -> None:
        """Start processes `1`, or `1 2 elects`, or `shadow`, with flags and features."""
        flags = [*self.args, *(word for word in words if word.startswith("-"))]
        await asyncio.sleep(5)
        if is_served := self.has_webhooks or "hooks" in words:
            budgets = self.sandbox.api.list(ZONE_BUDGETS, self.sandbox.namespace)
            await self.people.register_webhooks(evictions=bool(budgets))
        for name in [word for word in words if word.isdigit() or word == "shadow"] or ["1"]:
            self.names[f"operator-{name}"] = name
            self.processes[name] = process = self.sandbox.process(
                f"operator-{name}",
                webhooks=is_served,
                args=[*flags, "-mode=shadow"] if name == "shadow" else flags,
                elects="elects" in words,
            )
            process.start()
            for feature in {*FEATURES} & {*words}:
                process.add_feature(FEATURES[feature])
        for process in self.processes.values():
            await process.wait_ready()
        await asyncio.sleep(5)

    def _process(self, name: str = "") -> SimulatedProcess:
        return self.processes[name] if name else next(iter(self.processes.values()))

    # People

    async def do_scale(self, letter: str, replicas: str, route: str = "scale") -> str:
        self.began = elapsed()
        people, count = self.people, int(replicas)
        if await people.attempt(lambda: people.scale(f"zone-{letter}", count, ROUTES[route])):
            return ""
        return "refused" + ": a left short" * (LEFT in people.tries[-1])

    async def do_template(self, name: str, replicas: str) -> None:
        """Set what zones mirror, as an autoscaler does."""
        self.began = elapsed()
        templates = self.sandbox.api.list(REPLICA_TEMPLATES, self.sandbox.namespace)
        is_there = name in map(name_of, templates)
        write = self.people.scale_template if is_there else self.people.create_template
        await write(name, int(replicas))

    async def do_status(self, name: str) -> str:
        """Show what an object that zones mirror says of them."""
        found = self.sandbox.api.get(REPLICA_TEMPLATES, self.sandbox.namespace, name)
        return f"status {child(found or {}, 'status').get('replicas')}"

    async def do_image(self, letters: str, image: str = "v2") -> None:
        """Have zones, or `all`, get a new image."""
        self.began = elapsed()
        every = map(name_of, self.sandbox.api.list(STATEFULSETS, self.sandbox.namespace))
        for name in every if letters == "all" else [f"zone-{letter}" for letter in letters]:
            await self.people.set_image(name, image)

    async def do_rolled(self) -> str:
        """Wait until all pods have the image that they should; show how long that takes."""
        if not name_unrolled(self.sandbox):
            return "rolled out"
        written = asyncio.Event()
        self.sandbox.api.on_commit(lambda commit: written.set())
        async with asyncio.timeout(600):
            while name_unrolled(self.sandbox):
                written.clear()
                await written.wait()
        self.take(Called, "deletes")
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

    async def do_follow(self, letter: str, leading: str) -> None:
        await self.people.annotate(f"zone-{letter}", LEADING_ZONE, f"zone-{leading}")

    async def do_remove(self, letter: str, propagation: Any = "Background") -> None:
        await self.people.delete(f"zone-{letter}", propagation)

    async def do_label(self, letter: str, text: str) -> None:
        """Have group and `app` of a zone be another one or `none`."""
        await self.do_group(letter, text)
        await self.people.label(f"zone-{letter}", "app", None if text == "none" else text)

    async def do_group(self, letters: str, name: str) -> None:
        for letter in letters:
            text = None if name == "none" else name
            await self.people.label(f"zone-{letter}", GROUP_LABEL, text)

    async def do_back(self) -> None:
        """Put zone a back into its group, as it was."""
        self.began = elapsed()
        if self.people.find("zone-a") is None:
            await self.do_zone("a", "plain", "who=alone")
            return
        await self.do_group("a", "ingester")
        await self.people.label("zone-a", "app", "store")

    async def do_strategy(self, letter: str, strategy: str) -> None:
        await self.people.change_spec(f"zone-{letter}", {"updateStrategy": {"type": strategy}})

    async def do_delete(self, *pods: str) -> None:
        """Delete pods as another operator does."""
        self.began = elapsed()
        for pod in pods:
            name = f"zone-{pod}"
            await self._send(
                ApiRequest(verb="delete", resource=PODS, name=name, user="another-holder")
            )

    async def do_clear(self, letter: str, count: str) -> None:
        """Delete so many pods of a zone as another operator does."""
        await self.do_delete(*(f"{letter}-{ordinal}" for ordinal in range(int(count))))

    async def do_short(self) -> None:
        await self.do_fail("a-1")
        await asyncio.sleep(5)

    async def do_lag(self, seconds: str, controller: str = "1") -> None:
        """Have the watch of pods be so late, and the StatefulSet controller a little, or more."""
        self.late.lag = timedelta(seconds=float(seconds))
        self.sandbox.cluster.lag_controller(timedelta(seconds=float(controller)))

    async def do_spoil(self, plural: str = "") -> None:
        """Have events of a kind come as objects that cannot be decoded, or none."""
        self.late.spoiled = plural

    async def do_refuse(self, plural: str = "") -> None:
        """Have watches of a kind be answered with a 401, or of none."""
        self.late.refused = plural

    async def do_fail(self, pod: str) -> None:
        self.sandbox.cluster.fail_pod(f"zone-{pod}")

    async def do_mend(self, *pods: str) -> None:
        """Make pods ready, unless others are there by now, which are so by themselves."""
        self.began = elapsed()
        for pod in pods:
            if self.sandbox.api.get(PODS, self.sandbox.namespace, f"zone-{pod}") is not None:
                self.sandbox.cluster.mend_pod(f"zone-{pod}")

    async def do_mark(self, letter: str, text: str) -> None:
        """Write a mark of a downscale as a tenant, or `none` any more."""
        await self.people.annotate(
            f"zone-{letter}", DOWNSCALE_INTENT, None if text == "none" else text
        )

    async def do_evict(self, *pods: str) -> str:
        """Request evictions, five seconds one after another."""
        found = []
        for number, pod in enumerate(pods):
            await asyncio.sleep(5 if number else 0)
            answer = await evict(self.sandbox, f"zone-{pod}", "drain")
            of = " a left short" if LEFT in answer.message else " a" * ("zone-a" in answer.message)
            found.append(f"{answer.status}{of}")
        return " ".join(found)

    async def do_drain(self, *pods: str) -> str:
        """Evict pods, each again every five seconds until it goes; show when that is."""
        self.began = elapsed()

        async def leave(pod: str) -> str:
            async with asyncio.timeout(180):
                while (await evict(self.sandbox, f"zone-{pod}", "drain")).status != 201:  # noqa: ASYNC110 (an answer)
                    await asyncio.sleep(5)
            return f"{self._since(elapsed())} {pod} is evicted"

        return ", ".join(await asyncio.gather(*map(leave, pods)))

    # Budgets and policies

    async def do_budget(self, by: str = "") -> None:
        """Guard all zones."""
        self.by_partition = by == "partitions"
        await self.do_add("store")

    async def do_policy(self, who: str = "all") -> None:
        """Have zones roll out one after another, pod by pod."""
        self.guarded = MULTI_AZ_ROLLOUTS
        self.args.append("-multi-az-rollouts.enabled")
        await self.do_add("store", who)

    async def do_unobeyed(self) -> None:
        """Create a policy beside an operator that obeys none."""
        await self.do_policy()
        self.args.clear()

    async def do_add(self, name: str, who: str = "all") -> None:
        """Create a budget or policy for some of the zones."""
        by = {"podNamePartitionRegex": "[a-z-]+-([0-9]+)"} if self.by_partition else {}
        body: JsonObject = zone_budget(name, WHO[who], maxUnavailable=1, **by)
        if self.guarded is MULTI_AZ_ROLLOUTS:
            body = {
                "apiVersion": "rollout.grafana.com/v1alpha1",
                "kind": "MultiAZRollout",
                "metadata": {"name": name},
                "spec": {**_select(self.guarded, who), "rollingUpdate": {"intervalSeconds": 0}},
            }
        await self._send(ApiRequest(verb="create", resource=self.guarded, body=body))

    async def do_drop(self, name: str) -> None:
        await self._send(ApiRequest(verb="delete", resource=self.guarded, name=name))

    async def do_select(self, name: str, who: str) -> None:
        await self.do_spec(name, json.dumps(_select(self.guarded, who)))

    async def do_spec(self, name: str, spec: str) -> None:
        """Merge something into the spec of a budget or policy."""
        self.began = elapsed()
        request = ApiRequest(
            verb="patch", resource=self.guarded, name=name, body={"spec": json.loads(spec)}
        )
        await self._send(replace(request, content_type=MERGE_PATCH))

    async def do_ours(self) -> None:
        """Guard the whole group."""
        body = zone_budget("store", {GROUP_LABEL: "ingester"}, maxUnavailable=1)
        await self._send(ApiRequest(verb="create", resource=ZONE_BUDGETS, body=body))

    async def do_named(self, name: str, key: str, text: str) -> None:
        """Create a budget for what has a label."""
        body = zone_budget(name, {key: text})
        await self._send(ApiRequest(verb="create", resource=ZONE_BUDGETS, body=body))

    async def _send(self, request: ApiRequest) -> None:
        await self.sandbox.call(replace(request, namespace=self.sandbox.namespace))

    # Tenants

    async def do_flood(self, kind: str) -> None:
        """Have marks be written for good: to forty sets in turn, or to ever more sets."""

        async def rewrite() -> None:
            for at in itertools.count():
                for number in range(40):
                    await self.do_mark(f"evil-{number}", f"{at}")
                    await asyncio.sleep(1 / 40)

        async def multiply() -> None:
            for at in itertools.count():
                name = f"evil-{at}"
                await self.do_zone(name, "0", "plain", "marked", f"group={name}")
                await asyncio.sleep(0.1)

        for number in range(40) if kind == "rewrite" else ():
            await self.do_zone(f"evil-{number}", "0", "plain", f"group=evil-{number}")
        self.start((rewrite if kind == "rewrite" else multiply)(), "tenant")

    async def do_forge(self, every: str, *pods: str) -> None:
        """Have reviews of evictions of these pods be forged, one after another."""
        self.forged: list[bool] = []

        async def forge() -> None:
            for pod in itertools.cycle(pods):
                call = ask_eviction(self.sandbox.namespace, f"zone-{pod}")
                answer = json.loads(await self._process().answer(call))
                self.forged.append(answer["response"]["allowed"])
                await asyncio.sleep(float(every))

        self.start(forge(), "tenant")

    async def do_invent(self, *kinds: str) -> None:
        """Have forty clients send reviews of what never was, of these kinds or of all."""

        async def request(number: int, kind: str) -> None:
            for at in itertools.count():
                call = make_up(kind, self.sandbox.namespace, f"none-{number}-{at}")
                await self._process().answer(call)
                await asyncio.sleep(0.4)

        chosen = itertools.cycle(kinds or MADE_UP)
        for number, kind in zip(range(40), chosen, strict=False):
            self.start(request(number, kind), "tenant")

    async def do_forgeries(self) -> str:
        """Show how many of the forged reviews were allowed."""
        return f"{sum(self.forged)} of {len(self.forged)} forgeries allowed"

    async def do_forbid(self, verb: str, plural: str, seconds: float = 1e6) -> None:
        self.sandbox.api.forbidden ^= {(OPERATOR, verb, plural)}  # permitted again by the second
        asyncio.get_running_loop().call_later(float(seconds), self.sandbox.api.forbidden.clear)

    # The processes

    async def do_wait(self, seconds: float = 0) -> None:
        await asyncio.sleep(seconds)

    async def do_lead(self) -> None:
        """Wait until one acts, which is the leader; the next one is the `other`."""
        async with asyncio.timeout(30):
            while not any(one.acts for one in self.processes.values()):  # noqa: ASYNC110 (a state)
                await asyncio.sleep(0.1)
        found = sorted(self.processes.values(), key=lambda one: one.acts, reverse=True)
        self.processes = dict(zip(("leader", "other"), found, strict=False))
        self.names = {one.name: name for name, one in self.processes.items()}

    async def do_acts(self) -> str:
        return " ".join(name for name, one in self.processes.items() if one.acts) or "none acts"

    async def do_crash(self, name: str = "") -> None:
        self.began = elapsed() if name else self.began
        self._process(name).crash()

    async def do_again(self) -> None:
        self._process().start()

    async def do_stop(self, name: str = "") -> str:
        began = elapsed()
        await self._process(name).stop()
        return f"stopped in {(elapsed() - began).total_seconds():.0f}s"

    async def do_cut(self, word: str = "cut") -> None:
        """Cut the operator from the API server, or `cut no` more."""
        self._process().link.is_cut = word == "cut"

    # What is shown

    async def do_count(self, letter: str) -> str:
        found = self.people.find(f"zone-{letter}")
        assert found is not None
        has_time = LAST_DOWNSCALE in child(found, "metadata", "annotations")
        return f"{letter} has {_count(found)}" + ", no time" * (not has_time)

    async def do_waits(self, name: str = "") -> str:
        """Show the reasons that groups are told of, and what watches say that prove nothing."""
        process = self._process(name)
        lines = process.telemetry.health.list_descriptions()
        silent = [line.partition(" watch")[0] for line in lines if " s ago: " in line]
        waits = [reason for entry in process.entries() for reason in entry.plan.waits]
        codes = ", ".join(sorted({reason.code for reason in waits})) or "no state"
        return codes + f", no proof of {' '.join(silent)}" * bool(silent)

    async def do_why(self) -> str:
        """Show the first reason for which the group waits, with its text."""
        [entry] = [one for one in self._process().entries() if one.plan.group == "ingester"]
        reason = entry.plan.waits[0]
        return f"{reason.code} {reason.zone.removeprefix('zone-')}: {reason.text}"

    async def do_texts(self) -> str:
        """Show what would be done."""
        waits = [reason for entry in self._process().entries() for reason in entry.plan.waits]
        return " / ".join(one.text for one in waits if one.text.startswith("would "))

    async def do_held(self) -> str:
        """Show whether any policy says that a zone left short."""
        policies = self.sandbox.api.list(MULTI_AZ_ROLLOUTS, self.sandbox.namespace)
        said = f"{[child(policy, 'status') for policy in policies]}"
        is_said = "zone_left_short" in said or "while it was short" in said
        return "left short" if is_said else "not held"

    async def do_new(self, image: str) -> str:
        """Show how many pods have an image."""
        pods = self.sandbox.api.list(PODS, self.sandbox.namespace)
        return f"{sum(image_of(one) == image for one in pods)} of {len(pods)} new"

    async def do_writers(self) -> str:
        """Show which processes have written anything but the Lease since the last time."""
        found = {
            self.names[one.actor]
            for one in self.take(Called, "writers")
            if _is_own(one) and one.request.verb in WRITES and one.request.resource != LEASES
        }
        return f"{' '.join(sorted(found)) or 'none'} wrote"

    async def do_lease(self) -> str:
        (lease,) = self.sandbox.api.list(LEASES, self.sandbox.namespace)
        return f"{child(lease, 'spec')['leaseTransitions']} transition"

    async def do_starts(self, name: str) -> str:
        return f"{self._process(name).starts} starts"

    async def do_election(self, name: str) -> str:
        """Show what the head of the page says of the election."""
        process = self._process(name)
        found = process.telemetry.health.list_descriptions()
        lines = [one for one in found if one.startswith("election: ")]
        rendered = list(render_description(await process.describe()))
        assert {f"  {one}" for one in lines} <= {*rendered}
        return " / ".join(lines)

    async def do_metric(self, name: str, process: str = "") -> str:
        """Show what is counted of the group."""
        registry = self._process(process).telemetry.metrics.registry
        found = registry.get_sample_value(f"rollout_operator_{name}", {GROUP_LABELS: "ingester"})
        return "no series" if found is None else f"{found:g}"

    async def do_series(self) -> str:
        """Show whether any series is left of the group."""
        text = generate_latest(self._process().telemetry.metrics.registry).decode()
        return "a series" if f'{GROUP_LABELS}="ingester"' in text else "no series"

    async def do_page(self, name: str = "") -> str:
        """Show what pages say of a process and its groups; capitals are updated pods."""
        found = await self._process(name).describe()
        operator = found.operator
        assert operator is not None
        who = f"{'ready' if operator.is_ready else 'starting'}{', acts' * operator.is_acting}"
        lacks = [f"lacks {' '.join(operator.missing)}"] if operator.missing else []
        return "; ".join([who, *lacks, *map(outline, found.groups)])

    async def do_described(self) -> str:
        """Show what pages say of budgets, and what to do."""
        found = await self._process().describe()
        return "; ".join(
            f"{one.name} {one.zones} zones {one.pods} pods"
            + "".join(f" {wait.code}" + ", a remedy" * bool(wait.remedy) for wait in one.waits)
            for one in found.budgets
        )

    async def do_kubectl(self) -> str:
        """Show what a budget says of itself: zones, unavailable, allowed, and why."""
        body: Any = self.sandbox.api.get(ZONE_BUDGETS, self.sandbox.namespace, "store")
        status = body["status"]
        [ready] = [one for one in status["conditions"] if one["type"] == "Ready"]
        numbers = [status[key] for key in ("zones", "currentUnavailable", "allowedDisruptions")]
        return f"{' '.join(map(str, numbers))} {ready['reason']}"

    async def do_watch(self, seconds: str) -> str:
        """Show all that a budget says of itself meanwhile, each second."""
        found: dict[str, None] = {}
        for _ in range(int(seconds)):
            await asyncio.sleep(1)
            found[await self.do_kubectl()] = None
        return ", ".join(found)

    async def do_reports(self) -> str:
        """Show how often a budget's status was written since the last time, and how close."""
        found = [
            one
            for one in self.take(Called, "reports")
            if (one.request.resource, one.request.subresource) == (ZONE_BUDGETS, "status")
        ]
        gaps = [after.at - before.at for before, after in itertools.pairwise(found)]
        close = f", {min(gaps).total_seconds():.0f}s apart" if gaps else ""
        who = {f"{self.names.get(one.actor, one.actor)} {one.status}" for one in found}
        return f"{len(found)} writes{close} {' '.join(sorted(who))}".strip()

    async def do_said(self, text: str) -> str:
        """Show how many lines of the log have a text."""
        return f"{sum(text in line for line in self.lines)} lines"

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

    async def do_rate(self, seconds: str, most: str) -> str:
        """Show for which API groups so much was sent in the last minute, never more at a time."""
        sent: dict[str, list[float]] = defaultdict(list)
        for one in self.sandbox.history.list_all(Called):
            if _is_own(one) and one.request.verb != "watch" and one.at >= self.began:
                sent[one.request.resource.group or "core"].append(one.at.total_seconds())
        for times in sent.values():
            for first, since in enumerate(times):
                assert sum(at <= since + float(seconds) for at in times[first:]) <= int(most)
        return " ".join(sorted(group for group, times in sent.items() if len(times) > 12))

    async def do_calls(self, most: str = "1000000") -> str:
        """Show which pods were called since the last time, at most so often together."""
        found = [f"{one.method} {one.pod.removeprefix('zone-')}" for one in self.take(PodCalled)]
        assert len(found) <= int(most), len(found)
        return ", ".join(sorted(set(found))) or "no call"

    async def do_silently(self) -> None:
        """Forget what was sent until now."""
        self.take(Called)
        self.take(PodCalled)


GROUP_LABELS: Final = "rollout_group"


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


def outline(group: GroupDescription) -> str:
    """Return the state of a group, and of each pod one letter, capital where updated."""
    zones = [
        "".join(one.state[0].upper() if one.is_updated else one.state[0] for one in zone.pods)
        for zone in group.zones
    ]
    words = [
        f"{group.name} {group.phase} {group.code}: {' '.join(zones)}",
        "since" * (group.since is not None),
        "began" * (group.began is not None),
        "end expected" * (group.expected_end is not None),
        *(
            f"{step.pod.removeprefix('zone-')} {'waits' if step.is_waiting else 'goes'}"
            for step in group.steps[:1]
        ),
        "a remedy" * any(one.remedy for one in group.waits),
    ]
    return ", ".join(filter(None, words))


def _select(resource: object, who: str) -> JsonObject:
    [field] = [name for kind, name in SELECTORS.items() if kind is resource]
    return {field: {"matchLabels": dict(WHO[who])}}


def _is_own(call: Called) -> bool:
    return call.actor.startswith("operator-")


def _is_delete(call: Called) -> bool:
    return (call.request.verb, call.request.resource) == ("delete", PODS) and call.status < 400


def _count(one: JsonObject | None) -> Any:
    return None if one is None else child(one, "spec")["replicas"]
