"""The commands of stories of replicas that move by themselves: people, the API server, pods.

A zone is a letter, `b-4` a pod of it; `demo` is the object that zones mirror. After each command
stands what was sent since: writes (`mark` is a patch of a mark, `patch` one of replicas, whatever
came of it), reads, calls of pods, and below `=` what is stored; then what changed of metrics, of
the downscale that holds the group, and of the reasons shown (`!` is a warning, `~` no news).

Caches follow a person's write at once, and others with `see`; with `live` workers run, caches
follow each write after a moment, and sets obey.
"""

import asyncio
import copy
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace
from rollout_lab.schemas.patches import patched
from rollout_lab.trace.lines import strip_time

from rollout_operator.controllers.budgets import Budgets
from rollout_operator.controllers.rollout import RolloutController
from rollout_operator.controllers.scaling import ScalingController
from rollout_operator.controllers.worker import RESYNC
from rollout_operator.guards.turns import group_lock
from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    DOWNSCALE_INTENT,
    FORCE_REPLICAS,
    GROUP_LABEL,
    LAST_DOWNSCALE,
    LEADING_ZONE,
    MAX_UNAVAILABLE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    MIRROR_API_VERSION,
    MIRROR_KIND,
    MIRROR_NAME,
    MIRROR_WRITE_BACK,
    PREPARE_DOWNSCALE,
    GroupName,
    TooManyRequests,
    Uid,
)
from rollout_operator.model.objects import Endpoint
from rollout_operator.model.outcome import Severity
from rollout_operator.model.scaling import NoScale, Reading, Reference, Scale
from rollout_operator.model.units import format_next_second, parse_prometheus_duration
from rollout_operator.pods import Method
from tests.controllers.fake_client import FakeClient, Json, apply_steps, pod_json, set_json
from tests.controllers.fed_context import FedContext
from tests.stories import read_words
from tests.virtual_time import EPOCH, VirtualClock, elapsed
from tests.web.client_stage import ERRORS, ClientStage

GROUP: Final = GroupName("ingester")
LAG: Final = 0.02  # seconds until a cache shows a write
PUT_BACK: Final = 0.2  # seconds until another client undoes one
DEMO: Final = Reference("rollout-operator.grafana.com", "ReplicaTemplate", "demo")
MIRRORING: Final = {
    MIRROR_NAME: "demo",
    MIRROR_KIND: "ReplicaTemplate",
    MIRROR_API_VERSION: "rollout-operator.grafana.com/v1",
}
DELAYED: Final = {**MIRRORING, DOWNSCALE_DELAY: "1h", DOWNSCALE_DELAY_URL: "http://pod/prepare"}
KEYS: Final = {
    "follows": LEADING_ZONE,
    "force": FORCE_REPLICAS,
    "last": LAST_DOWNSCALE,
    "span": MIN_TIME_BETWEEN_DOWNSCALES,
    "write_back": MIRROR_WRITE_BACK,
    "delay": DOWNSCALE_DELAY,
    "url": DOWNSCALE_DELAY_URL,
    "mark": DOWNSCALE_INTENT,
}
# What stories begin with.
GIVEN: Final = {
    "follower": "zone a 2; zone b 5 follows=a; zone c 3 old",
    "follower up": "zone a 7; zone b 5 follows=a; zone c 3 old",
    "unanswered": "given follower; fail unknown 'patch b'; reconcile; heal",
    "left": 'given follower; annotate b \'mark={"id":"9-1","replicasFrom":5,"replicasTo":2}\';'
    " set a 5",
    "waiting": "zone a 2 last=0s; zone b 5 follows=a span=12h",
    "contested": "zone a 5; zone b 3 follows=a; fight b; live",
    "two groups": "zone b 3 mirroring; zone x 5 mirroring group=store delay=soon url=http://pod/x;"
    " demo 3/5",
}


class ScalingClient(FakeClient):
    """Takes JSON patches of sets, as `Replicas` sends them."""

    def __init__(self) -> None:
        super().__init__([], [])
        self.stored: list[str] = []
        """Replicas that were written, such as `b=2`."""
        self.sent: list[list[JsonObject]] = []
        """Patches of replicas, whatever became of them."""
        self.stores: int | None = None
        """What another webhook makes of all replicas."""
        self.losing: set[str] = set()
        """Sets whose next patch is stored and not answered."""
        self.listeners: list[Any] = []

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
        subresource: str = "",
        **_: object,
    ) -> bytes:
        if isinstance(patch, dict):
            return await super().patch(resource, namespace, name, patch, subresource)
        is_count = any(step["path"] == "/spec/replicas" for step in patch)
        if is_count:
            self.sent.append(list(patch))
        await self._record(f"{'patch' if is_count else 'mark'} {resource.plural}/{name}")
        one = apply_steps(self._held(resource, name), patch)
        if is_count:
            one["spec"]["replicas"] = self.stores or one["spec"]["replicas"]
            one["metadata"]["generation"] += 1
            self.stored.append(f"{_short(name)}={one['spec']['replicas']}")
        body = self._write(resource, name, one)
        for listener in self.listeners:
            listener(name, is_count)
        if is_count and name in self.losing:
            self.losing.discard(name)
            raise ERRORS["unknown"]
        return body

    def edit(self, name: str, **parts: Json) -> None:
        """Write a set as a person does; an annotation of None goes."""
        one = copy.deepcopy(self.objects["statefulsets", name])
        before = copy.deepcopy(one["spec"])
        for key, changes in parts.items():
            if key == "annotations":
                held = {**one["metadata"]["annotations"], **changes}
                kept = {each: text for each, text in held.items() if text is not None}
                one["metadata"]["annotations"] = kept
            else:
                one[key] |= changes
        meta = one["metadata"]
        meta["generation"] += one["spec"] != before
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)
        self.objects["statefulsets", name] = one

    async def take(self, call: str) -> None:
        """Have a call of something else fail or hang as those of the API server do."""
        await self._record(call)


class References:
    """The object that zones mirror: what is watched of it, and what a live read shows."""

    def __init__(self, client: ScalingClient) -> None:
        self.client = client
        self.readings: dict[Reference, Reading] = {}
        self.live: Reading | None = None
        self.wanted: dict[GroupName, Collection[Reference]] = {}

    def want(self, group: GroupName, references: Collection[Reference]) -> None:
        self.wanted[group] = references

    async def refresh(self, reference: Reference) -> Reading:
        await self.client.take("read demo")
        return self.live or self.readings[reference]

    async def publish(self, reference: Reference, replicas: int) -> None:
        await self.client.take("publish demo")
        self.client.stored.append(f"demo={replicas}")
        reading = self.readings[reference]
        assert isinstance(reading, Scale)
        self.readings = {reference: replace(reading, status_replicas=replicas)}


class Answering(msgspec.Struct):
    """How a pod answers: a good one by default, that is prepared from its first POST on."""

    prepared: str = ""
    """For how long it is, when the story begins."""
    status: int = 200
    body: str = ""
    takes: str = "50ms"
    resets: bool = False


class Pods:
    """A `Sender` to pods that remember since when they are prepared."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.answering: dict[str, Answering] = {}
        self.since: dict[str, float] = {}

    async def send(
        self, method: Method, endpoint: Endpoint, *, reads_body: bool = False
    ) -> tuple[int, bytes]:
        answering = await self._arrive(method, endpoint)
        if not reads_body:
            if answering.status == 200:
                self.since.pop(endpoint.uid, None)
                answering.prepared = ""
            return answering.status, b""
        if answering.body:
            return answering.status, answering.body.encode()
        begun = elapsed()
        if answering.prepared:
            begun = -parse_prometheus_duration(answering.prepared)
        since = self.since.setdefault(endpoint.uid, begun.total_seconds())
        text = json.dumps({"timestamp": int(EPOCH.timestamp() + since)})
        return answering.status, text.encode()

    async def close(self) -> None:
        """Nothing is open."""

    async def _arrive(self, method: str, endpoint: Endpoint) -> Answering:
        self.calls.append(f"{method} {_short(endpoint.pod)}")
        answering = self.answering.setdefault(_short(endpoint.pod), Answering())
        await asyncio.sleep(parse_prometheus_duration(answering.takes).total_seconds())
        if answering.resets:
            raise ConnectionResetError
        return answering


class ScalingStage(ClientStage):
    """A group of zones, with the controllers of its replicas and of its rollouts."""

    client: ScalingClient

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines
        self.clock = VirtualClock()
        self._attend(ScalingClient())
        self.references = References(self.client)
        self.stores = Pods()
        self.processes = 0
        self.is_unseen = self.is_living = False
        self.obeys = True
        self.notes: list[str] = []
        self.before: dict[str, str] = {}
        self.counted: Counter[str] = Counter()
        self._build()

    def _build(self) -> None:
        """Begin a process; of the last one nothing is left."""
        self.processes += 1
        self.context = FedContext(self.client, self.clock, self.stores, "-kubernetes.client-qps=5")
        self.scaling = ScalingController(self.context, f"{self.processes}")
        self.scaling.references = cast(Any, self.references)
        self.rollout = RolloutController(self.context, Budgets(self.context).arbiter)

    # What is shown

    def look(self) -> list[str]:
        calls = Counter(_short(call) for call in self.client.calls if "list pods" not in call)
        calls.update(self.stores.calls)
        lines = [_times(call, count) for call, count in calls.items()]
        for again in (self.client.stored, self.notes):
            lines += [_times(text, len([*same])) for text, same in groupby(again)]
        for seen in (self.client.calls, self.client.stored, self.stores.calls, self.notes):
            seen.clear()
        counted = Counter(dict(self._read_counters()))
        lines += [_times(name, count) for name, count in (counted - self.counted).items()]
        state = self._read_state()
        lines += [
            f"{name} {state.get(name, 'none')}"
            for name in dict.fromkeys([*state, *self.before])
            if state.get(name) != self.before.get(name)
        ]
        self.counted, self.before = counted, state
        return lines

    def _read_counters(self) -> Iterator[tuple[str, int]]:
        for metric in self.context.metrics.registry.collect():
            for one in metric.samples:
                if one.name.endswith("scalings_total"):
                    yield f"{one.labels['direction']} {one.labels['outcome']}", int(one.value)
                if one.name.endswith("scaling_failures_total"):
                    yield f"failure {one.labels['reason']}", int(one.value)

    def _read_state(self) -> dict[str, str]:
        state = {
            f"mark {_short(name)}": re.sub(r'\{"id":"([\d-]+)".*', r"\1", mark)
            for (plural, name), one in self.client.objects.items()
            if plural == "statefulsets"
            and (mark := one["metadata"]["annotations"].get(DOWNSCALE_INTENT))
        }
        wanted = {group for group, found in self.references.wanted.items() if found}
        state |= {f"wants {group}": "demo" for group in wanted}
        for entry in self.context.group_states.entries():
            head = "waits" if entry.plan.group == GROUP else f"{entry.plan.group} waits"
            if waits := self._list_waits(entry.plan.group):
                state[head] = ", ".join(waits)
        if underway := self.context.downscales.find_underway(GROUP):
            state["underway"] = (
                f"{_short(underway.zone)} {underway.replicas_from}-{underway.replicas_to}"
            )
        return state

    def _list_waits(self, group: str = GROUP) -> list[str]:
        return [
            f"{one.code} {_short(one.zone)}".strip()
            + {Severity.WARN: "!", Severity.DEBUG: "~"}.get(one.severity, "")
            for entry in self.context.group_states.entries()
            if entry.plan.group == group
            for one in (*entry.plan.waits, *entry.plan.problems)
        ]

    async def do_tell(self) -> None:
        """Note what is shown of the group at this moment, in the midst of something else."""
        underway = self._read_state().get("underway", "none")
        self.notes.append(f"meanwhile {', '.join(self._list_waits()) or '-'} underway {underway}")

    async def do_why(self) -> str:
        """Show all that is said of the group."""
        entries = self.context.group_states.entries()
        reasons = [one for entry in entries for one in (*entry.plan.waits, *entry.plan.problems)]
        return " / ".join(one.text for one in reasons)

    async def do_next(self) -> str:
        """Show how long it says it is until the next downscale."""
        found = self.context.metrics.registry.get_sample_value(
            "rollout_operator_next_downscale_seconds", {"rollout_group": GROUP}
        )
        return "no next" if found is None else f"next in {timedelta(seconds=found)}"

    async def do_series(self) -> str:
        return ", ".join(sorted(name for name, _ in self._read_counters())) or "no series"

    async def do_log(self, word: str) -> str:
        """Show the lines with a word but for debug, and forget all."""
        lines = [one for one in self.lines if word in one and "level=debug" not in one]
        found = Counter(strip_time(one).strip() for one in lines)
        self.lines.clear()
        return " / ".join(_times(one, count) for one, count in found.items()) or "no line"

    async def do_late(self, number: str = "0") -> str:
        """Show whether a patch of replicas that was sent would be stored if it came now."""
        stored = copy.deepcopy(self.client.objects["statefulsets", "zone-b"])
        try:
            patched(stored, self.client.sent[int(number)])
        except ValueError:
            return "too late"
        return "would be stored"

    # The world

    async def do_given(self, *name: str) -> None:
        await self.act(f"{GIVEN[' '.join(name)]} > quiet")

    async def do_quiet(self) -> None:
        """Take as shown what has happened."""
        self.look()

    async def do_zone(self, letter: str, replicas: str, *words: str) -> None:
        """Add a whole zone: `old` `guarded` `mirroring` `delayed`, `group=`, or annotations."""
        name, count = f"zone-{letter}", int(replicas)
        how = read_words(words, f"old guarded mirroring delayed group {' '.join(KEYS)}")
        given = {key: text for key, text in how.items() if key in KEYS}
        one = set_json(name, replicas=count, current="old" if "old" in words else "new")
        meta = one["metadata"]
        meta["labels"] = {GROUP_LABEL: how.get("group", GROUP)}
        if "guarded" in words:
            meta["labels"][PREPARE_DOWNSCALE] = "true"
        kind = DELAYED if "delayed" in words else MIRRORING if "mirroring" in words else {}
        meta["annotations"] = {MAX_UNAVAILABLE: "2", **kind, **_annotate(given)}
        one["spec"]["serviceName"] = "pods"
        one["status"]["updatedReplicas"] = 0 if "old" in words else count
        self.client.put("statefulsets", one)
        for ordinal in range(count):
            self._make_pod(name, ordinal, one["status"]["currentRevision"])
        self.context.feed(self.client)

    def _make_pod(self, zone: str, ordinal: int, revision: str) -> None:
        pod = pod_json(zone, ordinal, revision=revision)
        pod["metadata"]["uid"] = f"uid-{zone}-{ordinal}"
        pod["status"]["podIP"] = f"10.0.0.{ordinal}"
        self.client.objects.setdefault(("pods", f"{zone}-{ordinal}"), pod)

    async def do_demo(self, counts: str, *why: str) -> None:
        """Have the object that is mirrored show `spec/status`."""
        self.references.readings = {DEMO: _read_scale(counts, why)}
        self.scaling.controller.add(GROUP)

    async def do_read(self, counts: str, *why: str) -> None:
        """Have a live read of it show something else."""
        self.references.live = _read_scale(counts, why)

    async def do_set(self, letter: str, replicas: str) -> None:
        self._edit(letter, spec={"replicas": int(replicas)})

    async def do_annotate(self, letter: str, *words: str) -> None:
        """Write annotations; one without a text goes."""
        self._edit(letter, annotations=_annotate(read_words(words, " ".join(KEYS))))

    async def do_meta(self, letter: str, key: str, value: str) -> None:
        self._edit(letter, metadata={key: json.loads(value) if value[0] in "{123456789" else value})

    async def do_status(self, letter: str, key: str, value: str) -> None:
        self._edit(letter, status={key: int(value)})

    def _edit(self, letter: str, **parts: Json) -> None:
        self.client.edit(f"zone-{letter}", **parts)
        if not self.is_unseen:
            self._follow()

    async def do_unseen(self, *words: str) -> None:
        """Do something that no cache shows yet."""
        self.is_unseen = True
        await self._do(*words)
        self.is_unseen = False

    async def do_remove(self, *letters: str) -> None:
        """Delete sets with all their pods."""
        for letter in letters:
            for key in [key for key in self.client.objects if key[1].startswith(f"zone-{letter}")]:
                del self.client.objects[key]
        self._follow()

    async def do_pod(self, pod: str, *words: str) -> None:
        """Have a pod answer otherwise: `prepared=70m status=500 body=OK takes=1h resets=1`.

        Or have it become another: `ready=False uid=x`.
        """
        given = dict(word.split("=", 1) for word in words)
        held = self.client.objects["pods", f"zone-{pod}"]
        held["metadata"]["uid"] = given.pop("uid", held["metadata"]["uid"])
        if "ready" in given:
            held["status"]["conditions"][0]["status"] = given.pop("ready")
            self._follow()
        if given:
            self.stores.answering[pod] = msgspec.convert(given, Answering, strict=False)

    async def do_fight(self, letter: str) -> None:
        """Have another client put replicas back soon after each write."""
        name = f"zone-{letter}"
        held = self.client.objects["statefulsets", name]["spec"]["replicas"]
        managers = [
            {"manager": "rollout-operator", "fieldsV1": {"f:metadata": {}}},
            {"manager": "keda", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
        ]

        def put_back() -> None:
            self._edit(letter, spec={"replicas": held}, metadata={"managedFields": managers})

        def hear(written: str, is_count: bool) -> None:
            if written == name and is_count:
                asyncio.get_running_loop().call_later(PUT_BACK, put_back)

        self.client.listeners.append(hear)

    async def do_copy(self, letter: str, text: str, seconds: str) -> None:
        """Have another client write a mark again whenever it is gone, for so long."""
        for _ in range(int(seconds)):
            if DOWNSCALE_INTENT not in self._annotations(letter):
                self._edit(letter, annotations={DOWNSCALE_INTENT: text})
            await asyncio.sleep(1)

    def _annotations(self, letter: str) -> Json:
        found: Json = self.client.objects["statefulsets", f"zone-{letter}"]["metadata"]
        return dict(found["annotations"])

    # The API server

    async def do_fail(self, error: str, call: str, times: str = "1000000") -> None:
        if error == "later":
            later = TooManyRequests("slow down", retry_after=timedelta(seconds=20))
            self.faults.append((_lengthen(call), later, int(times)))
            return
        await super().do_fail(error, _lengthen(call), times)

    async def do_hang(self, call: str, seconds: str = "86400") -> None:
        await super().do_hang(_lengthen(call), seconds)

    async def do_during(self, call: str, *words: str) -> None:
        await super().do_during(_lengthen(call), *words)

    async def do_lose(self, letter: str) -> None:
        """Store the next patch of replicas, and answer nothing."""
        self.client.losing.add(f"zone-{letter}")

    async def do_stored(self, replicas: str) -> None:
        """Have another webhook change all replicas."""
        self.client.stores = int(replicas)

    async def do_held(self, seconds: str) -> str:
        """Let time pass, and show for how many seconds a downscale held back the group."""
        held = 0
        for _ in range(int(seconds)):
            await asyncio.sleep(1)
            held += self.context.downscales.find_underway(GROUP) is not None
        return f"held for {held}s"

    async def do_queue(self, seconds: str) -> None:
        """Have our own limiter let a write of replicas wait."""

        async def wait(what: str) -> None:
            await asyncio.sleep(float(seconds) * what.startswith("patch"))

        self.client.turn = wait

    # The process

    async def do_reconcile(self, group: str = GROUP) -> str:
        again = (await self.scaling.reconcile(GroupName(group))).again
        return "" if again == RESYNC else f"again {_tell(again)}"

    async def do_roll(self) -> str:
        """Reconcile the rollout of the group."""
        again = (await self.rollout.reconcile(GROUP)).again
        return "" if again is None or again > timedelta(seconds=1) else f"again {_tell(again)}"

    async def do_locked(self, *words: str) -> None:
        """Do something as soon as the lock of the group is free."""
        async with self.context.locks.hold(group_lock(GROUP)):
            await self._do(*words)

    async def do_pass(self, seconds: str) -> None:
        await asyncio.sleep(float(seconds))

    async def do_listen(self) -> None:
        """Note when others learn that they can go on."""
        self.context.downscales.on_change(lambda uid, group: self.notes.append(f"tells {group}"))

    async def do_seen(self, letter: str) -> None:
        """Learn that a zone was scaled down just now."""
        self.scaling.counts.record_downscale(Uid(f"uid-zone-{letter}"))

    async def do_see(self) -> None:
        self._follow()

    async def do_stop(self) -> None:
        self.context.process.stopping_since = elapsed()

    async def do_restart(self) -> None:
        """Let another process take over, whose caches show the store."""
        self._build()
        self.counted.clear()
        self.context.feed(self.client)

    async def do_unsettled(self) -> None:
        """Have sets not obey."""
        self.obeys = False

    async def do_live(self) -> None:
        def hear(name: str, is_count: bool) -> None:
            asyncio.get_running_loop().call_later(LAG, self._follow)

        self.client.listeners.insert(0, hear)
        self.is_living = True
        tasks = await self.stack.enter_async_context(asyncio.TaskGroup())
        for controller in self.scaling.controllers:
            tasks.create_task(controller.run())
        self.stack.callback(self.scaling.close)
        self._follow()

    async def do_wait(self, seconds: float, how: str = "", step: str = "1") -> None:
        """Let time pass; `reconciling` so often, `following` with so many changes a second."""
        if not how:
            await asyncio.sleep(seconds)
        for _ in range(round(seconds / float(step)) if how else 0):
            await (self.do_reconcile() if how == "reconciling" else self.do_see())
            await asyncio.sleep(float(step))

    # Caches

    def _follow(self) -> None:
        """Let the caches follow, and wake every group as informers do."""
        if self.obeys:
            self._obey()
        before = self.context.sets.list_groups()
        self.context.feed(self.client)
        for group in sorted({*before, *self.context.sets.list_groups()}):
            self.scaling.controller.add(group)

    def _obey(self) -> None:
        """Let the controllers of sets do their work: pods come and go, and statuses follow."""
        for (plural, name), one in [*self.client.objects.items()]:
            if plural == "pods":
                continue
            generation, count = one["metadata"]["generation"], one["spec"]["replicas"]
            if one["status"]["observedGeneration"] == generation:
                continue
            fields = ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas")
            status = {"observedGeneration": generation, **dict.fromkeys(fields, count)}
            self.client.edit(name, status=status)
            for key in [key for key in self.client.objects if key[0] == "pods"]:
                zone, _, number = key[1].rpartition("-")
                if zone == name and int(number) >= count:
                    del self.client.objects[key]
            for ordinal in range(count):
                self._make_pod(name, ordinal, one["status"]["updateRevision"])


def _annotate(given: dict[str, str]) -> dict[str, str | None]:
    texts: dict[str, str | None] = {KEYS[key]: text or None for key, text in given.items()}
    if given.get("follows"):
        texts[LEADING_ZONE] = f"zone-{given['follows']}"
    if given.get("last"):
        texts[LAST_DOWNSCALE] = format_next_second(EPOCH - parse_prometheus_duration(given["last"]))
    return texts


def _read_scale(counts: str, why: Sequence[str]) -> Reading:
    if why:
        return NoScale(why=" ".join([counts, *why]), is_lasting=False)
    spec, _, status = counts.partition("/")
    return Scale(replicas=int(spec), status_replicas=int(status))


def _short(call: str) -> str:
    """Return `patch b` for `patch statefulsets/zone-b`, `list` without kind and selector."""
    return "list" if call.startswith("list") else re.sub(r"(statefulsets/|pods/)?\bzone-", "", call)


def _lengthen(call: str) -> str:
    if re.search(r" \w$", call):
        return call.replace(" ", " statefulsets/zone-")
    return re.sub(r" (\w-\d+)$", r" pods/zone-\1", call)


def _times(text: str, count: int) -> str:
    return f"{text} x{count}" if count > 1 else text


def _tell(span: timedelta | None) -> str:
    return "never" if span is None else f"{span.total_seconds():.3g}s"
