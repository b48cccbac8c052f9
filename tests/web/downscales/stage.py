"""The commands of stories of downscales: people, pods, the API server and the process itself.

Zones are letters, `a-3` is a pod of zone a, and `a-3'` one that came under its name later. Calls
are shown with the second in which they begin, and with Service, port and path if those are others.
"""

import asyncio
import copy
import fnmatch
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Final

import msgspec
from msgspec.structs import replace
from rollout_lab.schemas.patches import merge

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.rollout import RolloutController
from rollout_operator.guards.downscales import ReservationState
from rollout_operator.guards.turns import group_lock
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.names import (
    DOWNSCALE_RECORD,
    LAST_DOWNSCALE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
    GroupName,
    InvalidInput,
    Uid,
)
from rollout_operator.model.objects import Endpoint, Key, StatefulSet, Unreadable
from rollout_operator.model.outcome import Verdict
from rollout_operator.model.scaling import (
    Review,
    Scalable,
    Unusable,
    Version,
    decode_entry,
    format_entry,
)
from rollout_operator.operator.reviews import PREPARE_PATH as REVIEWS
from rollout_operator.planning.rollout import plan_group
from tests.controllers.fake_client import FakeClient, Json, pod_json, set_json
from tests.forgeries import (
    Lie,
    change_group,
    change_path,
    change_port,
    change_service,
    move_ordinals,
    name_a_target,
)
from tests.model.review_trees import STATEFULSETS, review_tree
from tests.stories import read_words
from tests.virtual_time import EPOCH, elapsed
from tests.web.client_stage import TODAY, ClientStage, brief, digest
from tests.web.fed_process import FedProcess

GROUP: Final = GroupName("ingester")
LIMIT: Final = timedelta(seconds=9)
PREPARED: Final[Mapping[str, str]] = {PREPARE_DOWNSCALE: "true"}
WHERE: Final[Mapping[str, str]] = {PREPARE_PORT: "8080", PREPARE_PATH: "ingester/prepare"}
WAIT: Final = {MIN_TIME_BETWEEN_DOWNSCALES: "1h"}
LONG_AGO: Final = "2025-12-24T00:00:00Z"
HOUR: Final = 3600.0
MAP: Final = "zones"
FLAGS: Final = {
    "qps": "-kubernetes.client-qps",
    "timeout": "-pods.client-timeout",
    "tracker": "-zone-tracker.config-map-name",
}
ZONES: Final = ("zone-a", "zone-b", "zone-c")
PLACE: Final = "8080/ingester/prepare"
RECORD: Final[Json] = {"replicasFrom": 5, "replicasTo": 3, "at": f"{TODAY}03:04:05Z"}
TARGET: Final[Json] = {"port": 8080, "path": "ingester/prepare", "service": "zone-a"}
MOST_NAMES: Final = 8
_WORDS: Final = re.compile(r'(?:msg|pods?|err)=("(?:\\.|[^"])*"|\S+)')
_RAISED: Final = re.compile(r"\b[A-Z]\w*Error\b")


class PodCall(msgspec.Struct, frozen=True):
    """One call that arrived at a pod; `place` is Service, port and path."""

    method: str
    pod: str
    uid: Uid
    at: timedelta
    place: str


class Pods:
    """A `Sender` to pods that remember calls; `answer` says what becomes of each."""

    def __init__(self, answer: Callable[[str, Endpoint], Awaitable[int]]) -> None:
        self.calls: list[PodCall] = []
        self.confirmed: list[PodCall] = []
        self.answer = answer

    def names(self, method: str) -> list[str]:
        """Return the pods that were called, in order."""
        return [call.pod for call in self.calls if call.method == method]

    def prepared(self) -> set[Uid]:
        """Return the pods whose last call was a POST, confirmed or not: they may be waiting."""
        last = {call.uid: call.method for call in self.calls}
        return {uid for uid, method in last.items() if method == "POST"}

    async def send(
        self, method: str, endpoint: Endpoint, *, reads_body: bool = False
    ) -> tuple[int, bytes]:
        service = endpoint.host.removeprefix(f"{endpoint.pod}.").partition(".test.svc")[0]
        place = f"{service}:{endpoint.port}/{endpoint.path}"
        one = PodCall(method, endpoint.pod, endpoint.uid, elapsed(), place)
        self.calls.append(one)
        status = await self.answer(method, endpoint)
        if status == 200:
            self.confirmed.append(one)
        return status, b""

    async def close(self) -> None:
        """Nothing is open."""


class DownscaleStage(ClientStage):
    """Three zones of five pods each, which are prepared for a downscale; no controller runs."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines
        self.is_seen = self.is_running = False
        self._build()

    def _build(self, replicas: int = 5, waiting: str = "", *flags: str) -> None:
        """Begin with zones a, b and c, all whole, of which some wait for others."""
        sets = [
            zone(name, replicas, annotations={**WHERE, **(WAIT if name[-1] in waiting else {})})
            for name in ZONES
        ]
        self._attend(FakeClient(sets, [one for name in ZONES for one in pods_of(name, replicas)]))
        self.flags = flags
        self.rules: list[tuple[str, str, str, dict[str, str]]] = []
        self.prepared: set[str] = set()
        self.late: set[asyncio.Task[None]] = set()
        self.pods = Pods(self._answer)
        self.starts = 0
        self._restart()
        self.told = 0
        """So many calls of pods have been shown."""
        self.records: set[str] = set()
        self.times = self._read_times()

    def _restart(self) -> None:
        """Forget everything but what the API server holds: a new process."""
        self.starts += 1
        name = f"process-{self.starts}"
        self.process = FedProcess(self.client, name, self.pods, *self.flags)
        self.controller = self.process.reviews.downscales

    # What is shown

    def look(self) -> list[str]:
        calls, writes = self.told, self.shown
        self.told, self.shown = len(self.pods.calls), len(self.client.calls)
        lines = [
            f"{at.total_seconds():.1f} {method} {_join(list(same))}{where}"
            for (at, method, where), same in groupby(
                self.pods.calls[calls:], lambda one: (one.at, one.method, _where(one))
            )
        ]
        if len(lines) > MOST_NAMES:
            lines = [*lines[:2], f"... {len(lines) - 4} ...", *lines[-2:]]
        written = Counter(
            call.replace("statefulsets/zone-", "").replace("configmaps/", "")
            for call in self.client.calls[writes:]
            if call.startswith(("patch", "put", "post")) and " pods/" not in call
        )
        lines += [f"{call} x{count}" if count > 1 else call for call, count in written.items()]
        found = {_short(name) for name in self.recorded()}
        for word, names in (
            ("recorded", found - self.records),
            ("unrecorded", self.records - found),
        ):
            lines += [f"{word} {' '.join(sorted(names))}"] * bool(names)
        times = self._read_times()
        lines += [
            f"{name} {times.get(name) or 'none'}"
            for name in sorted({*times, *self.times})
            if times.get(name) != self.times.get(name)
        ]
        self.records, self.times = found, times
        return lines

    def _read_times(self) -> dict[str, str]:
        """Return what stands in annotations, `time a`, and in the ConfigMap, `entry a`."""
        found = {}
        for (plural, name), one in self.client.objects.items():
            if plural == "statefulsets":
                time = one["metadata"]["annotations"].get(LAST_DOWNSCALE, "")
                found[f"time {_short(name)}"] = brief(time)
            if plural == "configmaps":
                entries = one["data"].items()
                found |= {
                    f"entry {_short(zone)}": brief(_read_entry(str(text))) for zone, text in entries
                }
        return found

    async def do_state(self) -> str:
        """Show what is remembered: sets, reservations by state, pods to be told that they stay."""
        ledger = self.process.downscales
        counts = {
            f"{state.name.lower()} {_short(uid)}": 1
            for uid in ledger.list_sets()
            for state in ReservationState
            if (one := ledger.get(uid)) and one.state is state
        }
        owed = {"due": ledger.count_due(), "unreached": ledger.count_unreached()}
        parts = [*counts, *(f"{count} {word}" for word, count in owed.items() if count)]
        sets = [_short(uid) for uid in ledger.list_sets()]
        return f"remembers {' '.join(sets) or 'nothing'}" + "".join(f", {one}" for one in parts)

    async def do_again(self, letter: str) -> str:
        """Reconcile a set, and show when it is looked at again."""
        again = (await self.controller.reconcile(Uid(f"uid-zone-{letter}"))).again
        return "never" if again is None else f"{again.total_seconds():g}s"

    async def do_warnings(self) -> str:
        """Show what was logged as a warning until now, and forget it."""
        found = [" ".join(_WORDS.findall(one)) for one in self.lines if "level=warn" in one]
        self.lines.clear()
        return "; ".join(found) or "no warning"

    async def do_errors(self) -> str:
        """Show which exceptions were logged as errors."""
        found = {
            one for line in self.lines if "level=error" in line for one in _RAISED.findall(line)
        }
        return " ".join(sorted(found)) or "no error"

    async def do_show(self) -> str:
        """Show the whole ConfigMap."""
        held = self.client.objects["configmaps", MAP]
        return msgspec.json.encode(held, order="sorted").decode()

    async def do_annotation(self, name: str) -> str:
        """Show the record on a pod."""
        meta = self.client.objects["pods", f"zone-{name}"]["metadata"]
        return str(meta["annotations"][DOWNSCALE_RECORD])

    async def do_prepared(self) -> str:
        """Show which pods have taken a POST and no DELETE since."""
        return " ".join(sorted(self.prepared)) or "none"

    # The world at its beginning

    async def do_zones(self, *words: str) -> None:
        """Begin with other zones: `size=64`, `wait=ab` an hour, `tracker`, `qps=5` `timeout=7s`."""
        how = read_words(words, "size wait qps timeout tracker")
        flags = [f"{FLAGS[key]}={value or MAP}" for key, value in how.items() if key in FLAGS]
        tracked = ["-use-zone-tracker"] * ("tracker" in how)
        self._build(int(how.get("size", 5)), how.get("wait", ""), *tracked, *flags)

    async def do_map(self, *entries: str) -> None:
        """Create the ConfigMap: `zone-b=03:00:00` is the entry of such a time."""
        pairs = (entry.split("=") for entry in entries)
        meta = {"name": MAP, "uid": "u", "resourceVersion": "1", "labels": {"mine": "kept"}}
        data = {name: _write_entry(text) for name, text in pairs}
        self.client.put("configmaps", {"metadata": meta, "data": data})
        self.times = self._read_times()

    # Processes

    async def do_start(self) -> None:
        self.process.reviews.lead(await self.stack.enter_async_context(TaskStack()))
        self.stack.push_async_callback(self.process.reviews.finish)
        self.is_running = True

    async def do_crash(self) -> None:
        """Let the process end; the next one has its controller with `start`."""
        await self.stack.aclose()
        self.is_running = False
        self._restart()

    async def do_stopping(self) -> None:
        self.process.process.stopping_since = elapsed()

    async def do_adopt(self) -> None:
        """Take up the records, as a controller does when it starts."""
        self.controller.adopt_all()

    async def do_found(self, letter: str, start: str, end: str) -> None:
        """Take up a downscale that an earlier process had begun."""
        sts = self._live(letter)
        if self.process.downscales.get(sts.uid) is None:
            key = Key(set_uid=sts.uid, replicas_from=int(start), replicas_to=int(end))
            gone = [(Uid(f"uid-zone-{letter}-{end}-old"), f"zone-{letter}-{end}")]
            self.process.downscales.adopt(sts, key, EPOCH, gone)

    # Clients

    async def do_review(self, letter: str, to: str, *words: str) -> str:
        """Request fewer replicas: by `scale`, of the `whole` set, `dry`; `from` another number."""
        how = read_words(words, "scale whole dry from first broken")
        review = self.make_review(letter, int(to), whole="whole" in how, dry_run="dry" in how)
        assert isinstance(review.old, Scalable)
        assert isinstance(review.new, Scalable)
        if "from" in how:
            review = replace(review, old=replace(review.old, replicas=int(how["from"])))
        if "first" in how:
            old, new = (
                replace(one, first_ordinal=int(ordinal))
                for one, ordinal in zip(
                    (review.old, review.new), how["first"].split("-"), strict=True
                )
            )
            review = replace(review, old=old, new=new)
        if "broken" in how:
            review = replace(review, new=Unusable("broken"))
        self.verdict = await self.judge(review)
        return digest(self.verdict)

    async def judge(self, review: Review, process: FedProcess | None = None) -> Verdict:
        """Send a process, by default the present one, a review."""
        return await (process or self.process).review(REVIEWS, review, LIMIT)

    def make_review(
        self, letter: str, to: int, *, whole: bool = False, dry_run: bool = False
    ) -> Review:
        """Return a review of fewer replicas, of the Scale of a zone or of the set itself."""
        held = self._live(letter)
        old = Scalable(
            kind="StatefulSet" if whole else "Scale", uid=held.uid,
            resource_version=held.resource_version, replicas=held.replicas,
            service_name=held.service_name if whole else "",
            labels=held.labels if whole else {}, annotations=held.annotations if whole else {},
            first_ordinal=held.first_ordinal if whole else 0,
        )  # fmt: skip
        return Review(
            version=Version.V1, uid="u-1", operation="UPDATE", resource="statefulsets",
            subresource="" if whole else "scale", namespace="test", name=held.name,
            dry_run=dry_run, old=old, new=replace(old, replicas=to),
        )  # fmt: skip

    async def do_forge(self, lie: str, *words: str) -> str:
        """Send a review as the API server writes it, of the Scale or whole, but for a lie."""
        tree = self.make_tree("scale" if "scale" in words else "")
        LIES[lie](tree["request"], random.Random(1))
        return digest(await self.judge(decode_review(msgspec.json.encode(tree))))

    def make_tree(self, subresource: str = "") -> Json:
        """Return the review of a downscale of zone a from 5 to 3 as the API server writes it."""
        held = self.client.objects["statefulsets", "zone-a"]
        old = {"apiVersion": "apps/v1", "kind": "StatefulSet", **held}
        if subresource:
            meta = {key: held["metadata"][key] for key in ("name", "uid", "resourceVersion")}
            old = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta}
            old["spec"] = {"replicas": 5}
        return review_tree(
            requestResource=STATEFULSETS, namespace="test", userInfo={"username": "hpa"},
            kind={"group": "apps", "version": "v1", "kind": "StatefulSet"},
            object={**old, "spec": {**old["spec"], "replicas": 3}}, oldObject=old,
            options={"kind": "UpdateOptions"},
            **({"subResource": subresource} if subresource else {}),
        )  # fmt: skip

    async def do_flood(self, number: str, *words: str) -> None:
        """Send so many reviews, as words say: of `a`, `whole` ones, or else of made-up sets."""
        how = read_words(words, "a whole group")
        true = self.make_review("a", 3, whole="whole" in how)
        made = (true if "a" in how else _make_up(true, at, how) for at in range(int(number)))
        await self.flood(map(self.judge, made))

    async def do_create(self, letter: str) -> None:
        """Create a zone in no group, with its pods."""
        self.client.put("statefulsets", zone(f"zone-{letter}", group=None))
        for one in pods_of(f"zone-{letter}"):
            self.client.put("pods", one)

    async def do_lock(self) -> None:
        """Hold the group, as a rollout does."""
        held = self.process.locks.hold(group_lock(GROUP))
        await self.stack.enter_async_context(held)

    async def do_write(self, letter: str, to: str, stamp: str = "") -> None:
        """Write replicas, with the annotation where a time is given."""
        self._commit(letter, int(to), stamp and _spell(stamp))
        await self.do_see()

    async def do_label(self, letter: str, key: str, value: str) -> None:
        await self._write_metadata("labels", letter, key, value)

    async def do_annotate(self, letter: str, key: str, value: str) -> None:
        value = _spell(value) if key == "last-downscale" else value
        await self._write_metadata("annotations", letter, key, value)

    async def _write_metadata(self, field: str, letter: str, key: str, value: str) -> None:
        key = key if key == "rollout-group" else f"grafana.com/{key}"
        one = copy.deepcopy(self.client.objects["statefulsets", f"zone-{letter}"])
        one["metadata"][field][key] = value
        if value == "-":
            del one["metadata"][field][key]
        self._put(one)
        await self.do_see()

    def _put(self, one: Json) -> None:
        """Store a new version of a set."""
        meta = one["metadata"]
        meta["resourceVersion"] = str(int(str(meta["resourceVersion"])) + 1)
        self.client.put("statefulsets", one)

    def _commit(self, letter: str, to: int, stamp: str = "") -> None:
        """Write a number of replicas, as the API server does; `stamp` is the annotation's value."""
        one = copy.deepcopy(self.client.objects["statefulsets", f"zone-{letter}"])
        one["spec"]["replicas"] = to
        for key in ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"):
            one["status"][key] = to
        if stamp:
            one["metadata"]["annotations"][LAST_DOWNSCALE] = stamp
        self._put(one)

    def _live(self, letter: str) -> StatefulSet:
        held = self.client.objects["statefulsets", f"zone-{letter}"]
        return decode_statefulset(msgspec.json.encode(held))

    def recorded(self) -> list[str]:
        """Return the pods that carry a record."""
        return [
            name
            for (plural, name), one in self.client.objects.items()
            if plural == "pods" and decode_pod(msgspec.json.encode(one)).downscale_record
        ]

    async def do_edit(self, names: str, change: str) -> None:
        """Merge into a set, `a`, into pods, `a-*`, or into the ConfigMap, `map`."""
        plural = "pods" if "-" in names else "statefulsets"
        wanted = (plural, f"zone-{names}") if names != "map" else ("configmaps", MAP)
        for key, one in [*self.client.objects.items()]:
            if key[0] == wanted[0] and fnmatch.fnmatch(key[1], wanted[1]):
                self.client.put(key[0], merge(one, msgspec.json.decode(change)))
        await self.do_see()

    async def do_outdate(self, letter: str) -> None:
        """Have the status say one replica, neither ready nor updated."""
        await self.do_edit(
            letter, '{"status":{"replicas":1,"readyReplicas":0,"updatedReplicas":0}}'
        )

    async def do_entry(self, name: str, time: str) -> None:
        """Have another client write an entry of the ConfigMap, or remove it."""
        held = self.client.objects["configmaps", MAP]
        data = {**held["data"], name: _write_entry(time)}
        if time == "-":
            del data[name]
        version = str(int(held["metadata"]["resourceVersion"]) + 1)
        meta = {**held["metadata"], "resourceVersion": version}
        self.client.put("configmaps", {**held, "data": data, "metadata": meta})

    async def do_unmap(self) -> None:
        """Delete the ConfigMap."""
        del self.client.objects["configmaps", MAP]

    async def do_delete(self, letter: str) -> None:
        """Delete a set, and none of its pods."""
        self.kept = self.client.objects.pop(("statefulsets", f"zone-{letter}"))
        self.controller.controller.add(Uid(f"uid-zone-{letter}"))
        await self.do_see()

    async def do_recreate(self, letter: str, replicas: str) -> None:
        """Make the set anew; it adopts its pods one by one, one a second."""
        uid = Uid("uid-new")
        own = [
            one["metadata"]
            for (plural, name), one in self.client.objects.items()
            if plural == "pods" and name.startswith(f"zone-{letter}-")
        ]
        owners = [meta["ownerReferences"] for meta in own]
        for meta in own:
            meta["ownerReferences"] = []
        self.client.put("statefulsets", merge(self.kept, {"metadata": {"uid": uid}}))
        self._commit(letter, int(replicas))
        for meta, (owner,) in zip(own, owners, strict=True):
            meta["ownerReferences"] = [{**owner, "uid": uid}]
            self.process.sync(self.client)
            if meta["name"] == f"zone-{letter}-0":  # it carries a record, and its event wakes us
                self.controller.controller.add(uid)
            await asyncio.sleep(1)

    # Caches

    async def do_unseen(self, *words: str) -> str | None:
        """Do something that no cache shows yet."""
        self.is_seen = True
        try:
            return await self._do(*words)
        finally:
            self.is_seen = False

    async def do_see(self) -> None:
        """Let the caches follow, unless all goes unseen; that wakes a controller that runs."""
        if self.is_seen:
            return
        self.process.sync(self.client)
        for one in self.process.sets.list_all() if self.is_running else ():
            self.controller.controller.add(one.uid)

    async def do_lose(self, letter: str) -> None:
        """Have the cache lack a set."""
        kept = [one for one in self.process.sets.list_all() if one.name != f"zone-{letter}"]
        self.process.sets.replace_all(kept)

    async def do_spoil(self, letter: str) -> None:
        """Have the cache hold an event of a set that cannot be decoded."""
        await self.do_lose(letter)
        spoilt = Unreadable(
            kind="StatefulSet", namespace="test", name=f"zone-{letter}", error="spoilt",
            uid=Uid(f"uid-zone-{letter}"), resource_version="1",
            labels={"rollout-group": "ingester"},
        )  # fmt: skip
        self.process.sets.upsert(spoilt)

    # Time

    async def do_wait(self, seconds: float, how: str = "") -> None:
        """Let time pass: `blind` caches do not follow, `busy` ones report ten events a second."""
        if how == "blind":
            await asyncio.sleep(seconds)
        elif how == "busy":
            for _ in range(int(seconds * 10)):
                await self.do_see()
                await asyncio.sleep(0.1)
        else:
            for _ in range(int(seconds)):
                await asyncio.sleep(1)
                self.process.sync(self.client)
            await asyncio.sleep(seconds % 1)
            await self.do_see()

    async def do_rest(self) -> str:
        """Let an hour pass; show what is remembered, and what was sent in its second half."""
        for _ in range(2):
            sent = len(self.client.calls) + len(self.pods.calls)
            for _ in range(int(HOUR / 20)):
                await asyncio.sleep(10)
                await self.do_see()
        late = len(self.client.calls) + len(self.pods.calls) - sent
        return await self.do_state() + f", {late} late calls" * bool(late)

    # What goes wrong

    async def do_pod(self, name: str, how: str, method: str = "POST", *words: str) -> None:
        """Let a pod, or `*`, answer otherwise: `refuses`, `hangs`, `late`, or after `3s`."""
        self.rules.insert(0, (name, how, method, dict(word.split("=") for word in words)))

    async def do_pods(self, _: str) -> None:
        """All confirm again."""
        self.rules.clear()

    async def _answer(self, method: str, endpoint: Endpoint) -> int:
        status = await self._obey(method, endpoint)
        if status == 200 and method == "POST":
            self.prepared.add(_short(endpoint.pod))
        elif status == 200:
            self.prepared.discard(_short(endpoint.pod))
        return status

    async def _obey(self, method: str, endpoint: Endpoint) -> int:
        for name, how, of, limits in self.rules:
            if name in ("*", _short(endpoint.pod)) and of in ("*", method):
                is_over = elapsed().total_seconds() >= float(limits.get("until", "inf"))
                if is_over or limits.get("at", endpoint.path) != endpoint.path:
                    continue
                if how == "late":
                    task = asyncio.create_task(self._forget(endpoint.pod))
                    self.late.add(task)
                if how in ("late", "hangs"):
                    await asyncio.Event().wait()
                if how == "drops":
                    raise ConnectionRefusedError
                await asyncio.sleep(0.1 if how == "refuses" else float(how.removesuffix("s")))
                return 500 if how == "refuses" else 200
        await asyncio.sleep(0.1)
        return 200

    async def _forget(self, pod_name: str) -> None:
        """Act on a DELETE nine seconds after it was sent."""
        await asyncio.sleep(9)
        self.prepared.discard(_short(pod_name))

    # Rollouts

    async def do_template(self, letter: str) -> None:
        """Give a zone a new template: all its pods are outdated."""
        await self.do_edit(letter, '{"status":{"updateRevision":"new","updatedReplicas":0}}')
        self.process.sync(self.client)

    async def do_roll(self) -> str:
        """Carry out what the caches call for, as planned before any downscale was reserved."""
        controller = RolloutController(self.process, self.process.budgets.arbiter)
        group = replace(controller.observer.observe(GROUP), downscale=None)
        (action,) = plan_group(group).actions
        report = await controller.executor.carry_out(group, action)
        codes = [str(one.code) for one in report.reasons]
        return " ".join([f"{report.deleted} deleted", *codes])

    # Pods

    async def do_going(self, *names: str) -> None:
        for name in names:
            await self.do_edit(name, f'{{"metadata":{{"deletionTimestamp":"{TODAY}03:05:00Z"}}}}')

    async def do_gone(self, *names: str) -> None:
        for name in names:
            del self.client.objects["pods", f"zone-{name}"]
        await self.do_see()

    async def do_new(self, *words: str) -> None:
        """Have pods of these names come; `noip`, `unready`, `old` ones, or `created` at a time."""
        how = dict(word.partition("=")[::2] for word in words if "-" not in word[:2])
        for name in words:
            letter, dash, ordinal = name.partition("-")
            if not dash or "=" in name:
                continue
            one = pod(
                f"zone-{letter}", int(ordinal), uid="" if "old" in how else f"uid-new-{ordinal}",
                ready="unready" not in how, created=_spell(how.get("created", LONG_AGO)),
            )  # fmt: skip
            if "noip" in how:
                one["status"]["podIP"] = ""
            self.client.put("pods", one)
        await self.do_see()

    async def do_stray(self, name: str) -> None:
        """Create a pod by hand, with the labels of its zone."""
        stray = copy.deepcopy(self.client.objects["pods", "zone-a-0"])
        meta = stray["metadata"]
        meta |= {"name": name, "uid": "uid-stray", "ownerReferences": [], "annotations": {}}
        self.client.put("pods", stray)
        self.process.sync(self.client)

    async def do_record(self, name: str, *words: str) -> None:
        """Write a record on a pod: `at=...`, `target.port=9090`, or any `text=...`."""
        record: Json = copy.deepcopy(RECORD)
        text = ""
        for word in words:
            key, _, value = word.partition("=")
            field, _, inner = key.partition(".")
            if field == "text":
                text = value
            elif field in ("target", "earlier"):
                place = (
                    {**TARGET, inner: int(value) if value.isdigit() else value} if inner else TARGET
                )
                record[field] = place if field == "target" else [place]
            else:
                record[key] = int(value) if value.isdigit() else value
        annotations = {DOWNSCALE_RECORD: text or msgspec.json.encode(record).decode()}
        await self.do_edit(
            name, msgspec.json.encode({"metadata": {"annotations": annotations}}).decode()
        )

    async def do_untarget(self) -> None:
        """Make all records those of a release that did not write where pods are called."""
        for name in self.recorded():
            one = self.client.objects["pods", name]
            annotations = one["metadata"]["annotations"]
            story = msgspec.json.decode(annotations[DOWNSCALE_RECORD])
            del story["target"]
            annotations[DOWNSCALE_RECORD] = msgspec.json.encode(story).decode()
        self.process.sync(self.client)


def _change_labels(**labels: str) -> Lie:
    """Have the same request change the labels, and the path."""

    def change(request: Json, rng: random.Random) -> None:
        new = request["object"]
        annotations = {**WHERE, PREPARE_PATH: "another"}
        new["metadata"] = {**new["metadata"], "labels": labels, "annotations": annotations}

    return change


LIES: Final[dict[str, Lie]] = {
    "a_target": name_a_target,
    "path": change_path,
    "port": change_port,
    "service": change_service,
    "ordinals": move_ordinals,
    "group": change_group,
    "labelled": _change_labels(**PREPARED, **{"rollout-group": "ingester"}),
    "unlabelled": _change_labels(),
    "label_off": _change_labels(**{PREPARE_DOWNSCALE: "false"}),
}


def _make_up(review: Review, number: int, how: dict[str, str]) -> Review:
    assert isinstance(review.old, Scalable)
    labels = {key: value for key, value in review.old.labels.items() if key != "rollout-group"}
    labels |= {"rollout-group": how["group"]} if how.get("group") else {}
    old = replace(review.old, uid=Uid(f"made-up-{number}"), labels=labels)
    return replace(review, name=f"made-up-{number}", old=old, new=replace(old, replicas=3))


def _short(name: str) -> str:
    return name.removeprefix("uid-").removeprefix("zone-")


def _join(calls: Sequence[PodCall]) -> str:
    names = [_short(one.pod) + "'" * ("-old" not in one.uid) for one in calls]
    if len(names) > MOST_NAMES:
        return f"{names[0]} ... {names[-1]} x{len(names)}"
    return " ".join(names)


def _where(call: PodCall) -> str:
    return "" if call.place == f"{call.pod[:6]}:{PLACE}" else f" at {_short(call.place)}"


def _spell(time: str) -> str:
    return f"{TODAY}{time}Z" if time[2:3] == ":" else time


def _write_entry(text: str) -> str:
    return format_entry(_spell(text)) if text[:1].isdigit() or text == "soon" else text


def _read_entry(text: str) -> str:
    try:
        return decode_entry(text)
    except InvalidInput:
        return text


def zone(
    name: str,
    replicas: int = 5,
    *,
    labels: Mapping[str, str] = PREPARED,
    annotations: Mapping[str, str] = WHERE,
    group: str | None = GROUP,
) -> Json:
    """Return a StatefulSet at rest."""
    grouped = {} if group is None else {"rollout-group": group}
    one = set_json(name, replicas=replicas, current="old", update="old")
    one["metadata"]["labels"] = {**grouped, **labels}
    one["metadata"]["annotations"] = dict(annotations)
    return one


def pods_of(name: str, replicas: int = 5) -> list[Json]:
    """Return ready pods, each with an address."""
    return [pod(name, ordinal) for ordinal in range(replicas)]


def pod(
    name: str, ordinal: int, *, uid: str = "", ready: bool = True, created: str = LONG_AGO
) -> Json:
    """Return one pod; another UID makes it another pod."""
    one = pod_json(name, ordinal, ready=ready)
    one["spec"] = {"containers": [{"name": "main", "ports": [{"containerPort": 8080}]}]}
    one["metadata"]["creationTimestamp"] = created
    one["status"]["podIP"] = f"127.0.0.{100 + ordinal}"
    if uid:
        one["metadata"]["uid"] = uid
    return one
