"""The commands of stories of budgets: clients, rollouts, pods, the API server and processes.

`a-0` is a pod of zone a. What pods become is not in the caches before `see`. An answer says which
zone, or partition, has how many pods down, and when it took time; `by=y` is that of process y.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Iterable, Sequence
from datetime import timedelta
from itertools import groupby
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from rollout_lab.schemas.patches import merge

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.guards.grants import Answer, DisruptionRequest, GrantedPod, read_record
from rollout_operator.model.budget import Budget, DisruptionSource, FlawedBudget, Record
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.names import DISRUPTION_RECORD, InvalidInput, Uid, Unreachable
from rollout_operator.model.objects import Key, Pod
from rollout_operator.operator.reviews import EVICTION_PATH
from rollout_operator.planning.budgets import Refusal
from rollout_operator.web.dispatch import render_answer
from tests.controllers.fake_client import FakeClient, meta_of, pod_json, set_json
from tests.model.review_trees import review_tree
from tests.planning.disruptions import PATTERN, budget
from tests.samples import read_samples
from tests.stories import read_words
from tests.virtual_time import EPOCH, elapsed
from tests.web.client_stage import ERRORS, ClientStage, brief
from tests.web.fed_process import FedProcess

ZONES: Final = "ingester-zone-"
LABELS: Final = {"rollout-group": "ingester"}
USUAL: Final = 4.5
"""Our share of the time that an API server with our manifests gives to a review, in seconds."""
OWNERS: Final = {
    "set": {"kind": "StatefulSet", "name": f"{ZONES}a", "uid": f"uid-{ZONES}a"},
    "replicas": {"kind": "ReplicaSet", "name": "web-1", "uid": "uid-web", "controller": True},
    "new": {"kind": "StatefulSet", "name": f"{ZONES}a", "uid": "new", "controller": True},
}
_DOWN: Final = re.compile(rf"(\d+) pods? not ready in (?:{ZONES})?(partition \d+|\w)")
_LOUD: Final = re.compile("level=(warn|error)")
_WORDS: Final = re.compile(r'(?:msg|pod)=("(?:\\.|[^"])*"|\S+)')


class BudgetStage(ClientStage):
    """Three zones of three pods under budget `ingester` of one pod; process `x` runs."""

    make_client = FakeClient

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines, self.qps = lines, 0.0
        self.tasks: set[asyncio.Task[None]] = set()
        self._build()

    def _build(self, pods: int = 3) -> None:
        names = [name_of(letter) for letter in "abc"]
        sets = [set_json(name, replicas=pods, labels=LABELS, update="old") for name in names]
        stand = [pod_json(name, at) for name in names for at in range(pods)]
        self._attend(self.make_client(sets, stand))
        self.budgets: dict[str, Budget | FlawedBudget] = {"ingester": rule()}
        self.version = 1
        self.replicas: dict[str, FedProcess] = {}
        self.grants: dict[str, str] = {}
        self.records: dict[str, str] = {}
        self.uids: dict[Uid, str] = {}
        self.counted: dict[str, float] = {}
        self.answer: dict[str, Any] = {}
        self._start("x")

    def _start(self, name: str) -> None:
        qps = f"-kubernetes.client-qps={self.qps}"
        self.replicas[name] = FedProcess(self.client, name, None, qps)
        self.replicas[name].feed_budgets(self.budgets.values())

    # What is shown

    def look(self) -> list[str]:
        calls = [_shorten(call) for call in self.client.calls[self.shown :]]
        self.shown = len(self.client.calls)
        found = [
            f"{call} x{count}" if count > 1 else call
            for call, count in ((call, len([*same])) for call, same in groupby(calls))
        ]
        now = {
            name.removeprefix(ZONES): str(text)
            for (plural, name), one in self.client.objects.items()
            if plural == "pods"
            and (text := one["metadata"].get("annotations", {}).get(DISRUPTION_RECORD))
        }
        for word, names in (
            ("recorded", [name for name in now if now[name] != self.records.get(name)]),
            ("unrecorded", [name for name in self.records if name not in now]),
        ):
            found += [f"{word} {' '.join(names)}"] * bool(names)
        self.records = now
        grants = self._read_grants()
        found += [
            f"{grants.get(key, 'forgot')} {key}"
            for key in sorted({*grants, *self.grants})
            if grants.get(key) != self.grants.get(key)
        ]
        self.grants = grants
        return found

    def _read_grants(self) -> dict[str, str]:
        for (plural, name), one in self.client.objects.items():
            if plural == "pods":
                self.uids[Uid(str(one["metadata"]["uid"]))] = name.removeprefix(ZONES)
        return {
            f"{pod}" if name == "x" else f"{pod} by {name}": grant.state.name.lower()
            for name, process in self.replicas.items()
            for uid, pod in self.uids.items()
            if (grant := process.in_flight.get(uid))
        }

    async def do_why(self) -> str:
        """Show the whole sentence of the last answer."""
        return " ".join(filter(None, [self.answer.get("text"), *self.answer.get("warnings", [])]))

    async def do_count(self, by: str = "x") -> str:
        """Show what was counted since the last time, and how many are being decided on."""
        metrics = self.replicas[by].metrics
        now = {
            " ".join(labels): number
            for labels, number in read_samples(metrics, "zpdb_eviction_requests_total").items()
        }
        now["unused"] = read_samples(metrics, "zpdb_unused_grants_total")[()]
        now["open"] = read_samples(metrics, "zpdb_inflight_eviction_requests")[()]
        before, self.counted = self.counted, {**now, "open": 0}
        changes = {key: now[key] - before.get(key, 0) for key in now}
        return ", ".join(f"{key} +{more:g}" for key, more in changes.items() if more) or "nothing"

    async def do_record(self, pod: str) -> str:
        live = self._live(pod)
        try:
            record = read_record(live)
        except InvalidInput:
            return live.disruption
        if record is None:
            return live.disruption or "no record"
        at, lasts = brief(msgspec.to_builtins(record.at)), record.lasts.total_seconds()
        return f"{record.engine} by {record.by} at {at} lasts {lasts:g}s"

    async def do_log(self) -> str:
        """Show the warnings and errors until now, and forget them."""
        found = [" ".join(_WORDS.findall(one)) for one in self.lines if _LOUD.search(one)]
        self.lines.clear()
        return "; ".join(found) or "nothing"

    # Processes and their caches

    async def do_zones(self, *words: str) -> None:
        """Begin with other zones, `pods=30`, or with reviews that share `qps=5` reads a second."""
        how = read_words(words, "pods qps")
        self.qps = float(how.get("qps", 0))
        self._build(int(how.get("pods", 3)))

    async def do_start(self, name: str) -> None:
        """Start a process, or start one again: its memory is empty."""
        self._start(name)

    async def do_releases(self) -> None:
        """Have what is abandoned be released in the background."""
        self.tasks.add(self.start(self.process.budgets.arbiter.run()))
        await asyncio.sleep(0)

    async def do_end_releases(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def do_see(self, by: str = "") -> None:
        """Bring the caches of all processes, or of one, up to date."""
        for name in [by] if by else self.replicas:
            self.replicas[name].sync(self.client)

    async def do_lose(self, *pods: str) -> None:
        """Have the cache lack pods, or all."""
        cache = self.process.pods
        gone = {name_of(pod) for pod in pods}
        cache.replace_all([one for one in cache.list_all() if gone and one.name not in gone])

    async def do_show(self, pod: str) -> None:
        """Have the cache show a pod, by an event, and nothing else."""
        self.process.pods.upsert(self._live(pod))

    async def do_frozen(self, seconds: str) -> None:
        """Let a process be frozen for so long: none of its timers has run yet."""
        self.process.clock.ahead += timedelta(seconds=float(seconds))

    async def do_age(self, seconds: str) -> None:
        """Have the caches be so old."""
        for process in self.replicas.values():
            process.grow_old(timedelta(seconds=float(seconds)))

    async def do_lack(self, why: str = "") -> None:
        """Have the budgets not be known, until there is no reason."""
        for process in self.replicas.values():
            process.lack_budgets(Unreachable(why) if why else None)

    async def do_forbidden(self, error: str = "denied") -> None:
        """Have the role show no budgets."""
        await self.do_fail(error, "list zoneaware")
        async with TaskStack() as tasks:
            self.process.budgets.follow(tasks)
            await self.process.budgets.wait_known()
        await self.do_budget("ingester", "none")
        self.process.lack_budgets(ERRORS[error])

    async def do_downscale(self, letter: str, start: str, end: str) -> None:
        """Have a zone be scaled down."""
        held = self.client.objects["statefulsets", name_of(letter)]
        sts = decode_statefulset(msgspec.json.encode(held))
        key = Key(set_uid=sts.uid, replicas_from=int(start), replicas_to=int(end))
        for process in self.replicas.values():
            process.downscales.adopt(sts, key, EPOCH, [])

    # Budgets

    async def do_budget(self, name: str, *words: str) -> None:
        """Store a version: `most=2`, `pattern`, `delay=300`, `selector=app:another`, `none`."""
        how = read_words(words, "most pattern delay selector none flaw blind")
        old = self.budgets.pop(name, None)
        new: Budget | FlawedBudget | None = None
        if "none" not in how:
            self.version += 1
            new = rule(
                int(how.get("most", 1)), name=name, uid=Uid(f"uid-budget-{name}"),
                resource_version=f"{self.version}", generation=1 + (old.generation if old else 0),
                selector=_read_selector(how["selector"]) if "selector" in how else LABELS,
                pattern=PATTERN if "pattern" in how else "",
                delay=timedelta(seconds=int(how.get("delay", 0))),
            )  # fmt: skip
            if "flaw" in how:
                new = FlawedBudget(
                    namespace="test", name=name, uid=new.uid,
                    resource_version=new.resource_version, generation=new.generation,
                    problem=how["flaw"],
                    selector=None if "blind" in how else new.selector,
                )  # fmt: skip
            self.budgets[name] = new
        for process in self.replicas.values():
            process.feed_budgets(self.budgets.values())

    async def do_account(self, name: str) -> str:
        """Show what is said of a budget: also that it waits, and for what."""
        account = self.process.budgets.accounts.find(name)
        if account is None:
            return "none"
        said, zones = account.described, [uid[len(f"uid-{ZONES}") :] for uid in account.zones]
        return "; ".join(
            [
                f"{account.known.generation} of {' '.join(zones) or 'no zones'}",
                f"{said.unavailable} down, {said.allowed} more",
                *(f"waits: {wait.code}" for wait in said.waits),
                said.text,
            ]
        )

    async def do_accounts(self) -> str:
        """Show of which budgets something is said."""
        return " ".join(one.name for one in self.process.budgets.describe()) or "none"

    # Clients and rollouts

    async def do_evict(self, pod: str, *words: str) -> str:
        """Evict a pod: `dry`, `within=2` seconds, `by=y`, or with another field of the review."""
        fields: dict[str, Any] = read_words(words)
        within = timedelta(seconds=float(fields.pop("within", USUAL)))
        chosen = self.replicas[fields.pop("by", "x")]
        if "dry" in fields:
            del fields["dry"]
            fields["dryRun"] = True
        if "options" in fields:
            fields["options"] = json.loads(fields["options"])
        if "object" in fields:
            fields["object"] = None
        body = json.dumps(_make_review(pod, **fields)).encode()
        return await _timed(self._evict(chosen, body, within))

    async def _evict(self, chosen: FedProcess, body: bytes, within: timedelta) -> str:
        review = decode_review(body)
        verdict = await chosen.review(EVICTION_PATH, review, within)
        tree = json.loads(render_answer(review, verdict))
        assert (tree["apiVersion"], tree["response"]["uid"]) == (review.version, "u-1")
        status = (answer := tree["response"]).get("status", {})
        text = str(status.get("message", ""))
        self.answer = {"text": text, "warnings": answer.get("warnings", [])}
        code = str(verdict.reason.code)
        if answer["allowed"]:
            return "allowed" if code == "disruption_granted" else f"allowed {code}"
        hint = status.get("details", {}).get("retryAfterSeconds")
        return f"{status['code']} {code}{_find_down(text)}" + f" retry {hint}s" * bool(hint)

    async def do_flood(self, number: str, *words: str) -> None:
        """Send evictions of so many pods that are none, or of one."""
        names = [word.replace("#", f"{at}") for at in range(int(number)) for word in words]
        await self.flood(self.do_evict("a-0", name) for name in names)

    async def do_roll(self, pod: str, *words: str) -> str:
        """Let a rollout ask for a pod: `limit=9` at a time, `within=2` seconds, `by=y`."""
        how = read_words(words, "limit within by")
        process = self.replicas[how.get("by", "x")]
        until = process.clock.elapsed() + timedelta(seconds=float(how.get("within", 9)))
        request = self._ask(pod, int(how.get("limit", 1)), process)

        async def roll() -> str:
            answer = await process.budgets.arbiter.request(request, until)
            self.answer = {"text": answer.reason.text if isinstance(answer, Refusal) else ""}
            return _render(answer)

        return await _timed(roll())

    async def do_reserve(self, pod: str) -> str:
        """Let a rollout reserve a pod."""
        until = self.process.clock.elapsed() + timedelta(seconds=9)

        async def reserve() -> str:
            found = await self.process.budgets.arbiter.reserve(self._ask(pod), until)
            return _render(found) if isinstance(found, Refusal) else "reserved"

        return await _timed(reserve())

    async def do_release(self, pod: str) -> None:
        """Let a rollout release a pod that it does not delete."""
        cached = self._cached(pod)
        grant = self.process.in_flight.get(cached.uid)
        await self.process.budgets.arbiter.release_pod(grant.pod if grant else cached)

    async def do_assess(self, pods: str, *words: str) -> str:
        """Let a rollout ask for many at once what the caches show: `a-0,a-1`."""
        found = await self.assess(pods.split(","), int(read_words(words, "limit").get("limit", 1)))
        return ", ".join("allowed" if one is None else f"{one.reason.code}" for one in found)

    async def assess(self, pods: Iterable[str], limit: int) -> Sequence[Refusal | None]:
        return await self.process.budgets.arbiter.assess_all(
            [self._ask(pod, limit) for pod in pods]
        )

    def _ask(
        self, pod: str, limit: int = 1, process: FedProcess | None = None
    ) -> DisruptionRequest:
        cached = self._cached(pod, process)
        return DisruptionRequest(pod=cached, engine=DisruptionSource.ROLLOUT, limit=limit)

    async def do_reconcile(self, pod: str = "a-0", *words: str) -> str:
        """Have the controller look at a pod; show when it does again. `blind`: by an old cache."""
        how = read_words(words, "by blind")
        by = how.get("by", "x")
        if "blind" not in how:
            self.replicas[by].sync(self.client)
        return await _timed(self._reconcile(by, pod))

    async def _reconcile(self, by: str, pod: str) -> str:
        reconciler = self.replicas[by].budgets.reconciler
        again = (await reconciler.reconcile(("test", name_of(pod)))).again
        return "done" if again is None else f"again in {again.total_seconds():g}s"

    async def do_stand(self, pod: str, engine: str = "eviction", *words: str) -> None:
        """Have a grant be decided on which is never settled, or is in `doubt`."""
        cached, in_flight = self._cached(pod), self.process.in_flight
        grant = in_flight.get(cached.uid) or in_flight.reserve(
            cached, DisruptionSource(engine), "ingester"
        )
        if "doubt" in words:
            in_flight.doubt(grant)

    async def do_unused(self, pod: str) -> None:
        """Have a pod be known for a grant that came to nothing."""
        self.process.in_flight.unused.record(self._cached(pod))

    # What goes wrong

    async def do_unanswered(self, call: str) -> None:
        """Have a call be carried out without an answer."""
        self.client.lost.add(call)

    async def do_answered(self) -> None:
        self.client.lost.clear()

    async def do_turn(self, kind: str, seconds: str) -> None:
        """Have our own rate limits hold calls of a kind back for so long: `patch pods`."""

        async def wait(of: str) -> None:
            if of == kind:
                await asyncio.sleep(float(seconds))

        self.client.turn = wait

    # Pods

    async def do_crash(self, *pods: str) -> None:
        """Have pods crash-loop."""
        for pod in pods:
            self.client.put("pods", _pod_json(pod, ready=False))

    async def do_going(self, *pods: str) -> None:
        for pod in pods:
            self._change(pod, deletionTimestamp="2026-01-02T03:04:35Z")

    async def do_new(self, *pods: str) -> None:
        """Have pods be replaced by others of their names; after `gone`, ready ones."""
        for pod in pods:
            self.client.objects.setdefault(("pods", name_of(pod)), _pod_json(pod))
            self._change(pod, uid=f"new-{pod}", annotations={})

    async def do_gone(self, *pods: str) -> None:
        for pod in pods:
            del self.client.objects["pods", name_of(pod)]

    async def do_change(self, pod: str, *changes: str) -> None:
        """Have a pod be of a new version: `phase=Failed`, `owner=none`, `part=ingester` a label."""
        for change in changes:
            key, _, value = change.partition("=")
            held = self.client.objects["pods", name_of(pod)]
            if key == "phase":
                held = merge(held, {"status": {"phase": value}})
            elif key == "owner":
                owners = [OWNERS[name] for name in value.split(",") if name != "none"]
                held = merge(held, {"metadata": {"ownerReferences": owners}})
            else:
                held = merge(held, {"metadata": {"labels": {key: value}}})
            self.client.put("pods", held)
        self._change(pod)

    async def do_label(self, letter: str, key: str, value: str) -> None:
        held = self.client.objects["statefulsets", name_of(letter)]
        self.client.put("statefulsets", merge(held, {"metadata": {"labels": {key: value}}}))

    async def do_spoil(self, pod: str) -> None:
        """Have a pod, or a set, be one that cannot be decoded."""
        if "-" in pod:
            held = self.client.objects["pods", name_of(pod)]
            self.client.put("pods", merge(held, {"status": {"phase": 7}}))
        else:
            held = self.client.objects["statefulsets", name_of(pod)]
            self.client.put("statefulsets", merge(held, {"spec": {"replicas": "three"}}))

    async def do_annotate(self, pod: str, *words: str) -> None:
        """Write a record of process y: `at=-120`, `lasts=12`, `uid=another`, `text=...`, `none`."""
        how = read_words(words, "at lasts uid text none")
        text: str | None = how.get("text")
        if text is None and "none" not in how:
            record = Record(
                uid=Uid(how.get("uid", self._live(pod).uid)),
                by="y",
                at=self.process.clock.now() + timedelta(seconds=float(how.get("at", 0))),
                engine=DisruptionSource.EVICTION,
            )
            if "lasts" in how:
                record = replace(record, lasts=timedelta(seconds=float(how["lasts"])))
            text = msgspec.json.encode(record).decode()
        self._change(pod, annotations={} if text is None else {DISRUPTION_RECORD: text})

    async def do_zone(self, letter: str, group: str) -> None:
        """Add a zone of one pod in another group."""
        labels, name = {"rollout-group": group}, name_of(letter)
        made = pod_json(name, 0)
        made["metadata"]["labels"] = labels
        self.client.put("pods", made)
        made = set_json(name, replicas=1, labels=labels, update="old", selector=labels)
        self.client.put("statefulsets", made)

    @property
    def process(self) -> FedProcess:
        return self.replicas["x"]

    def _cached(self, pod: str, process: FedProcess | None = None) -> Pod:
        found = (process or self.process).pods.get("test", name_of(pod))
        assert isinstance(found, Pod), found
        return found

    def _live(self, pod: str) -> Pod:
        return decode_pod(msgspec.json.encode(self.client.objects["pods", name_of(pod)]))

    def _change(self, pod: str, **metadata: object) -> None:
        """Change metadata of a pod: a new version."""
        held = self.client.objects["pods", name_of(pod)]
        version = int(str(meta_of(held)["resourceVersion"])) + 1
        changes = {**metadata, "resourceVersion": f"{version}"}
        self.client.put("pods", {**held, "metadata": {**meta_of(held), **changes}})


def rule(max_unavailable: int = 1, **changes: object) -> Budget:
    """Return budget `ingester` over the whole group."""
    return replace(budget(max_unavailable), **{"selector": LABELS, **changes})


def name_of(pod: str) -> str:
    return f"{ZONES}{pod}"


def _pod_json(pod: str, *, ready: bool = True) -> dict[str, Any]:
    zone, _, ordinal = name_of(pod).rpartition("-")
    return pod_json(zone, int(ordinal), ready=ready)


async def _timed(awaited: Awaitable[str]) -> str:
    began = elapsed()
    said = await awaited
    took = (elapsed() - began).total_seconds()
    return f"{said} after {took:.3g}s" if took else said


def _render(answer: Answer) -> str:
    if isinstance(answer, GrantedPod):
        return "allowed" if answer.budget else "not in scope"
    again = answer.requeue_after
    words = [
        f"{answer.status} {answer.reason.code}{_find_down(answer.reason.text)}",
        "" if again is None else f"again {again.total_seconds():g}s",
        "shared" * answer.is_shared,
    ]
    return " ".join(filter(None, words))


def _find_down(text: str) -> str:
    found = _DOWN.search(text)
    return f": {found[1]} in {found[2]}" if found else ""


def _shorten(call: str) -> str:
    return call.split()[0] if call.startswith("list") else call.replace(f"pods/{ZONES}", "")


def _read_selector(text: str) -> dict[str, str]:
    return dict([text.split(":")]) if text else {}


def _make_review(pod: str, **changes: object) -> dict[str, Any]:
    """Return a review of an eviction; `review`: the version of the review itself."""
    version, policy = changes.pop("review", "v1"), changes.pop("policy", "policy/v1")
    eviction = {
        "apiVersion": policy,
        "kind": "Eviction",
        "metadata": {"name": name_of(pod), "namespace": "test"},
        "deleteOptions": changes.pop("options", {}),
    }
    fields = {
        "operation": "CREATE",
        "kind": {"group": "policy", "version": "v1", "kind": "Eviction"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "subResource": "eviction",
        "namespace": "test",
        "name": name_of(pod),
        "object": eviction,
        "oldObject": None,
    }
    return review_tree(f"admission.k8s.io/{version}", **{**fields, **changes})
