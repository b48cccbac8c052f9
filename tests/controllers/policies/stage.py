"""The commands of stories of MultiAZRollouts: a simulated cluster, people, and processes.

StatefulSets are letters, each of a zone of its own: `a-1` is a pod of `db-a` in us-west-2a. Times
are seconds of this world. Fields of a policy are YAML, with `interval`, `max` and `key` in short.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import cycle, groupby, pairwise
from typing import Any, Final

import msgspec
import yaml
from rollout_lab.model.fields import is_terminating, name_of
from rollout_lab.model.history import Called, Commit
from rollout_lab.model.request import STRATEGIC_PATCH
from rollout_lab.network.faults import AS_USUAL, Failure, FaultOutcome
from rollout_lab.nodes.behaviour import Behaviour, StartKind, image_of
from rollout_lab.process import SimulatedProcess
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.controllers.policies import WRITE_PAUSE
from rollout_operator.kube.api import (
    MULTI_AZ_ROLLOUTS,
    NODES,
    PODS,
    STATEFULSETS,
    ZONE_BUDGETS,
    JsonObject,
)
from rollout_operator.model.decode.custom import decode_watched_policy
from rollout_operator.model.names import PAUSED, TOPOLOGY_KEYS
from rollout_operator.planning.policy_status import is_urgent
from tests.controllers.releases.world import ReleaseSandbox
from tests.controllers.trouble import Trouble
from tests.judge.objects import read_pod
from tests.model.cases import lengthen
from tests.stories import Steps

ON: Final = "-multi-az-rollouts.enabled"
SERIES: Final = "rollout_operator_multiaz_"
OWN: Final = 'namespace="default",name="db"'
_SINGLE: Final = re.compile(r" (?:pod=|revision=|reason=rolled_out).*")
ROLLING: Final = {"interval": "intervalSeconds", "max": "maxUnavailable", "key": "azTopologyKey"}
ZONE: Final = "us-west-2"
BATCH: Final = {
    "number": 1,
    "zone": "us-west-2a",
    "statefulSet": "db-a",
    "updateRevision": "db-a-1",
    "pods": [{"name": "db-a-1", "uid": "unknown"}],
    "startTime": "2026-01-02T03:04:05Z",
}


def choose(pod: Any) -> Behaviour:
    """Let pods of one image crash, and others take their time to come, or to go as well."""
    image, seconds = image_of(pod), 1
    if image == "bad":
        return Behaviour(kind=StartKind.CRASH_LOOP)
    if image == "slow":
        return Behaviour(terminates_after=timedelta(minutes=1), ready_after=timedelta(minutes=1))
    if image == "late" or (image == "uneven" and name_of(pod) == "db-a-1"):
        seconds = 60
    return Behaviour(ready_after=timedelta(seconds=seconds))


class PolicyStage(Steps):
    """Processes that obey policies; what they delete, decide, and warn of is shown."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines
        self.trouble = Trouble()
        self.processes: dict[str, SimulatedProcess] = {}
        self.seen: dict[str, str] = {}
        self.series: dict[str, str] = {}
        self.told = self.read = self.logged = 0

    async def play(self, commands: Sequence[str]) -> list[str]:
        first, *rest = commands
        completes = first == "kubernetes 1.37"
        self.sandbox = Sandbox(choose=choose, faults=self.trouble, completes_on_delete=completes)
        self.world = ReleaseSandbox(self.sandbox)
        async with self.sandbox:
            return ["", *await super().play(rest)] if completes else await super().play(commands)

    # What is shown

    def look(self) -> list[str]:
        shown = [
            f"{one.at.total_seconds():.0f} {_short(one.name)}"
            for one in self._list_ended()[self.told :]
        ]
        self.told += len(shown)
        statuses = {name: _show_status(body) for name, body in self._list_policies().items()}
        changed: defaultdict[str, list[str]] = defaultdict(list)
        for name, text in statuses.items():
            if self.seen.get(name) != text:
                changed[text].append(name)
        news = [f"{_join(names)} {text}" for text, names in changed.items()]
        self.seen = statuses
        bad = [one for one in self.lines[self.logged :] if re.search("level=(warn|error)", one)]
        warned = list(map(_read_message, bad))
        self.logged = len(self.lines)
        return [*[" ".join(shown)] * bool(shown), *news, *dict.fromkeys(warned)]

    def _list_ended(self) -> list[Commit]:
        """Return the deletes of pods that processes made: of two at once only one counts."""
        return [
            one
            for one in self.sandbox.history.list_all(Commit)
            if one.resource == PODS
            and one.actor.startswith("operator")
            and (one.after is None or is_terminating(one.after))
        ]

    def _list_policies(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for one in self.sandbox.history.list_all(Commit):
            if one.resource == MULTI_AZ_ROLLOUTS:
                found[one.name] = one.after
        return {name: body for name, body in found.items() if body}

    # What people do

    async def do_zones(self, letters: str, *words: str) -> None:
        given = _read(words)
        node = given.pop("nodes", False)
        for letter in letters:
            labels = {"app": "db", **({} if node else {TOPOLOGY_KEYS[0]: f"{ZONE}{letter}"})}
            more = {"node": f"node-{letter}"} if node else {}
            fields: dict[str, Any] = {
                "group": None,
                "replicas": 2,
                "image": "v1",
                "labels": labels | given.get("and", {}),
            }
            own = {key: value for key, value in given.items() if key != "and"}
            zone = ZoneSpec(name=f"db-{letter}", **{**fields, **more, **own})
            await self.world.send(STATEFULSETS, body=statefulset(zone, self.sandbox.namespace))
            await self.world.sleep(60)

    async def do_node(self, letter: str, zone: str) -> None:
        """Create a node, put it into another zone, or delete it."""
        name = f"node-{letter}"
        if zone == "gone":
            await self.world.delete(NODES, name)
        elif zone.startswith("to="):
            labels = {TOPOLOGY_KEYS[0]: zone.removeprefix("to=")}
            await self.world.patch(NODES, name, {"metadata": {"labels": labels}})
        else:
            await self.world.create(NODES, name, {}, labels={TOPOLOGY_KEYS[0]: zone})

    async def do_policy(self, name: str = "db", *words: str) -> None:
        name, words = (name, words) if "=" not in name else ("db", (name, *words))
        await self._create_policy(name, words)

    async def _create_policy(self, name: str, words: Sequence[str] = ()) -> None:
        selected = {"statefulSetSelector": {"matchLabels": {"app": "db"}}}
        await self.world.create(MULTI_AZ_ROLLOUTS, name, {**selected, **_read_spec(words)})

    async def do_edit(self, name: str, *words: str) -> None:
        name, words = (name, words) if "=" not in name else ("db", (name, *words))
        await self.world.patch(MULTI_AZ_ROLLOUTS, name, {"spec": _read_spec(words)})

    async def do_remove(self, name: str) -> None:
        is_set = len(name) == 1
        resource, name = (STATEFULSETS, f"db-{name}") if is_set else (MULTI_AZ_ROLLOUTS, name)
        await self.world.delete(resource, name)

    async def do_tamper(self, *words: str) -> str:
        """Write the status by hand in two pauses of a rollout."""
        await self.act("zones ab; policy interval=120; start; roll ab")
        is_batch = words[0] == "BATCH"
        by_hand = {"lastBatch": BATCH | _read(words[1:])} if is_batch else _load(" ".join(words))
        for _ in range(2):
            await self.world.sleep(60)
            await self._edit_status(by_hand)
            await self.world.sleep(110)
        status = (await self.world.get(MULTI_AZ_ROLLOUTS, "db"))["status"]
        await self.world.sleep(1000)
        return f"{status['phase']} {status['readyPods']}/{status['totalPods']}"

    async def _edit_status(self, status: Any) -> None:
        """Write the whole status of a policy, whatever that may be."""
        held = await self.world.get(MULTI_AZ_ROLLOUTS, "db")
        body = {**held, "status": status}
        if status is None:
            del body["status"]
        await self.world.send(MULTI_AZ_ROLLOUTS, "db/status", verb="update", body=body)

    async def do_budget(self, *words: str) -> None:
        labels = _read(words)
        spec = {"selector": {"matchLabels": labels}, "maxUnavailable": 1}
        await self.world.create(ZONE_BUDGETS, "storage", spec)

    async def do_roll(self, letters: str, image: str = "v2") -> None:
        pod = {"spec": {"containers": [{"name": "app", "image": image}]}}
        for letter in letters:
            await self._patch_set(letter, {"spec": {"template": pod}})

    async def _patch_set(self, letter: str, patch: JsonObject) -> None:
        await self.world.patch(STATEFULSETS, f"db-{letter}", patch, content=STRATEGIC_PATCH)

    async def do_scale(self, letter: str, replicas: str) -> None:
        await self._patch_set(letter, {"spec": {"replicas": int(replicas)}})

    async def do_label(self, letter: str, *words: str) -> None:
        await self._patch_set(letter, {"metadata": {"labels": _read(words)}})

    async def do_pause(self, letter: str) -> None:
        await self._patch_set(letter, {"metadata": {"annotations": {PAUSED: "true"}}})

    async def do_strategy(self, letter: str, kind: str) -> str:
        if kind != "?":
            strategy = {"type": kind, "rollingUpdate": None}
            await self._patch_set(letter, {"spec": {"updateStrategy": strategy}})
        sts = await self.world.get(STATEFULSETS, f"db-{letter}")
        revisions = [sts["status"].get(f"{word}Revision") for word in ("current", "update")]
        is_done = "rolled out" if len({*revisions}) == 1 else "rolling"
        return f"{sts['spec']['updateStrategy']['type']}, {is_done}"

    async def do_fail(self, *pods: str) -> None:
        for pod in pods:
            self.sandbox.cluster.fail_pod(f"db-{pod}")

    async def do_mend(self, *pods: str) -> None:
        for pod in pods:
            self.sandbox.cluster.mend_pod(f"db-{pod}")

    async def do_delete(self, *pods: str) -> None:
        for pod in pods:
            await self.world.delete(PODS, f"db-{pod}")

    async def do_ready(self, *pods: str) -> str:
        held = {name_of(one): read_pod(one) for one in self.world.list_all(PODS)}
        return " ".join(pod for pod in pods if held[f"db-{pod}"].is_ready) or "none"

    # What happens to processes and the control plane

    async def do_start(self, name: str = "1", *words: str) -> None:
        """Start a process for the first time, or again after a crash; `elects` is for a lease."""
        name = f"operator-{name}"
        if name not in self.processes:
            self.processes[name] = self.sandbox.process(name, args=(ON,), elects="elects" in words)
        for word in words:
            if word != "elects":
                await self.do_jump(name[-1], word)
        self.processes[name].start()
        await self.processes[name].wait_ready()

    async def do_crash(self, name: str = "1") -> None:
        self.processes[f"operator-{name}"].crash()

    async def do_restarts(self, count: str, seconds: str) -> None:
        for _ in range(int(count)):
            await self.world.sleep(float(seconds))
            await self.do_crash()
            await self.do_start()

    async def do_jump(self, name: str, hours: str) -> None:
        self.processes[f"operator-{name}"].clock.jump(timedelta(hours=int(hours.rstrip("h"))))

    async def do_lag(self, seconds: str) -> None:
        """Let the StatefulSet controller be so late."""
        self.sandbox.cluster.lag_controller(timedelta(seconds=float(seconds)))

    async def do_hide(self, what: str = "") -> None:
        """Let no news come of a zone, or of another object; of all again without either."""
        self.trouble.hidden = f"db-{what}" if len(what) == 1 else what

    async def do_contest(self) -> None:
        """Have another client be first with every status."""
        refused = FaultOutcome(fails=Failure.CONFLICT)
        self.trouble.script("patch multiazrollouts/status", cycle([refused, AS_USUAL]))

    async def do_throttle(self, verb: str, plural: str, seconds: str) -> None:
        """Let each such call wait so long for its token."""
        late = FaultOutcome(waits=timedelta(seconds=float(seconds)))
        self.trouble.script(f"{verb} {plural}", cycle([late]))

    async def do_scribble(self, count: str) -> None:
        """Have another client write to the policy each second, so often."""
        for number in range(int(count)):
            note: JsonObject = {"metadata": {"annotations": {"note": f"{number}"}}}
            await self.world.patch(MULTI_AZ_ROLLOUTS, "db", note)
            await self.world.sleep(1)

    async def do_wipe(self) -> None:
        """Remove the status."""
        await self._edit_status(None)

    async def do_forbid(self, verb: str = "") -> None:
        self.sandbox.api.forbidden.clear()
        if verb:
            self.sandbox.api.forbidden.add(("operator-1", verb, "pods"))

    async def do_wait(self, seconds: float, *words: str) -> None:
        await self.world.sleep(seconds)

    # What is looked up

    async def do_where(self, name: str = "db") -> str:
        """Show zones with their sets, the key, and what of the order is unknown."""
        status = (await self.world.get(MULTI_AZ_ROLLOUTS, name))["status"]
        zones = [
            f"{zone['name']} {zone['state']}: "
            + " ".join(f"{one['name']} {one['source']}" for one in zone["statefulSets"])
            for zone in status["zones"]
        ]
        unknown = [f"unknown {' '.join(status['unknownZones'])}"] * bool(status["unknownZones"])
        return "; ".join([*zones, f"by {status['azTopologyKey']}", *unknown])

    async def do_conditions(self, name: str = "db") -> str:
        status = (await self.world.get(MULTI_AZ_ROLLOUTS, name))["status"]
        told: defaultdict[str, list[str]] = defaultdict(list)
        for one in status["conditions"]:
            told[one["message"]].append(f"{one['type']} {one['status']} {one['reason']}")
        return "\n".join(f"{', '.join(kinds)}: {text}" for text, kinds in told.items())

    async def do_log(self, *words: str) -> str:
        """Show which lines have these words, without what differs from pod to pod."""
        found = [line for line in self.lines if " ".join(words) in line]
        short = [_SINGLE.sub("", line.split(" msg=")[-1].strip()) for line in found]
        return "\n".join(dict.fromkeys(short)) or "nothing"

    async def do_writers(self) -> str:
        """Show which processes have tried to record something of a policy."""
        found = {
            one.actor
            for one in self.sandbox.history.list_all(Called)
            if (one.request.verb, one.request.resource) == ("patch", MULTI_AZ_ROLLOUTS)
        }
        return " ".join(sorted(found))

    async def do_calls(self, *words: str) -> str:
        """Show the calls for some kinds of objects since the last time, but for watches."""
        calls = [*self.sandbox.history.list_all(Called)][self.read :]
        self.read += len(calls)
        own = [
            one
            for one in calls
            if one.actor.startswith("operator")
            and one.request.verb != "watch"
            and one.request.resource.plural in words
        ]
        runs = groupby(f"{one.request.verb} {one.request.resource.plural}" for one in own)
        counted = [(text, len([*same])) for text, same in runs]
        shown = [f"{text} x{count}" if count > 1 else text for text, count in counted]
        actors = len({one.actor for one in own})
        return ", ".join([*shown, *[f"by {actors} processes"] * (actors > 1)]) or "none"

    async def do_hasty(self) -> str:
        """Show how many statuses were written, and how many of them too soon for mere numbers."""
        written = [
            (one.at, decode_watched_policy(msgspec.json.encode(one.after)).status)
            for one in self.sandbox.history.list_all(Commit)
            if one.resource == MULTI_AZ_ROLLOUTS and one.actor.startswith("operator")
        ]
        hasty = [
            after
            for (at, one), (then, after) in pairwise(written)
            if then - at < WRITE_PAUSE and not is_urgent(one, after)
        ]
        return f"{len(written)} written, {len(hasty)} too soon"

    async def do_bare(self) -> None:
        """Start a process without the flag."""
        self.processes["operator-0"] = self.sandbox.process("operator-0")
        self.processes["operator-0"].start()
        await self.processes["operator-0"].wait_ready()

    async def do_many(self, count: str) -> None:
        for number in range(int(count)):
            await self._create_policy(f"db-{number}")
            await self.world.sleep(0.1)

    async def do_metrics(self) -> str:
        """Show the samples of the policy that have changed."""
        body = b"".join(self.processes["operator-1"].telemetry.metrics.render()).decode()
        found = {}
        for line in body.splitlines():
            key, _, value = line.removeprefix(SERIES).rpartition(" ")
            if line.startswith(SERIES) and "_sum{" not in key and "_bucket{" not in key:
                found[key.replace(f"{OWN},", "").replace(OWN, "")] = value
        news = [f"{key} {one}" for key, one in found.items() if self.series.get(key, "0") != one]
        gone = self.series.keys() - found.keys()
        self.series = found
        left = [f"{len(gone)} gone" if found else "none is left"] * bool(gone)
        return ", ".join([*news, *left]) or "the same"

    async def do_describe(self, name: str = "1") -> str:
        found = await self.processes[f"operator-{name}"].describe()
        if isinstance(found.policies, msgspec.UnsetType):
            return "nothing of policies"
        shown = []
        for one in found.list_policies():
            zones = ", ".join(f"{zone.name} {zone.state}" for zone in one.zones)
            groups = f" drives {' '.join(one.groups)}" if one.groups else ""
            shown.append(f"{one.title} {one.phase} {one.code}{groups}: {one.headline} [{zones}]")
        shown += [f"group {one.name} of {one.policy}" for one in found.groups if one.policy]
        for entry in self.processes[f"operator-{name}"].entries():
            shown += [f"waits {one.code}: {one.text}" for one in entry.plan.waits]
        return "\n".join(shown) or "none"


def _load(text: str) -> Any:
    return lengthen(yaml.safe_load(text))


def _read(words: Sequence[str]) -> dict[str, Any]:
    pairs = (word.partition("=") for word in words)
    return {key: _load(text) for key, _, text in pairs}


def _read_spec(words: Sequence[str]) -> dict[str, Any]:
    given = _read(words)
    rolling = {ROLLING[key]: given.pop(key) for key in [*given] if key in ROLLING}
    return {**given, **({"rollingUpdate": rolling} if rolling else {})}


def _show_status(body: Mapping[str, Any]) -> str:
    """Return phase, what `Ready` says, whether it is stalled, the last batch, and the pods."""
    status = body.get("status") or {}
    told = {one["type"]: one for one in status.get("conditions") or () if isinstance(one, dict)}
    ready = told.get("Ready", {})
    parts = [f"{status.get('phase', 'new')} {ready.get('reason', '')}".strip()]
    parts += ["stalled"] * (told.get("Stalled", {}).get("reason") == "ProgressDeadlineExceeded")
    if batch := status.get("lastBatch"):
        parts.append(f"batch {batch['number']}{'' if 'completionTime' in batch else ' open'}")
    return ", ".join(parts)


def _read_message(line: str) -> str:
    message = line.partition(" msg=")[2]
    return f"warns {message.split(chr(34))[1]}"


def _join(names: Sequence[str]) -> str:
    return f"{len(names)} policies" if len(names) > 2 else " and ".join(names)


def _short(name: str) -> str:
    return name.removeprefix("db-")
