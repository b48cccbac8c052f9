"""The commands of simulations: an input, changes of it, what becomes of it, and what is printed.

The input begins as three zones a, b and c of three pods each. Objects are named by patterns, and
changed by merge patches in YAML. `run` takes flags and changes: `run -until=5s 'new template'`.
"""

import asyncio
import fnmatch
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from copy import deepcopy
from datetime import timedelta
from io import StringIO
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import yaml
from msgspec.structs import replace
from rollout_lab.admission.registrations import REGISTRATIONS
from rollout_lab.model.fields import timestamp
from rollout_lab.model.history import Called, Commit
from rollout_lab.model.request import create
from rollout_lab.nodes.pods import node, node_of
from rollout_lab.schemas.patches import merge
from rollout_lab.simulate.command import simulate
from rollout_lab.simulate.dump import choose_objects
from rollout_lab.simulate.figures import Figures, add_up
from rollout_lab.simulate.flags import read_settings
from rollout_lab.simulate.objects import is_template_seen
from rollout_lab.simulate.report import (
    SimulationRun,
    list_ends,
    render_comparison,
    render_json,
    render_text,
    show_span,
)
from rollout_lab.simulate.times import choose_times, learn_ready_times
from rollout_lab.simulate.world import OPERATOR, RESTORER, NotPlayed, RunLimits, play
from rollout_lab.virtual_loop.loop import VirtualTimeLoop
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.cli.dumps import BadDump
from rollout_operator.cli.main import main
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, PODS, STATEFULSETS
from rollout_operator.model.names import DISRUPTION_RECORD, HEALTH_CHECK, InvalidInput
from rollout_operator.model.units import parse_rfc3339
from tests.gates.trees import health_check_tree
from tests.judge.stage import HistoryBuilder, play_records
from tests.stories import Steps
from tests.virtual_time import EPOCH

Json = Any
NAMESPACE: Final = "prod"
_EARLY: Final = "2026-01-02T03:00:00Z"
_REFUSED: Final = (BadDump, InvalidInput, NotPlayed)
_HIDDEN: Final = "hunter2"
_LONG: Final = 10_000
"""Columns: nothing is wrapped."""


class SimulateStage(Steps):
    """One input of `simulate`."""

    def __init__(self) -> None:
        self.objects = grow(*map(_zone, "abc"))
        self.written = EPOCH
        self.runs: list[SimulationRun] = []
        self.policies: list[Json] = []
        self.has_file = False

    # The input

    async def do_zones(self, *words: str) -> None:
        """Grow other zones: `a 'b{replicas: 1}' failed=zone-a-0`."""
        failed = [word.removeprefix("failed=") for word in words if word.startswith("failed=")]
        self.objects = grow(
            *(_zone(word) for word in words if "failed=" not in word), failed=failed
        )

    async def do_db(self, more: str = "{}", spec: str = "") -> None:
        """Three zones of a label each and no group, and a policy over them if it has a `spec`."""
        self.objects = grow(*(_zone(f"db-{letter}{_DB % letter}", more) for letter in "abc"))
        if spec:
            await self.do_policy("db", spec)

    async def do_dbs(self, more: str, *words: str) -> None:
        """Grow the same zones and others, without a policy."""
        zones = [_zone(f"db-{letter}{_DB % letter}", more) for letter in "abc"]
        self.objects = grow(*zones, *map(_zone, words))

    async def do_chain(self) -> None:
        """Grow zone-b that follows zone-a, and zone-c that follows zone-b, hours apart."""
        await self.do_zones("a{LATER}", "b{LATER}", "c{LATER}")
        for name, leading in (("zone-b", "zone-a"), ("zone-c", "zone-b")):
            leader = {"grafana.com/rollout-downscale-leader": leading}
            await self.do_edit(name, json.dumps({"metadata": {"annotations": leader}}))

    async def do_guarded(self, most: str = "2") -> None:
        """Grow zones of which so many pods may be down each, as far as a budget allows it."""
        await self.do_zones(*(f"{letter}{{max_unavailable: {most}, {_APP[1:]}" for letter in "abc"))

    async def do_spread(self) -> None:
        """Grow three zones on two nodes each: ordinal 2 has a node for itself."""
        await self.do_zones(*(f"{letter}{_APP}" for letter in "abc"))
        await self.do_nodes("zone-?-[01]=node-LETTER1", "zone-?-2=node-LETTER2")

    async def do_granted(self, name: str, engine: str) -> None:
        """Let a pod carry the record that the operator was about to take it down."""
        [pod] = self.find(name)
        record = {"uid": pod["metadata"]["uid"], "by": "another", "at": timestamp(EPOCH)}
        text = json.dumps({**record, "lasts": "PT2S", "engine": engine})
        pod["metadata"]["annotations"] = {DISRUPTION_RECORD: text}

    async def do_pdb(self, name: str, spec: str) -> None:
        """Add a native budget of all pods with the label."""
        whole = {"selector": {"matchLabels": {"app": "ingester"}}} | yaml.safe_load(f"{{{spec}}}")
        await self.do_add("policy/v1/PodDisruptionBudget", name, json.dumps({"spec": whole}))

    async def do_zpdb(self, name: str, most: str, more: str = "") -> None:
        """Add a budget of zones."""
        spec = {"selector": {"matchLabels": {"app": "ingester"}}, "maxUnavailable": int(most)}
        spec |= yaml.safe_load(f"{{{more}}}")
        whole = {"metadata": {"generation": 1}, "spec": spec}
        await self.do_add(f"{_OURS}/ZoneAwarePodDisruptionBudget", name, json.dumps(whole))

    async def do_gate(self, check: str = "{}", spec: str = "{}", pattern: str = "*-?") -> None:
        """Add a health check of one query, with changes, and bind StatefulSets to it."""
        tree = health_check_tree("health")
        tree["metadata"] = {"generation": 1}
        changes = {**yaml.safe_load(spec), "checks": {0: yaml.safe_load(check)}}
        tree["spec"] = merge_places(tree["spec"], changes)
        await self.do_add(f"{_OURS}/RolloutHealthCheck", "health", json.dumps(tree))
        await self.do_edit(pattern, f"{{metadata: {{annotations: {{{HEALTH_CHECK}: health}}}}}}")

    async def do_template(self, replicas: str) -> None:
        """Add the object that zones mirror."""
        spec = f"{{spec: {{replicas: {replicas}, labelSelector: a=b}}}}"
        await self.do_add(f"{_OURS}/ReplicaTemplate", "ingesters", spec)

    async def do_large(self, pattern: str, size: str) -> None:
        """Give an object an annotation or a status of so many bytes."""
        part = (
            "metadata: {annotations: {x: %s}}" if pattern == "zone-a" else "status: {message: %s}"
        )
        await self.do_edit(pattern, f"{{{part % ('A' * int(size))}}}")

    async def do_policy(self, name: str, spec: str = "{}", created: str = "2026-01-01") -> None:
        """Add a policy over all that has the label."""
        self.objects.append(policy(name, f"{created}T00:00:00Z", **yaml.safe_load(spec)))

    async def do_other(self, name: str, spec: str = "{}", created: str = "") -> None:
        """Give a policy in a file of its own, as a person applies it."""
        self.has_file = True
        if name != "none":
            made = policy(name, **yaml.safe_load(spec))
            self.policies.append({**made, "metadata": {"name": name}})

    async def do_nodes(self, *words: str) -> None:
        """Run pods on nodes, `zone-a-*=node-1`, or on one for each zone: `each`."""
        for word in words:
            pattern, _, name = word.partition("=")
            for one in self.find(pattern):
                zone = one["metadata"]["name"].rpartition("-")[0]
                place = name.replace("ZONE", zone).replace("LETTER", zone[-1])
                one["spec"]["nodeName"] = place

    async def do_node(self, name: str, more: str = "{}") -> None:
        """Add a node."""
        head: Json = {"metadata": {"uid": "u", "resourceVersion": "7"}}
        whole = merge(dict(node(name, {_KEY: name})), merge(head, yaml.safe_load(more)))
        self.objects.append(whole)

    async def do_hook(self, name: str, namespace: str, more: str = "{}") -> None:
        """Add a configuration of a webhook of the operator in a namespace."""
        body = REGISTRATIONS[name](namespace)
        whole = merge(dict(body), {"metadata": {"uid": "u", "resourceVersion": "7"}})
        self.objects.append(merge_places(whole, yaml.safe_load(more)))

    async def do_add(self, kind: str, name: str, more: str = "{}") -> None:
        """Add an object: `policy/v1/PodDisruptionBudget`."""
        version, _, kind = kind.encode().decode("unicode_escape").rpartition("/")
        head = {"name": name, "namespace": NAMESPACE, "uid": f"u-{name}", "resourceVersion": "7"}
        whole: Json = {"apiVersion": version, "kind": kind, "metadata": head}
        self.objects.append(merge_places(whole, yaml.safe_load(more)))

    async def do_edit(self, pattern: str, patch: str) -> None:
        """Change objects by a merge patch; a list is changed by a mapping of its places."""
        for one in self.find(pattern):
            changed = merge_places(one, yaml.safe_load(patch))
            one.clear()
            one.update(changed)

    async def do_drop(self, *patterns: str) -> None:
        """Leave objects out, or all of a kind."""
        gone = [id(one) for pattern in patterns for one in self.find(pattern)]
        self.objects = [one for one in self.objects if id(one) not in gone]

    async def do_twice(self, namespace: str = "") -> None:
        """Have all once more, perhaps in another namespace."""
        copies = deepcopy(self.objects)
        for one in copies if namespace else ():
            one["metadata"] |= {"namespace": namespace, "uid": f"{one['metadata']['uid']}-moved"}
            for owner in one["metadata"].get("ownerReferences", ()):
                owner["uid"] += "-moved"
        self.objects += copies

    async def do_outdated(self, *pods: str) -> None:
        """Let pods be of an older template, as in mid-rollout."""
        for name in pods:
            zone = name.rpartition("-")[0]
            await self.do_edit(
                name, f"{{metadata: {{labels: {{controller-revision-hash: {zone}-old}}}}}}"
            )
            await self.do_edit(zone, f"{{status: {{currentRevision: {zone}-old}}}}")

    async def do_manifests(self, *words: str) -> None:
        """What a person writes of three zones, as far as no API server has added to it."""
        made: list[Json] = [dict(statefulset(_zone(one, _APP), "")) for one in words or "abc"]
        for one in made:
            del one["metadata"]["namespace"]
        self.objects = made

    async def do_also(self, *words: str) -> None:
        """Add manifests."""
        before = self.objects
        await self.do_manifests(*words)
        self.objects = [*before, *self.objects]

    async def do_file(self, path: str) -> None:
        """Read a file of the repository."""
        self.objects = list(yaml.safe_load_all((_ROOT / path).read_text("utf-8")))

    async def do_wait(self, seconds: float) -> None:
        """Let the input be written later."""
        self.written += timedelta(seconds=seconds)

    async def do_sooner(self) -> None:
        """Let the input be written a day before."""
        self.written -= timedelta(days=1)

    def find(self, pattern: str) -> list[Json]:
        """Return the objects of such names, or of a kind."""
        found = [
            one
            for one in self.objects
            if fnmatch.fnmatch(one["metadata"].get("name", ""), pattern) or one["kind"] == pattern
        ]
        assert found, pattern
        return found

    # Simulations

    async def do_run(self, *words: str) -> str:
        """Simulate; show how it ends, what was deleted, and what was down."""
        try:
            with TemporaryDirectory() as folder:
                self.runs.append(self._run(Path(folder), *words))
        except _REFUSED as refused:
            return f"{type(refused).__name__}: {refused}".replace(folder, "")
        return self._digest()

    def _run(self, folder: Path, *words: str) -> SimulationRun:
        flags = [word for word in words if word.startswith("-")]
        changes = [each for word in words if word[0] != "-" for each in ("-change", word)]
        if self.has_file:
            (folder / "policy.yaml").write_bytes(to_yaml(self.policies))
            flags += ["-policy", str(folder / "policy.yaml")]
        settings = read_settings(["-f", "-", *flags, *changes])
        return simulate(settings, to_yaml(self.objects), self.written)

    @property
    def run(self) -> SimulationRun:
        return self.runs[-1]

    def _digest(self) -> str:
        run, figures = self.run, self.run.figures
        took = f" after {show_span(run.play.moved_at)}" if run.play.moved_at else ""
        parts = [
            f"{run.exit_code.name.lower()}{took}{', cut off' * run.play.is_cut}",
            f"deletes {_join(figures.deletes)}" if figures.deletes else "no deletes",
            *_describe_figures(figures),
        ]
        if run.play.undone:
            parts.append(f"{len(run.play.undone)} undone")
        return "; ".join(parts)

    async def do_times(self) -> str:
        """Show when the operator deletes pods."""
        times = [
            one.at.total_seconds()
            for one in self.run.play.history.list_all(Called)
            if (one.actor, one.request.verb, one.request.resource) == (OPERATOR, "delete", PODS)
        ]
        return " ".join(f"{at:.1f}" for at in times)

    async def do_evicted(self) -> str:
        """Show evictions, with the second and the status."""
        return _join_or_none(
            f"{one.at.total_seconds():.0f}s {one.request.name} {one.status}"
            for one in self.run.play.history.list_all(Called)
            if one.request.subresource == "eviction"
        )

    async def do_where(self) -> str:
        """Show on which node pods are in the end."""
        last = {
            one.name: one.after
            for one in self.run.play.history.list_all(Commit)
            if one.resource == PODS
        }
        found = sorted((node_of(pod) or "none", name) for name, pod in last.items() if pod)
        places = groupby(found, lambda one: one[0])
        return "; ".join(f"{place}: {_join(name for _, name in pods)}" for place, pods in places)

    async def do_counts(self, *names: str) -> str:
        """Show when sets come to want how many replicas."""
        found: dict[str, list[str]] = {}
        counts: dict[str, object] = {}
        for one in self.run.play.history.list_all(Commit):
            if one.resource == STATEFULSETS and one.name in names and one.after is not None:
                spec: Json = one.after["spec"]
                if counts.setdefault(one.name, spec["replicas"]) != spec["replicas"]:
                    counts[one.name] = spec["replicas"]
                    at = one.at.total_seconds()
                    found.setdefault(one.name, []).append(f"{spec['replicas']} at {at:.0f}s")
        return "; ".join(f"{name} {', '.join(each)}" for name, each in sorted(found.items()))

    async def do_wrote(self, what: str) -> str:
        """Show what controllers write of a kind, or what anybody does before so many seconds."""
        history = self.run.play.history
        if what.isdigit():
            return _join_or_none(
                f"{one.actor} {one.request.verb}"
                for one in history.list_all(Called)
                if one.at < timedelta(seconds=int(what))
                and one.actor not in ("the input", "sandbox")
                and one.request.verb in ("create", "update", "patch", "delete")
            )
        return _join_or_none(
            one.name
            for one in history.list_all(Commit)
            if (one.resource.plural, one.actor) == (what, "statefulset-controller")
        )

    async def do_cut(self, seconds: str, records: str, *changes: str) -> str:
        """Simulate with such limits; show how it ends."""
        words = [each for change in changes for each in ("-change", change)]
        settings = read_settings(["-f", "-", *words])
        dump = choose_objects(self.objects, "")
        limits = RunLimits(
            span=timedelta(seconds=int(seconds)), records=int(records), records_per_pod=0
        )
        played = play(dump, settings, choose_times(dump, settings, EPOCH), EPOCH, limits)
        assert played.is_cut
        return list(list_ends(played))[-1]

    async def do_end(self) -> str:
        """Show what the operator says in the end."""
        return "\n".join(list_ends(self.run.play))

    async def do_page(self, *words: str) -> str:
        """Show the whole page, or the lines in which one of these texts stands, or how often."""
        lines = list(render_text(self.run, _LONG if words else 100))
        shown = [line for line in lines if not words or any(word in line for word in words)]
        return "\n".join(" ".join(line.split()) if words else line for line in shown) or "no line"

    async def do_wide(self, columns: str) -> str:
        """Show how wide the widest line is on such a screen."""
        return str(max(map(len, render_text(self.run, int(columns)))))

    async def do_json(self, *paths: str) -> str:
        """Show parts of it for machines."""
        document = json.loads(render_json(self.run))
        return "; ".join(f"{path} {_dig(document, path)}" for path in paths)

    async def do_compare(self, *words: str) -> str:
        """Show the rows with these words of the last two simulations side by side."""
        lines = render_comparison(self.runs[-2], self.runs[-1], 100)
        return "\n".join(line for line in lines if any(word in line for word in words))

    # The input as it is read

    async def do_dump(self, namespace: str = "") -> str:
        """Show what counts of the input, what is left out, or why it cannot be used."""
        try:
            dump = choose_objects(self.objects, namespace)
        except _REFUSED as refused:
            return str(refused)
        parts = [f"{len(dump.sets)} sets, {len(dump.pods)} pods in {dump.namespace}"]
        return "\n".join([*parts, *dump.left_out, *["it tells secrets"] * (_HIDDEN in str(dump))])

    async def do_kept(self, kind: str, *paths: str) -> str:
        """Show what is kept of objects, as far as they are of this kind."""
        dump = choose_objects(self.objects, "")
        found = [*(one.obj for one in dump.sets), *(one.obj for one in dump.pods), *dump.others]
        return " ".join(_dig(one, path) for one in found if one["kind"] == kind for path in paths)

    async def do_learn(self) -> str:
        """Show how long pods of each group take, and of how many that was learnt."""
        settings = read_settings(["-f", "-", "-ready-after", "0s"])
        times = learn_ready_times(choose_objects(self.objects, ""), settings)
        return ", ".join(
            f"{group} {time.span.total_seconds():g}s of {time.pods}"
            for group, time in times.items()
        )

    async def do_left(self, ready: str = "40s", *stuck: str) -> str:
        """Show how long pods take still that are not ready, and which are stuck."""
        words = [word for name in stuck for word in ("-stuck", name)]
        settings = read_settings(
            ["-f", "-", "-ready-after", ready, "-terminates-after", "7s", *words]
        )
        dump = choose_objects(self.objects, "")
        try:
            times = choose_times(dump, settings, self.written)
        except InvalidInput as refused:
            return str(refused)
        left = [
            f"{pod.decoded.name} {span.total_seconds():g}s" for pod, span in times.list_left(dump)
        ]
        return _join_or_none([*left, *(f"{one.decoded.name} stuck" for one in times.stuck)])

    async def do_took(self, *seconds: str) -> None:
        """Let the pods of zone a have become ready so long after they were started."""
        for ordinal, took in enumerate(seconds):
            at = parse_rfc3339(_EARLY) + timedelta(seconds=float(took))
            await self.do_edit(f"zone-a-{ordinal}", _STATUS % (_EARLY, at.isoformat()))

    async def do_age(self, name: str, seconds: str, status: str = "{}") -> None:
        """Let a pod be starting, so many seconds old."""
        created = (EPOCH - timedelta(seconds=int(seconds))).isoformat()
        [pod] = self.find(name)
        pod["metadata"]["creationTimestamp"] = created
        pod["status"] = {**yaml.safe_load(_STARTING), **yaml.safe_load(status)}

    async def do_ending(self, name: str, ago: str) -> None:
        """Let a pod be terminating since so many seconds."""
        at = (EPOCH + timedelta(seconds=30 - int(ago))).isoformat()
        await self.do_edit(
            name, f'{{metadata: {{deletionTimestamp: "{at}", deletionGracePeriodSeconds: 30}}}}'
        )

    async def do_seen(self) -> str:
        """Show whether the controller has seen the template of zone a."""
        pods = [pod for pod in self.objects if pod["metadata"]["name"].startswith("zone-a-")]
        return "seen" if is_template_seen(self.find("zone-a")[0], pods) else "not seen"

    async def do_history(self, *records: str) -> str:
        """Add up a history of zones a, b and c: records as those of `tests/judge`.

        Of pods `without` which it begins, there is none in the input.
        """
        words, missing = HistoryBuilder().zones(), [one.partition("without ")[2] for one in records]
        begun = [one for one in words.history.list_all(Commit) if one.name[5:] not in missing]
        words.history.records[:] = [replace(one, actor=RESTORER) for one in begun]
        play_records(words, ";".join(one for one in records if "without " not in one))
        groups = {"ingester": ("zone-a", "zone-b", "zone-c")}
        figures = add_up(words.history.records, groups, timedelta(seconds=100))
        shown = [f"deletes {_join(figures.deletes)}"] * bool(figures.deletes)
        return _join_or_none([*shown, *_describe_figures(figures)])

    # As people call it

    async def do_call(self, *words: str) -> str:
        """Call the command with the input in a file; show code, errors and how much is printed."""
        code, shown, said = _call(to_yaml(self.objects), *words)
        told = ("past a bound", "deletes by", "left out")
        lines = [line.strip() for line in shown.splitlines() if any(word in line for word in told)]
        return "; ".join([f"code {code}", *said, *lines])

    async def do_text(self, content: str) -> str:
        """Call the command with a file of this text."""
        code, _, said = _call(content.encode().decode("unicode_escape").encode())
        return "; ".join([f"code {code}", *said])


def _call(content: bytes, *words: str) -> tuple[int, str, list[str]]:
    """Return exit code, output and errors of the command with a file."""
    out, err = StringIO(), StringIO()
    with TemporaryDirectory() as folder, redirect_stdout(out), redirect_stderr(err):
        path = Path(folder, "dump.yaml")
        path.write_bytes(content)
        code = main(["simulate", "-f", str(path), *words])
    assert _HIDDEN not in out.getvalue() + err.getvalue()
    said = err.getvalue().replace(folder, "").strip().splitlines()
    return code, out.getvalue(), [line.removeprefix("rollout-operator: ") for line in said]


_KEY: Final = "topology.kubernetes.io/zone"
_LABELS: Final = {"app": "db"}
_DB: Final = "{group: null, replicas: 2, labels: {app: db, " + _KEY + ": us-west-2%s}}"
_APP: Final = "{labels: {app: ingester}, pod_labels: {app: ingester}}"
_OURS: Final = "rollout-operator.grafana.com/v1"
_PREPARED: Final = (
    'labels: {grafana.com/prepare-downscale: "true"}, annotations:'
    " {grafana.com/prepare-downscale-http-path: prepare,"
    ' grafana.com/prepare-downscale-http-port: "80",'
    " grafana.com/min-time-between-zones-downscale: %s}"
)
_MIRROR: Final = "grafana.com/rollout-mirror-replicas-from-resource"
_MIRRORS: Final = (
    f"{_MIRROR}-name: ingesters, {_MIRROR}-kind: ReplicaTemplate, {_MIRROR}-api-version: {_OURS}"
)
_TERMS: Final = {
    "PREPARED": _PREPARED % "1h",
    "LATER": _PREPARED % "3h",
    "MIRRORS": f"annotations: {{{_MIRRORS}}}",
    "DELAYED": (
        f"annotations: {{{_MIRRORS}, grafana.com/rollout-delayed-downscale: 2h,"
        " grafana.com/rollout-prepare-delayed-downscale-url: 'http://pod:80/delayed'}"
    ),
}
_ROOT: Final = Path(__file__).parents[3]
_STATUS: Final = (
    '{status: {startTime: "%s", conditions: [{type: Ready, status: "True",'
    ' lastTransitionTime: "%s"}], containerStatuses: {0: {restartCount: 0}}}}'
)
_STARTING: Final = (
    '{phase: Running, conditions: [{type: Ready, status: "False"}], containerStatuses:'
    " [{name: app, ready: false, restartCount: 0, state: {running: {}}}]}"
)


def policy(name: str = "db", created: str = "2026-01-01T00:00:00Z", **spec: object) -> Json:
    """Return a policy over all that has the label, as the API server prints it."""
    head = {"uid": f"u-{name}", "resourceVersion": "9", "creationTimestamp": created}
    return {
        "apiVersion": f"{MULTI_AZ_ROLLOUTS.group}/{MULTI_AZ_ROLLOUTS.version}",
        "kind": MULTI_AZ_ROLLOUTS.kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "generation": 1, **head},
        "spec": {
            "statefulSetSelector": {"matchLabels": _LABELS},
            "azOrder": ["us-west-2c"],
            **spec,
        },
    }


def db_zones() -> list[ZoneSpec]:
    """Return three zones of no rollout group, each with one StatefulSet that says its zone."""
    return [_zone(f"db-{letter}{_DB % letter}") for letter in "abc"]


def _zone(word: str, more: str = "{}") -> ZoneSpec:
    name, brace, fields = word.partition("{")
    for term, meaning in _TERMS.items():
        fields = fields.replace(term, meaning)
    given = yaml.safe_load(f"{{{fields}") if brace else {}
    whole = {"name": name if len(name) > 1 else f"zone-{name}", **given, **yaml.safe_load(more)}
    return msgspec.convert(whole, ZoneSpec)


def merge_places(one: Json, patch: Json) -> Json:
    """Apply a merge patch, in which a mapping of places changes items of a list."""
    if isinstance(one, list) and isinstance(patch, dict):
        return [merge_places(each, patch.get(place, {})) for place, each in enumerate(one)]
    if not isinstance(patch, dict) or not isinstance(one, dict):
        return patch
    whole = {**one}
    for key, value in patch.items():
        if value is None:
            whole.pop(key, None)
        elif value == "NULL":
            whole[key] = None
        else:
            whole[key] = merge_places(whole.get(key, {}), value)
    return whole


def _dig(value: Json, path: str) -> str:
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value.get(key, "absent")
    return json.dumps(value)


def _join(names: Iterable[str]) -> str:
    """Return names of pods, those of a zone in a row together: `a-0,1,2 b-0`."""
    rows = groupby((name.rpartition("-") for name in names), lambda one: one[0])
    return " ".join(
        f"{zone.removeprefix('zone-')}-{','.join(ordinal for _, _, ordinal in pods)}"
        for zone, pods in rows
    )


def _join_or_none(parts: Iterable[str]) -> str:
    return ", ".join(parts) or "none"


def _describe_figures(figures: Figures) -> Iterator[str]:
    for word, counts in (("before", figures.down_before), ("most", figures.most_down)):
        if down := [
            f"{zone.removeprefix('zone-')} {many}" for zone, many in counts.items() if many
        ]:
            yield f"{word} down {', '.join(down)}"
    for one in figures.overlaps:
        span = f"{one.at:.0f}s for {one.seconds:.0f}s"
        yield f"{' and '.join(one.zones)} down at {span}{', still' * one.is_open}"
    yield from (f"past a bound: {one.text}" for one in figures.crossings)
    for each in figures.evictions:
        if each.waited >= 1:
            waited = f"{each.waited:.0f}s{', still' * each.is_open}"
            yield f"eviction of {each.pod} waits {waited}"
    if figures.refusals:
        yield f"{len(figures.refusals)} refused"


_KNOWN: Final[dict[tuple[str, tuple[str, ...]], list[Json]]] = {}


def grow(*zones: ZoneSpec, failed: Iterable[str] = ()) -> list[Json]:
    """Return the objects of a group that is whole but for the pods that crash; a fresh copy."""
    key = (repr(zones), tuple(failed))
    if key not in _KNOWN:  # it takes a while
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            # No two worlds may have the same UIDs, nor the one that simulates: its seeds are small.
            seed = 1000 + zlib.crc32(repr(key).encode())
            _KNOWN[key] = runner.run(_grow(zones, key[1], seed))
    return deepcopy(_KNOWN[key])


async def _grow(zones: Iterable[ZoneSpec], failed: Iterable[str], seed: int) -> list[Json]:
    async with Sandbox(namespace=NAMESPACE, seed=seed) as sandbox:
        for zone in zones:
            body = statefulset(zone, NAMESPACE)
            await sandbox.call(create(STATEFULSETS, body, NAMESPACE))
        await asyncio.sleep(10)
        for pod in failed:
            sandbox.cluster.fail_pod(pod)
        await asyncio.sleep(10)
        return [one for kind in (STATEFULSETS, PODS) for one in sandbox.api.list(kind, NAMESPACE)]


def to_yaml(objects: Iterable[Mapping[str, object]]) -> bytes:
    """Return them as `kubectl get -o yaml` prints them."""
    listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    return str(yaml.dump(listed, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))).encode()
