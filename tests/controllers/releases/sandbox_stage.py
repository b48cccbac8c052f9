"""The commands of stories of releases in a simulated cluster: what people, Flux and clocks do.

What is shown has changed: gates, checks, deployments and their bake, tags, schedules, and where
gates do not pass, why; and how many gates, checks and schedules the operator has written. Names
are of the namespace `prod` unless another one stands before. The time is a Friday, 03:04:05.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import yaml
from rollout_lab.model.history import Called
from rollout_lab.model.request import STRATEGIC_PATCH
from rollout_lab.network.faults import Failure, FaultOutcome
from rollout_lab.process import SimulatedProcess
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.kube import api as kinds
from rollout_operator.kube.api import JsonObject
from rollout_operator.model.units import format_rfc3339
from tests import stories
from tests.controllers.releases.world import ON, ReleaseSandbox
from tests.controllers.trouble import Trouble

SHOWN: Final = {
    "gate": kinds.ROLLOUT_GATES,
    "check": kinds.HEALTH_CHECKS,
    "rollout": kinds.ROLLOUTS,
    "oci": kinds.OCI_REPOSITORIES[0],
    "schedule": kinds.ROLLOUT_SCHEDULES,
    "freeze": kinds.CLUSTER_ROLLOUT_SCHEDULES,
}
KINDS: Final = {
    **SHOWN,
    "ns": kinds.NAMESPACES,
    "ks": kinds.KUSTOMIZATIONS[0],
    "sts": kinds.STATEFULSETS,
    "multi": kinds.MULTI_AZ_ROLLOUTS,
}
SCHEDULES: Final = ("schedule", "freeze")
OURS: Final = "operator-1"
OTHERS: Final = {"imageRepositoryRef": {"name": "app"}, "policy": {"semver": {"range": "*"}}}
ODD: Final = {"matchExpressions": [{"key": "tier", "operator": "Like", "values": ["w"]}]}
DB: Final = {"statefulSetSelector": {"matchLabels": {"app": "db"}}, "rollingUpdate": {}}
_TIMES: Final = re.compile(r"(\d\d:\d\d)-(\d\d:\d\d)")


class SandboxStage(stories.Steps):
    """A cluster with the namespace `prod`, and a process that makes releases happen."""

    process: SimulatedProcess
    shows_events = False

    def __init__(self) -> None:
        self.trouble = Trouble()
        self.shown: dict[str, str] = {}
        self.seen = 0

    async def set_up(self) -> None:
        world = ReleaseSandbox.opened(namespace="prod", faults=self.trouble)
        self.world = await self.stack.enter_async_context(world)
        self.api = self.world.sandbox.api

    def look(self) -> list[str]:
        before, self.shown = self.shown, dict(self._describe())
        gone = [f"{key} gone" for key in before if key not in self.shown]
        changed = [f"{key} {text}" for key, text in self.shown.items() if text != before.get(key)]
        calls = [*self.world.sandbox.history.list_all(Called)]
        wrote = _count_writes(calls[self.seen :], ("gate", "check", *SCHEDULES))
        self.seen = len(calls)
        return [*gone, *changed, *wrote]

    def _describe(self) -> Iterator[tuple[str, str]]:
        for kind, resource in SHOWN.items():
            for body in self.world.list_all(resource):
                namespace = body["metadata"].get("namespace", "prod")
                own = "" if namespace == "prod" else f"{namespace}/"
                if text := _show(kind, body):
                    yield f"{kind} {own}{body['metadata']['name']}", text

    async def do_wait(self, seconds: float) -> None:
        await self.world.sleep(seconds)

    async def do_run(self, *flags: str) -> None:
        """Start a process, another one after the first has crashed."""
        self.process = self.world.sandbox.process(
            OURS, args=(*ON, *flags), writes_events=self.shows_events
        )
        self.process.start()
        await self.process.wait_ready()

    async def do_crash(self) -> None:
        self.process.crash()

    async def do_restart(self) -> None:
        """Start the process that crashed, and do not wait until it is ready."""
        self.process.start()

    async def do_crashes(self, count: str) -> None:
        """Crash it so often, each time 4 ms later after its start."""
        for pause in range(int(count)):
            await self.world.sleep(pause * 0.004)
            self.process.crash()
            self.process.start()
            await self.process.wait_ready()

    async def do_forbid(self, *words: str) -> None:
        """Take a right from the process: `forbid list+watch namespaces`."""
        *_, plural = words
        for verb in words[0].split("+"):
            self.api.forbidden.add((OURS, verb, plural))

    async def do_permit(self) -> None:
        self.api.forbidden.clear()

    async def do_hold(self, call: str, count: str) -> None:
        """Have our own limits let the next such calls wait in vain: `hold "create gates" 5`."""
        self.trouble.script(call, [FaultOutcome(fails=Failure.THROTTLED)] * int(count))

    async def _create(self, kind: str, name: str, spec: Any, **metadata: Any) -> None:
        namespace, _, own = name.rpartition("/")
        namespace = namespace or "prod"
        await self.world.create(KINDS[kind], own, spec, namespace=namespace, **metadata)

    async def _patch(self, kind: str, name: str, patch: JsonObject, part: str = "") -> None:
        namespace, _, own = name.rpartition("/")
        await self.world.patch(KINDS[kind], own, patch, part, namespace)

    async def do_ns(self, name: str, *labels: str) -> None:
        await self._create("ns", name, {}, labels=_pairs(labels))

    async def do_label(self, kind: str, name: str, *labels: str) -> None:
        """Set labels, or take away those without a value."""
        pairs = {key: text or None for key, text in _pairs(labels).items()}
        await self._patch(kind, name, {"metadata": {"labels": pairs}})

    async def do_patch(self, kind: str, name: str, *patch: str) -> None:
        """Change an object as a person does: `patch rollout app {spec: {wantedVersion: 1.0.0}}`."""
        await self._patch(kind, name, yaml.safe_load(" ".join(patch)))

    async def do_delete(self, kind: str, name: str) -> None:
        namespace, _, own = name.rpartition("/")
        await self.world.delete(KINDS[kind], own, namespace)

    async def do_rollout(self, *words: str) -> None:
        """Create Rollouts: `rollout a b tier=web`, `rollout 60` of so many."""
        for name in (word for word in words if "=" not in word):
            names = [f"app-{number}" for number in range(int(name))] if name.isdigit() else [name]
            for one in names:
                spec = {"releasesImagePolicy": {"name": "app"}}
                await self._create("rollout", one, spec, labels=_pairs(words))

    async def do_policy(self) -> None:
        await self.world.create(kinds.IMAGE_POLICIES[0], "app", OTHERS)

    async def do_announce(self, tag: str, digest: str = "") -> None:
        digest = digest and f"sha256:{int(digest[7:]):064}"
        await self.world.sandbox.flux.announce("prod", "app", tag, digest=digest)

    async def do_release(self, *namespaces: str) -> None:
        """A Rollout that bakes by the checks, in its namespace or in those with labels as well."""
        await self.do_policy()
        await self.do_announce("1.0.0")
        selector: JsonObject = {"selector": {"matchLabels": {"app": "web"}}}
        if namespaces:
            selector["namespaceSelector"] = _selector(namespaces[0])
        spec = {"bakeTime": "10s", "healthCheckSelector": selector}
        await self._create("rollout", "app", {"releasesImagePolicy": {"name": "app"}, **spec})

    async def do_deployed(self) -> None:
        """Have 1.0.0 of a Rollout deployed, by a process that runs."""
        await self.do_policy()
        await self.do_oci()
        await self.do_rollout("app")
        await self.do_announce("1.0.0")
        await self.do_run()
        await self.world.sleep(5)
        assert "1.0.0" in "".join(self.look())

    async def do_oci(self, tag: str = "") -> None:
        """The OCIRepository of the Rollout: made, or its tag changed by a person."""
        ref: JsonObject = {"ref": {"tag": tag}} if tag else {}
        if "oci app" in self.shown:
            await self._patch("oci", "app", {"spec": ref})
        else:
            tagged = {"rollout.kuberik.com/rollout": "app"}
            spec = {"interval": "1m", "url": "oci://registry.example/app", **ref}
            await self._create("oci", "app", spec, annotations=tagged)

    async def do_fetched(self) -> None:
        """Flux has fetched 1.0.0."""
        status: JsonObject = {
            "observedGeneration": 1,
            "conditions": [{"type": "Ready", "status": "True"}],
            "artifact": {"revision": "1.0.0@sha256:0"},
        }
        await self._patch("oci", "app", {"status": status}, "status")

    async def do_ks(self, name: str = "app", *annotations: str) -> None:
        source = {"sourceRef": {"kind": "GitRepository", "name": "x"}}
        await self._create("ks", name, source, annotations=_pairs(annotations))

    async def do_applied(self, name: str, *words: str) -> None:
        """Flux says that a Kustomization is applied, with these objects; or `False=BuildFailed`."""
        found = _pairs(words) if "=" in "".join(words) else {"True": "Ok"}
        [(status, why)] = found.items()
        ready = {"type": "Ready", "status": status, "reason": why, "message": "applied"}
        since = format_rfc3339(self.api.now())
        namespace = name.rpartition("/")[0] or "prod"
        ids = [f"{namespace}_{word}" for word in words if "=" not in word]
        applied: JsonObject = {
            "observedGeneration": 1,
            "conditions": [{**ready, "lastTransitionTime": since}],
            "inventory": {"entries": [{"id": one, "v": "v1"} for one in ids]},
        }
        await self._patch("ks", name, {"status": applied}, "status")

    async def do_check(self, name: str, of: str, *words: str) -> None:
        """A check of a class with annotations; a Rollout selects it but for another `label`."""
        pairs = {"label": "web", **_pairs(words)}
        labels = {"app": label} if (label := pairs.pop("label")) else {}
        annotations = {f"healthcheck.kuberik.com/{key}": text for key, text in pairs.items()}
        await self._create("check", name, {"class": of}, annotations=annotations, labels=labels)

    async def do_health(self, name: str, status: str, seconds: str = "0") -> None:
        """Another client writes a status as Go writes it, at so many seconds from now."""
        moment = self.api.now() + timedelta(seconds=float(seconds))
        text = format_rfc3339(moment.replace(microsecond=0))
        error = {"lastErrorTime": text} if status == "Unhealthy" else {}
        found: JsonObject = {"status": status, "lastChangeTime": text, **error, "message": "m"}
        await self._patch("check", name, {"status": found}, "status")

    async def do_insist(self, name: str, status: str, seconds: str, count: str, pause: str) -> None:
        """Another client writes the status as often as it is another one."""
        namespace, _, own = name.rpartition("/")
        for _ in range(int(count)):
            found = await self.world.get_status(kinds.HEALTH_CHECKS, own, namespace)
            if found.get("status") != status:
                await self.do_health(name, status, seconds)
            await self.world.sleep(float(pause))

    async def do_errors(self, name: str) -> str:
        """When it failed last, since it began."""
        status = await self.world.get_status(kinds.HEALTH_CHECKS, name)
        same = "then" if status["lastErrorTime"] == status["lastChangeTime"] else "another"
        return f"error {status['lastErrorTime'][11:19]}, changed {same}"

    async def do_align(self) -> None:
        """Wait until a third of a second has begun."""
        await self.world.sleep(1 - self.api.now().microsecond / 1e6 + 0.3)

    async def do_until(self, what: str, text: str, pause: str = "1") -> str:
        """Wait until something is shown, and show the zones."""
        kind, _, name = what.partition(":")
        while text not in dict(self._describe()).get(f"{kind} {name}", ""):
            await self.world.sleep(float(pause))
        return await self.do_zones("")

    async def do_zones(self, letters: str) -> str:
        """Create zones of a group and wait for their pods; return updated and ready ones."""
        for letter in letters:
            zone = ZoneSpec(name=f"db-{letter}", group="db", replicas=2, labels={"app": "db"})
            await self.world.send(kinds.STATEFULSETS, body=statefulset(zone, "prod"))
        await self.world.sleep(60 * bool(letters))
        found = [one["status"] for one in self.world.list_all(kinds.STATEFULSETS)]
        counts = [f"{one.get('updatedReplicas', 0)}/{one['readyReplicas']}" for one in found]
        return f"zones {' '.join(counts)}" * bool(counts and not letters)

    async def do_roll(self, *letters: str, image: str = "v2") -> None:
        """Give zones another revision."""
        pod: JsonObject = {"spec": {"containers": [{"name": "app", "image": image}]}}
        for letter in letters:
            patch: JsonObject = {"spec": {"template": pod}}
            await self.world.patch(
                kinds.STATEFULSETS, f"db-{letter}", patch, content=STRATEGIC_PATCH
            )

    async def do_multi(self, name: str) -> None:
        await self._create("multi", name, DB)

    async def do_gate(self, name: str, rollout: str, word: str) -> None:
        spec = {"rolloutRef": {"name": rollout}, "passing": word == "open"}
        await self._create("gate", name, spec)

    async def do_schedule(self, name: str, *words: str) -> None:
        await self._keep("schedule", name, *words)

    async def do_freeze(self, name: str, *words: str) -> None:
        """A schedule of the cluster."""
        await self._keep("freeze", name, *words)

    async def _keep(self, kind: str, name: str, *words: str) -> None:
        """Create a schedule, or change it; without times it is always active."""
        spec = dict(_read_schedule(words))
        if f"{kind} {name}" not in dict(self._describe()):
            usual = {"rolloutSelector": {}, "rules": [{"name": "always"}]}
            pretty = {key: text for key, text in _pairs(words).items() if "/" in key}
            await self._create(kind, name, {**usual, **spec}, annotations=pretty)
            return
        if "rolloutSelector" in spec:
            spec["rolloutSelector"] = {"matchExpressions": None, **spec["rolloutSelector"]}
        await self._patch(kind, name, {"spec": spec})

    async def do_first(self, count: str) -> str:
        """Wait until there are so many gates; return how they were at their creation."""
        passing: dict[str, bool] = {}
        while len(passing) < int(count):
            await self.world.sleep(1)
            for one in self.world.list_all(kinds.ROLLOUT_GATES):
                passing.setdefault(one["metadata"]["name"], one["spec"]["passing"])
        self.look()
        return " and ".join(sorted({"open" if one else "closed" for one in passing.values()}))

    async def do_opened(self, until: str) -> str:
        """Wait for a time; return whether some gates were opened meanwhile, and the last when."""
        opened: dict[str, str] = {}
        while (moment := f"{self.api.now():%H:%M:%S}") < until:
            await self.world.sleep(1)
            for one in self.world.list_all(kinds.ROLLOUT_GATES):
                if one["spec"]["passing"]:
                    opened.setdefault(one["metadata"]["name"], moment)
        return f"{len(opened)} opened, the last at {max(opened.values())}"

    async def do_count(self) -> str:
        """Return how many gates there are, and how many of them are open; and all writes."""
        gates = [one["spec"]["passing"] for one in self.world.list_all(kinds.ROLLOUT_GATES)]
        self.look()
        calls = self.world.sandbox.history.list_all(Called)
        return "; ".join([f"{len(gates)} gates, {sum(gates)} open", *_count_writes(calls, SHOWN)])

    async def do_reads(self, *verbs: str) -> str:
        """How often kinds were read so: single objects, or lists of the whole cluster."""
        return _show_counts(
            called.request.resource.plural
            for called in self.world.sandbox.history.list_all(Called)
            if called.actor == OURS
            and called.request.verb in verbs
            and ("get" in verbs or not called.request.namespace)
        )

    async def do_body(self, name: str) -> str:
        """What makes a gate known, and what it says."""
        body = await self.world.get(kinds.ROLLOUT_GATES, name)
        metadata = {key: body["metadata"].get(key) for key in ("labels", "annotations")}
        [owner] = body["metadata"]["ownerReferences"]
        kind = f"{body['apiVersion']} {body['kind']}"
        del owner["uid"]
        return "\n".join([kind, *map(json.dumps, (metadata, owner, body["spec"]))])

    async def do_say(self, kind: str = "GatesPassing") -> str:
        """The whole message of a condition."""
        [one] = [
            one["message"]
            for one in (await self.world.get_status(kinds.ROLLOUTS, "app"))["conditions"]
            if one["type"] == kind
        ]
        return str(one)


def _show(kind: str, body: Any) -> str:
    spec, status = body["spec"], body.get("status", {})
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    match kind:
        case "gate":
            marks = [*body["metadata"].get("annotations", ()), *spec.get("allowedVersions", ())]
            owned = "labels" in body["metadata"]
            state = "open" if spec["passing"] else "closed"
            return " ".join([state, *["unlabelled"] * (not owned), *marks])
        case "check":
            text = status.get("message")
            return f"{status.get('status', 'none')}{f' ({text})' if text else ''}"
        case "rollout":
            gates = conditions.get("GatesPassing", {})
            entries = [
                f"{one['version']['tag']}:{one['bakeStatus']}" for one in status.get("history", ())
            ]
            return " ".join(
                [*entries, *[gates.get("reason", "")] * (gates.get("status") == "False")]
            )
        case "oci":
            return str(spec.get("ref", {}).get("tag", ""))
    if not status:
        return "unseen"
    ready, gates = conditions["Ready"], status.get("managedGates", ("none",))
    parts = [
        f"active {' '.join(status.get('activeRules', ()))}" if status.get("active") else "at rest",
        f"until {status['nextTransition'][11:19]}" if "nextTransition" in status else "",
        f"gates {' '.join(gates)}" if len(gates) < 5 else f"{len(gates)} gates",
        f"of {status.get('matchingRollouts', 0)}",
        "" if ready["status"] == "True" else ready["reason"],
    ]
    return " ".join(filter(None, parts))


def _count_writes(calls: Any, shown: Any) -> list[str]:
    names = {SHOWN[kind]: kind for kind in shown}
    text = _show_counts(
        names[called.request.resource]
        for called in calls
        if called.request.resource in names
        and called.actor == OURS
        and called.request.verb in ("create", "update", "patch", "delete")
    )
    return [f"wrote {text}"] * bool(text)


def _show_counts(words: Any) -> str:
    return ", ".join(f"{word} {count}" for word, count in sorted(Counter(words).items()))


def _read_schedule(words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    times = [found for word in words if (found := _TIMES.fullmatch(word))]
    if times:
        yield (
            "rules",
            [{"name": one[0], "timeRange": {"start": one[1], "end": one[2]}} for one in times],
        )
    for word in words:
        key, _, text = word.partition("=")
        match key:
            case "allow" | "deny":
                yield "action", key.title()
            case "zone":
                yield "timezone", text
            case "rollouts":
                yield "rolloutSelector", ODD if text == "odd" else _selector(text)
            case "namespaces":
                yield "namespaceSelector", _selector(text) if text else None


def _selector(text: str) -> JsonObject:
    """Read `tier:web`; `all` has no labels."""
    key, _, value = text.partition(":")
    return {"matchLabels": {key: value}} if value else {}


def _pairs(words: tuple[str, ...]) -> dict[str, str]:
    pairs = (word.partition("=") for word in words)
    return {key: text for key, _, text in pairs}
