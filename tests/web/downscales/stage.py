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
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import groupby
from typing import Final

import msgspec
from msgspec.structs import replace
from rollout_lab.schemas.patches import merge

from rollout_operator.guards.downscales import ReservationState
from rollout_operator.guards.turns import group_lock
from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.names import (
    DOWNSCALE_RECORD,
    LAST_DOWNSCALE,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    InvalidInput,
    Uid,
)
from rollout_operator.model.objects import Endpoint, Key, Unreadable
from rollout_operator.model.scaling import Review, Scalable, Unusable, decode_entry, format_entry
from rollout_operator.planning.rollout import plan_group
from rollout_operator.pods import PodError
from tests.controllers.fake_client import Json
from tests.forgeries import (
    Lie,
    change_group,
    change_path,
    change_port,
    change_service,
    move_ordinals,
    name_a_target,
)
from tests.virtual_time import EPOCH
from tests.web.client_stage import TODAY, ClientStage, brief, digest
from tests.web.downscale_world import (
    GROUP,
    HOUR,
    LIMIT,
    LONG_AGO,
    PREPARED,
    WAIT,
    WHERE,
    PodCall,
    World,
    pod,
    pods_of,
    three_zones,
    tracked,
    zone,
)

CAUSES: Final = {"refuses": "HTTP status 500", "drops": "no route to host"}
MAP: Final = "zones"
PLACE: Final = "8080/ingester/prepare"
RECORD: Final[Json] = {"replicasFrom": 5, "replicasTo": 3, "at": f"{TODAY}03:04:05Z"}
TARGET: Final[Json] = {"port": 8080, "path": "ingester/prepare", "service": "zone-a"}
MOST_NAMES: Final = 8
_WORDS: Final = re.compile(r'(?:msg|pods?|err)=("(?:\\.|[^"])*"|\S+)')

_RAISED: Final = re.compile(r"\b[A-Z]\w*Error\b")


class DownscaleStage(ClientStage):
    """Three zones of five pods each, which are prepared for a downscale; no controller runs."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines
        self.stack = AsyncExitStack()
        self.is_seen = self.is_running = False
        self._build(three_zones())

    def _build(self, world: World) -> None:
        self.world = world
        self.rules: list[tuple[str, str, str, dict[str, str]]] = []
        self.prepared: set[str] = set()
        self.late: set[asyncio.Task[None]] = set()
        world.calls.answer = self._answer
        self._attend(world.client)
        self.told = 0
        """So many calls of pods have been shown."""
        self.records: set[str] = set()
        self.times = self._read_times()

    async def play(self, commands: Sequence[str]) -> list[str]:
        async with self.stack:
            return await super().play(commands)

    # What is shown

    def look(self) -> list[str]:
        calls, writes = self.told, self.shown
        self.told, self.shown = len(self.world.calls.calls), len(self.client.calls)
        lines = [
            f"{at.total_seconds():.1f} {method} {_join(list(same))}{where}"
            for (at, method, where), same in groupby(
                self.world.calls.calls[calls:], lambda one: (one.at, one.method, _where(one))
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
        found = {_short(name) for name in self.world.recorded()}
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
        ledger = self.world.context.downscales
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
        again = (await self.world.controller.reconcile(Uid(f"uid-zone-{letter}"))).again
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
        """Begin with other zones: `size=64`, `wait=ab` an hour, `tracker`, reviews with `qps=5`."""
        how = dict(word.partition("=")[::2] for word in words)
        waits = dict.fromkeys(how.get("wait", ""), WAIT)
        tracker, qps = MAP if "tracker" in how else "", float(how.get("qps", 0))
        self._build(three_zones(int(how.get("size", 5)), tracker=tracker, qps=qps, **waits))

    async def do_map(self, *entries: str) -> None:
        """Create the ConfigMap: `zone-b=03:00:00` is the entry of such a time."""
        pairs = [entry.split("=") for entry in entries]
        tracked(self.world, {name: _write_entry(text) for name, text in pairs})
        self.times = self._read_times()

    # Processes

    async def do_start(self) -> None:
        await self.stack.enter_async_context(self.world.controlling())
        self.is_running = True

    async def do_crash(self) -> None:
        """Let the process end; the next one has its controller with `start`."""
        await self.stack.aclose()
        self.is_running = False
        self.world.sync()
        self.world.restart()

    async def do_stopping(self) -> None:
        self.world.is_stopping = True

    async def do_adopt(self) -> None:
        """Take up the records, as a controller does when it starts."""
        self.world.controller.adopt_all()

    async def do_found(self, letter: str, start: str, end: str) -> None:
        """Take up a downscale that an earlier process had begun."""
        sts = decode_statefulset(
            msgspec.json.encode(self.client.objects["statefulsets", f"zone-{letter}"])
        )
        if self.world.context.downscales.get(sts.uid) is None:
            key = Key(set_uid=sts.uid, replicas_from=int(start), replicas_to=int(end))
            gone = [(Uid(f"uid-zone-{letter}-{end}-old"), f"zone-{letter}-{end}")]
            self.world.context.downscales.adopt(sts, key, EPOCH, gone)

    # Clients

    async def do_review(self, letter: str, to: str, *words: str) -> str:
        """Request fewer replicas: by `scale`, of the `whole` set, `dry`; `from` another number."""
        how = dict(word.partition("=")[::2] for word in words)
        flags = {"whole": "whole" in how, "dry_run": "dry" in how}
        review = self.world.review(f"zone-{letter}", int(to), **flags)
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
        until = self.world.clock.elapsed() + LIMIT
        self.verdict = await self.world.hook.review(review, until)
        return digest(self.verdict)

    async def do_forge(self, lie: str, *words: str) -> str:
        """Send a review as the API server writes it, of the Scale or whole, but for a lie."""
        tree = make_review(self.world, "scale" if "scale" in words else "")
        LIES[lie](tree["request"], random.Random(1))
        review = decode_review(msgspec.json.encode(tree))
        return digest(await self.world.hook.review(review, self.world.clock.elapsed() + LIMIT))

    async def do_flood(self, number: str, *words: str) -> None:
        """Send so many reviews, as words say: of `a`, `whole` ones, or else of made-up sets."""
        how = dict(word.partition("=")[::2] for word in words)
        true = self.world.review("zone-a", 3, whole="whole" in how)
        reviews = [true if "a" in how else _make_up(true, at, how) for at in range(int(number))]
        until = self.world.clock.elapsed() + LIMIT
        hook = self.world.hook
        await self.flood(hook.review(one, until) for one in reviews)

    async def do_create(self, letter: str) -> None:
        """Create a zone in no group, with its pods."""
        self.client.put("statefulsets", zone(f"zone-{letter}", group=None))
        for one in pods_of(f"zone-{letter}"):
            self.client.put("pods", one)

    async def do_lock(self) -> None:
        """Hold the group, as a rollout does."""
        held = self.world.context.locks.hold(group_lock(GROUP))
        await self.stack.enter_async_context(held)

    async def do_write(self, letter: str, to: str, stamp: str = "") -> None:
        """Write replicas, with the annotation where a time is given."""
        self.world.commit(f"zone-{letter}", int(to), stamp=stamp and _spell(stamp))
        await self._see()

    async def do_label(self, letter: str, key: str, value: str) -> None:
        await self._write_metadata("labels", letter, key, value)

    async def do_annotate(self, letter: str, key: str, value: str) -> None:
        value = _spell(value) if key == "last-downscale" else value
        await self._write_metadata("annotations", letter, key, value)

    async def _write_metadata(self, field: str, letter: str, key: str, value: str) -> None:
        key = key if key == "rollout-group" else f"grafana.com/{key}"
        wanted = None if value == "-" else value
        self.world.write_metadata(field, f"zone-{letter}", key, wanted)
        await self._see()

    async def do_edit(self, names: str, change: str) -> None:
        """Merge into a set, `a`, into pods, `a-*`, or into the ConfigMap, `map`."""
        plural = "pods" if "-" in names else "statefulsets"
        wanted = (plural, f"zone-{names}") if names != "map" else ("configmaps", MAP)
        for key, one in [*self.client.objects.items()]:
            if key[0] == wanted[0] and fnmatch.fnmatch(key[1], wanted[1]):
                self.client.put(key[0], merge(one, msgspec.json.decode(change)))
        await self._see()

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
        self.world.controller.controller.add(Uid(f"uid-zone-{letter}"))
        await self._see()

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
        self.world.commit(f"zone-{letter}", int(replicas))
        for meta, (owner,) in zip(own, owners, strict=True):
            meta["ownerReferences"] = [{**owner, "uid": uid}]
            self.world.sync()
            if meta["name"] == f"zone-{letter}-0":  # it carries a record, and its event wakes us
                self.world.controller.controller.add(uid)
            await asyncio.sleep(1)

    # Caches

    async def _see(self) -> None:
        if self.is_running and not self.is_seen:
            await self.world.watch()
        elif not self.is_seen:
            self.world.sync()

    async def do_unseen(self, *words: str) -> str | None:
        """Do something that no cache shows yet."""
        self.is_seen = True
        try:
            return await self._do(*words)
        finally:
            self.is_seen = False

    async def do_see(self) -> None:
        await self._see()

    async def do_lose(self, letter: str) -> None:
        """Have the cache lack a set."""
        kept = [one for one in self.world.sets.list_all() if one.name != f"zone-{letter}"]
        self.world.sets.replace_all(kept)

    async def do_spoil(self, letter: str) -> None:
        """Have the cache hold an event of a set that cannot be decoded."""
        await self.do_lose(letter)
        spoilt = Unreadable(
            kind="StatefulSet", namespace="test", name=f"zone-{letter}", error="spoilt",
            uid=Uid(f"uid-zone-{letter}"), resource_version="1",
            labels={"rollout-group": "ingester"},
        )  # fmt: skip
        self.world.sets.upsert(spoilt)

    # Time

    async def do_wait(self, seconds: float, how: str = "") -> None:
        """Let time pass: `blind` caches do not follow, `busy` ones report ten events a second."""
        if how == "blind":
            await asyncio.sleep(seconds)
        elif how == "busy":
            for _ in range(int(seconds * 10)):
                await self.world.watch()
                await asyncio.sleep(0.1)
        else:
            await self.world.pass_time(seconds)

    async def do_rest(self) -> str:
        """Let an hour pass; show what is remembered, and what was sent in its second half."""
        for _ in range(2):
            sent = len(self.client.calls) + len(self.world.calls.calls)
            for _ in range(int(HOUR / 20)):
                await asyncio.sleep(10)
                await self._see()
        late = len(self.client.calls) + len(self.world.calls.calls) - sent
        return await self.do_state() + f", {late} late calls" * bool(late)

    # What goes wrong

    async def do_pod(self, name: str, how: str, method: str = "POST", *words: str) -> None:
        """Let a pod, or `*`, answer otherwise: `refuses`, `hangs`, `late`, or after `3s`."""
        self.rules.insert(0, (name, how, method, dict(word.split("=") for word in words)))

    async def do_pods(self, _: str) -> None:
        """All confirm again."""
        self.rules.clear()

    async def _answer(self, method: str, endpoint: Endpoint) -> None:
        await self._obey(method, endpoint)
        if method == "POST":
            self.prepared.add(_short(endpoint.pod))
        else:
            self.prepared.discard(_short(endpoint.pod))

    async def _obey(self, method: str, endpoint: Endpoint) -> None:
        for name, how, of, limits in self.rules:
            if name in ("*", _short(endpoint.pod)) and of in ("*", method):
                until = float(limits.get("until", "inf"))
                is_over = self.world.clock.elapsed().total_seconds() >= until
                if is_over or limits.get("at", endpoint.path) != endpoint.path:
                    continue
                if how == "hangs":
                    await asyncio.sleep(10**6)
                elif how == "late":
                    task = asyncio.create_task(self._forget(endpoint.pod))
                    self.late.add(task)
                    await asyncio.sleep(5)
                    raise PodError(f"{method} {endpoint.pod}: no answer within 5s", may_arrive=True)
                elif how in CAUSES:
                    await asyncio.sleep(0.1)
                    raise PodError(f"{method} {endpoint.pod}: {CAUSES[how]}")
                else:
                    return await asyncio.sleep(float(how.removesuffix("s")))
        return await asyncio.sleep(0.1)

    async def _forget(self, pod_name: str) -> None:
        """Act on a DELETE nine seconds after it was sent."""
        await asyncio.sleep(9)
        self.prepared.discard(_short(pod_name))

    # Rollouts

    async def do_template(self, letter: str) -> None:
        """Give a zone a new template: all its pods are outdated."""
        await self.do_edit(letter, '{"status":{"updateRevision":"new","updatedReplicas":0}}')
        self.world.sync()

    async def do_roll(self) -> str:
        """Carry out what the caches call for, as planned before any downscale was reserved."""
        world = self.world
        group = replace(world.observer.observe(GROUP), downscale=None)
        (action,) = plan_group(group).actions
        report = await world.executor.carry_out(group, action)
        codes = [str(one.code) for one in report.reasons]
        return " ".join([f"{report.deleted} deleted", *codes])

    # Pods

    async def do_going(self, *names: str) -> None:
        for name in names:
            await self.do_edit(name, f'{{"metadata":{{"deletionTimestamp":"{TODAY}03:05:00Z"}}}}')

    async def do_gone(self, *names: str) -> None:
        for name in names:
            del self.client.objects["pods", f"zone-{name}"]
        await self._see()

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
        await self._see()

    async def do_stray(self, name: str) -> None:
        """Create a pod by hand, with the labels of its zone."""
        stray = copy.deepcopy(self.client.objects["pods", "zone-a-0"])
        meta = stray["metadata"]
        meta |= {"name": name, "uid": "uid-stray", "ownerReferences": [], "annotations": {}}
        self.client.put("pods", stray)
        self.world.sync()

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
        for name in self.world.recorded():
            one = self.client.objects["pods", name]
            annotations = one["metadata"]["annotations"]
            story = msgspec.json.decode(annotations[DOWNSCALE_RECORD])
            del story["target"]
            annotations[DOWNSCALE_RECORD] = msgspec.json.encode(story).decode()
        self.world.sync()


def make_review(world: World, subresource: str = "") -> Json:
    """Return the review of a downscale of zone a from 5 to 3 as the API server writes it."""
    held = world.client.objects["statefulsets", "zone-a"]
    old = {"apiVersion": "apps/v1", "kind": "StatefulSet", **held}
    if subresource:
        meta = {key: held["metadata"][key] for key in ("name", "uid", "resourceVersion")}
        old = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta}
        old["spec"] = {"replicas": 5}
    names = {"group": "apps", "version": "v1", "resource": "statefulsets"}
    request = {
        "uid": "u-1", "resource": names, "requestResource": names, "name": "zone-a",
        "kind": {"group": "apps", "version": "v1", "kind": "StatefulSet"},
        "namespace": "test", "operation": "UPDATE", "userInfo": {"username": "hpa"},
        "object": {**old, "spec": {**old["spec"], "replicas": 3}}, "oldObject": old,
        "dryRun": False, "options": {"kind": "UpdateOptions"},
    }  # fmt: skip
    if subresource:
        request["subResource"] = subresource
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


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
