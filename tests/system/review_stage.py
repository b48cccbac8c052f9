"""Reviews on the real control plane, for stories: certificates, evictions and downscales."""

import asyncio
import base64
import re
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

import aiohttp
import yaml
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec, statefulset, three_zones

from tests.judge.objects import Set
from tests.pki.certificates import Legacy
from tests.pki.stage import MADE_BY_US
from tests.second_try import BrokenPromise
from tests.system.hooked import (
    HOST,
    PROBE,
    fetch_secret,
    put_secret,
    secret_body,
    shake_hands,
    trusting,
)
from tests.system.stage import LONG, PlaneStage
from tests.system.waits import show_columns, wait_true
from tests.system.zones import (
    LAST_DOWNSCALE,
    NO_DOWNSCALE,
    PATH,
    Template,
    create_budgets,
    follow,
    has_record,
    is_called,
    is_of_now,
    mirror,
    prepared_zone,
    read_stamp,
)
from tests.world.api import (
    BUDGETS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    LEASES,
    PODS,
    REPLICASETS,
    ROLES,
    SECRETS,
    STATEFULSETS,
    Answer,
    ApiError,
    Json,
    Resource,
)
from tests.world.budgets import CRDS, ZONE_BUDGETS, DryRun, evict, native_budget, zone_budget
from tests.world.clients import Route, Workload, workload_body
from tests.world.hooks import (
    BUDGET_HOOKS,
    INJECT_LABEL,
    NAMESPACE_LABEL,
    PREPARE_DOWNSCALE,
    WORKLOADS,
    Hooks,
    Registration,
)
from tests.world.hooks import NO_DOWNSCALE as NO_DOWNSCALE_HOOK
from tests.world.kubelet import always, slow_to_end
from tests.world.manifests import ACCOUNT, LEASE, SECRET, render_rights
from tests.world.pki import make_pki
from tests.world.sets import Missing, Snapshot, missing_ready
from tests.world.webpods import Respond, WebPods
from tests.world.world import World

TRACKER: Final = "rollout-operator-zone-tracker"
ROUNDS: Final = ("reviews_total", "reason=pods_prepared")
ENTRY: Final = re.compile(r'\{"lastDownscaled":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"\}')
DOWNSCALE_HOOKS: Final = (NO_DOWNSCALE_HOOK, PREPARE_DOWNSCALE)
# What `hook` registers in place of the two about downscales.
REGISTERED: Final[Mapping[str, Json]] = {
    "evictions": {"hooks": BUDGET_HOOKS},
    "workloads": {"hooks": (NO_DOWNSCALE_HOOK,), "resources": WORKLOADS},
    "all": {"hooks": (*DOWNSCALE_HOOKS, *BUDGET_HOOKS)},
}
KINDS: Final = {one.plural: one for one in (STATEFULSETS, DEPLOYMENTS, REPLICASETS)}
# The API server gives up on a write that long after it began.
MAY_PERSIST: Final = timedelta(seconds=34)
FOREIGN: Final = {"README": "kept", "store": '{"lastDownscaled":"2020-01-01T00:00:00Z"}'}


class ReviewStage(PlaneStage):
    """Has webhooks, and pods that are prepared before they go."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.pods: WebPods | None = None
        self.template: Template | None = None
        self.stepped = 0
        """So many changes of counts have been told."""
        self.prepared: list[str] = []
        self.asked: dict[str, asyncio.Task[Answer]] = {}
        self.posted = 0
        """So many calls of pods have been told."""
        self.rounds = 0
        self.held: dict[str, bytes] = {}
        """The Secret as it was when what is served was looked at first."""
        self.secret: Json = {}
        """The Secret when it was held."""
        self.hooks: dict[str, tuple[Hooks, Json]] = {}
        """By name, with the configuration as it was registered."""

    def change(self, zone: ZoneSpec, words: Sequence[str]) -> ZoneSpec:
        """Have its pods prepared, and zones wait for one another: `prepared wait=1h`."""
        if self.pods is None or "prepared" not in words:
            return zone
        wait = next((one[5:] for one in words if one.startswith("wait=")), "")
        return prepared_zone(self.pods, zone, wait=wait)

    async def do_zones(self, group: str = "ingester", *words: str) -> None:
        if "prepared" in words:
            self.pods = await self.world.serve_pods()
        await super().do_zones(group, *words)

    async def do_prepared(self, *words: str) -> None:
        """`prepared a b replicas=5 wait=3s`: sets of a group each, of one where they wait."""
        self.pods = await self.world.serve_pods()
        replicas = next((int(one[9:]) for one in words if one.startswith("replicas=")), 3)
        is_waiting = any(one.startswith("wait=") for one in words)
        for name in (one for one in words if "=" not in one):
            group = "waiting" if is_waiting else name
            zone = ZoneSpec(name=name, group=group, replicas=replicas)
            await self.world.create(self.change(zone, ("prepared", *words)))
            self.prepared.append(name)

    async def do_behave(self, pod: str, milliseconds: str) -> None:
        """`behave a-2 3000`: how long a pod takes to confirm."""
        assert self.pods is not None
        respond = Respond(after=timedelta(milliseconds=int(milliseconds)))
        self.pods.behave(pod, respond, method="POST")

    async def do_ending(self, seconds: str) -> None:
        """Let pods take so long to end."""
        self.world.kubelet.choose = always(slow_to_end(timedelta(seconds=int(seconds))))

    async def do_pair(self) -> None:
        """Create a zone that may not be scaled down, and one that follows it."""
        first, second, _ = three_zones(replicas=2)
        kept = replace(first, labels={NO_DOWNSCALE: "true"})
        self.names = await self.world.create(kept, follow(second, first.name))

    async def do_replicas(self, name: str, count: str) -> None:
        await self.world.set_replicas(name, int(count))

    async def do_events(self, kind: str, name: str) -> str:
        """Return the reasons of our Events on an object, as `kubectl describe` requests them.

        How often one happened again is not told: where its own cache is late, the API server has a
        write reviewed twice.
        """
        # kubectl requests those of the core group: the same objects.
        selector = f"involvedObject.kind={kind},involvedObject.name={name}"
        where = (Resource("v1", "events"), self.world.namespace)
        found = (await self.world.api.list(*where, query={"fieldSelector": selector}))["items"]
        own = [one for one in found if one["reportingComponent"] == "rollout-operator"]
        return " ".join(
            one["reason"] + " again" * bool(one.get("series"))
            for one in sorted(own, key=lambda one: str(one["eventTime"]))
        )

    async def do_budget(self, name: str) -> None:
        await create_budgets(self.world, [zone_budget(name, {"rollout-group": name})])

    async def do_set(self, name: str, spec: str) -> None:
        """`set mock "maxUnavailable: 0"`: change fields of a budget."""
        await self.world.patch(ZONE_BUDGETS, name, {"spec": yaml.safe_load(f"{{{spec}}}")})

    async def do_invalid(self, spec: str, name: str = "other") -> str:
        """Return how the API server answers another budget."""
        body = zone_budget(name, {"app": "other"}, **yaml.safe_load(f"{{{spec}}}"))
        path = ZONE_BUDGETS.path(self.world.namespace)
        return str((await self.world.api.exchange("POST", path, body=body)).status)

    async def do_native(self, zone: str) -> None:
        """Let a PodDisruptionBudget forbid all evictions of a zone."""
        await self.world.post(BUDGETS, native_budget("native", {"name": zone}, 0))

    async def do_ready(self, name: str) -> str:
        """Return status and reason of the condition of a budget."""
        condition, _ = await self._read_budget(name)
        return f"{condition.get('status')} {condition.get('reason')}"

    async def do_says(self, name: str, text: str) -> str:
        condition, _ = await self._read_budget(name)
        return "yes" if text in condition["message"] else condition["message"]

    async def do_numbers(self, name: str) -> str:
        _, status = await self._read_budget(name)
        numbers = {key: value for key, value in status.items() if key != "conditions"}
        return ", ".join(f"{key} {value}" for key, value in sorted(numbers.items()))

    async def do_columns(self) -> str:
        shown = await show_columns(self.world, ZONE_BUDGETS)
        return ", ".join(f"{key} {value}" for key, value in shown.items())

    async def do_twice(self, name: str) -> None:
        """Have a budget be invalid, mended, and invalid as before: an Event that goes on."""
        # Two groups, none of which is named: what the schema of the kind cannot tell.
        for pattern, is_valid in (("(a)(b)", "0"), (None, "1"), ("(a)(b)", "0")):
            await self.world.patch(ZONE_BUDGETS, name, {"spec": {"podNamePartitionRegex": pattern}})
            await self.do_until(is_valid, "metric", "zpdb_valid", f"zpdb={name}")
        await self.do_reaches("1", "events_total", "outcome=repeated")

    async def do_pruned(self, name: str) -> None:
        """Let budgets have no status, as in the definition of other releases, until the end."""
        await self.running.enter_async_context(self._pruning(name))

    @asynccontextmanager
    async def _pruning(self, name: str) -> AsyncIterator[None]:
        api, crd = self.world.api, f"{ZONE_BUDGETS.plural}.rollout-operator.grafana.com"
        shipped = await api.get(CRDS, "", crd)
        plain = deepcopy(shipped)
        (version,) = plain["spec"]["versions"]
        del version["additionalPrinterColumns"]
        del version["schema"]["openAPIV3Schema"]["properties"]["status"]

        async def put(definition: Json, *, is_kept: bool) -> None:
            async def is_known() -> bool:
                where = (ZONE_BUDGETS, self.world.namespace, name)
                body = await api.patch(*where, {"status": {"zones": 1}}, subresource="status")
                return ("status" in body) is is_kept

            newest = await api.get(CRDS, "", crd)
            await api.replace(CRDS, "", crd, {**newest, "spec": definition["spec"]})
            await wait_true(f"status kept: {is_kept}", is_known)

        await put(plain, is_kept=False)
        try:
            yield
        finally:
            await put(shipped, is_kept=True)

    async def _read_budget(self, name: str) -> tuple[Json, Json]:
        status: Json = (await self.world.get(ZONE_BUDGETS, name)).get("status", {})
        conditions = status.get("conditions", ())
        return next((one for one in conditions if one["type"] == "Ready"), {}), status

    async def do_hook(self, what: str) -> None:
        """Have the API server call the operator about evictions or downscales."""
        await self.world.create(PROBE)
        wanted = Registration(port=self.operator().tls_port, **REGISTERED.get(what, {}))
        hooks = await self.world.register(wanted, PROBE.name)
        self.hooks |= dict.fromkeys(hooks.wanted.hooks, (hooks, {}))

    async def do_hooks(self, *names: str) -> None:
        """Register configurations at which nothing is called; `foreign` and `other` want no CA."""
        labels = {
            "foreign": {NAMESPACE_LABEL: self.world.namespace},
            "other": {INJECT_LABEL: "true", NAMESPACE_LABEL: f"{self.world.namespace}-other"},
        }
        for name in names or DOWNSCALE_HOOKS:
            wanted = Registration(port=1, hooks=(name,), labels=labels.get(name))
            hooks = await self.world.register(wanted)
            self.hooks[name] = hooks, await hooks.fetch(name)

    async def do_injected(self, *names: str) -> None:
        for name in names or self.hooks:
            await self.hooks[name][0].wait_injected(LONG)

    async def do_wipe(self, *names: str) -> None:
        """Take the bundle out of configurations, as an old manifest would."""
        patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
        for name in names:
            hooks, _ = self.hooks[name]
            where = (hooks.resource(name), "", hooks.name(name))
            await self.world.api.patch(*where, patch, kind="json")

    async def do_bundles(self) -> str:
        """Say whose bundle each configuration has."""
        ca = base64.b64encode((await fetch_secret(self.world)).get("ca", b"")).decode()
        shown = []
        for name, (hooks, before) in self.hooks.items():
            now = await hooks.fetch(name)
            is_ours = now["webhooks"][0]["clientConfig"].get("caBundle") == ca
            shown.append(f"{name}={'untouched' if now == before else 'ours' if is_ours else now}")
        return " ".join(shown)

    async def do_written(self, *resources: str) -> str:
        """Return how often objects of some kinds were patched."""
        calls = await self.world.judge.calls()
        return str(sum(call.verb == "patch" and call.resource in resources for call in calls))

    async def do_named(self, *resources: str) -> str:
        """Return which objects of some kinds were requested by name."""
        calls = await self.world.judge.calls()
        found = {call.name or "all" for call in calls if call.resource in resources}
        return " ".join(sorted(found)).replace(self.world.namespace, "NAMESPACE") or "none"

    async def do_limit(self, *hooks: str) -> None:
        """Limit the operator's rights on configurations to those of some names."""
        name = f"{ACCOUNT}-{self.world.namespace}-webhooks"
        await self.world.grant("webhooks")
        role = await self.world.api.get(CLUSTER_ROLES, "", name)
        for rule in role["rules"]:
            rule["resourceNames"] = [f"{hook}-{self.world.namespace}" for hook in hooks]
        await self.world.api.replace(CLUSTER_ROLES, "", name, role)

    async def do_dry(self, pod: str) -> str:
        """Evict a pod as dry runs of both kinds."""
        api, namespace = self.world.api, self.world.namespace
        hows = (DryRun.QUERY, DryRun.OPTIONS)
        answers = [await evict(api, namespace, pod, dry_run=how) for how in hows]
        return " ".join(str(one.status) for one in answers)

    async def do_evict(self, pod: str, *parts: str) -> str:
        """Return the status, and whether all of the words are in the answer."""
        answer = await evict(self.world.api, self.world.namespace, pod)
        said = {part: part.removeprefix("!") in answer.message for part in parts}
        missing = [part for part, is_said in said.items() if is_said is part.startswith("!")]
        return f"{answer.status}{f', not {missing} in {answer.message}' if missing else ''}"

    def find(self, what: str) -> Workload:
        """Return what `deployments/kept` names, or a set where only a name is given."""
        plural, _, name = what.rpartition("/")
        resource = KINDS[plural or STATEFULSETS.plural]
        return Workload(
            api=self.world.api,
            namespace=self.world.namespace,
            name=name,
            resource=resource,
            label="some",
        )

    async def do_workload(self, what: str, *keys: str) -> None:
        """`workload deployments/kept a/b=c @a/b=c`: with labels and annotations."""
        workload = self.find(what)
        labels, annotations = (
            dict(one.lstrip("@").split("=") for one in keys if one.startswith("@") is is_at)
            for is_at in (False, True)
        )
        zone = ZoneSpec(name=workload.name, group=None, labels=labels, annotations=annotations)
        body = statefulset(zone, self.world.namespace)
        if workload.resource is not STATEFULSETS:
            metadata = body["metadata"]
            body = workload_body(workload.resource, workload.name, 3)
            body["metadata"] = metadata
        await self.world.post(workload.resource, body)
        if workload.resource is STATEFULSETS:
            self.names = [*self.names, workload.name]
            await self.world.wait_ready([workload.name])

    async def do_scale(self, what: str, count: str, *words: str) -> str:
        """`scale a 2 SCALE_MERGE "words of the answer"`, or of its warnings."""
        route = Route[words[0]] if words and words[0] in Route.__members__ else Route.MERGE
        workload = self.find(what)
        answer = await workload.scale(int(count), route)
        if answer.status == 200 and workload.resource is STATEFULSETS:
            await self.world.wait_ready([workload.name])
        said = " ".join((answer.message, *answer.warnings))
        parts = [self._fill_in(word) for word in words if word not in Route.__members__]
        missing = [part for part in parts if part not in said]
        return f"{answer.status}{f', not {missing} in {said}' if missing else ''}"

    async def do_together(self, count: str, route: str) -> str:
        """Scale all prepared sets at once; say how it ended, and how many answers are stamped."""
        requests = [self.find(name).scale(int(count), Route[route]) for name in self.prepared]
        answers = await asyncio.gather(*requests)
        stamped = sum(is_of_now(read_stamp(answer.body)) for answer in answers)
        return f"{' '.join(str(answer.status) for answer in answers)}, {stamped} stamped"

    async def do_back(self, count: str) -> None:
        """Bring all prepared sets back, as if they had not been scaled down."""
        for name in self.prepared:
            await self.world.annotate(name, **{LAST_DOWNSCALE: None})
            await self.world.set_replicas(name, int(count))
        await self.world.wait_ready(self.prepared)

    async def do_ask(self, name: str, count: str) -> None:
        """Scale a set without waiting for the answer."""
        scaling = self.find(name).scale(int(count), Route.MERGE)
        self.asked[name] = asyncio.create_task(scaling, name=f"scale-{name}")

    async def do_answered(self, name: str) -> str:
        return str((await self.asked[name]).status)

    async def do_secret(self, change: str) -> None:
        """Delete the operator's Secret, create it empty, or as the version before wrote it."""
        await self.world.grant("webhooks")
        if change == "empty":
            await self.world.post(SECRETS, secret_body({}))
        elif change == "legacy":
            # RSA in PKCS#1, and no key of the CA.
            start = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)
            await put_secret(self.world, secret_body(Legacy(start=start, names=(HOST,)).data()))
        else:
            await self.world.delete(SECRETS, SECRET)

    async def do_apply(self, kind: str = "apply") -> None:
        """Apply the shipped Secret over the one that is there."""
        rights = render_rights("webhooks", self.world.namespace)
        (shipped,) = (one for one in rights if one["kind"] == "Secret")
        await self.world.patch(SECRETS, SECRET, shipped, kind=kind)

    async def do_hold(self) -> str:
        """Keep in mind how the Secret is; say whether we have made it."""
        self.secret = await self.world.get(SECRETS, SECRET)
        labels = self.secret["metadata"].get("labels", {})
        return "ours" if labels.items() >= MADE_BY_US.items() else "of others"

    async def do_kept(self) -> str:
        """Say whether the Secret is as it was held, but for its version where it is "kept"."""
        now, before = await self.world.get(SECRETS, SECRET), self.secret
        is_kept = (now["data"], now["metadata"].get("labels")) == (
            before["data"],
            before["metadata"].get("labels"),
        )
        return "unchanged" if now == before else "kept" if is_kept else "changed"

    async def do_healthy(self) -> str:
        """Say whether the Secret is whole, and what is served verifies by it and is in it."""
        data = await fetch_secret(self.world)
        leaf = await shake_hands(self.operator().tls_port, trusting(data["ca"]))
        is_stored = leaf == ssl.PEM_cert_to_DER_cert(data["cert"].decode())
        return "yes" if is_stored and data["key"] else "no"

    async def do_files(self) -> None:
        """Write a CA, and a certificate with its key, in place of those that are there."""
        self.file_ca = make_pki(self.world.folder).ca.read_bytes()

    async def do_shown(self) -> str:
        """Say whether the certificate of the files is served."""
        try:
            await shake_hands(self.operator().tls_port, trusting(self.file_ca))
        except ssl.SSLError:
            return "no"
        return "yes"

    async def do_lease(self) -> str:
        """Return the annotations of the Lease, by which other replicas are reached."""
        annotations: Json = (await self.world.get(LEASES, LEASE))["metadata"].get("annotations", {})
        return " ".join(annotations) or "none"

    async def do_stamped(self, name: str) -> str:
        """Say whether a set carries the time of a downscale of this minute."""
        return "yes" if is_of_now(read_stamp(await self.world.get(STATEFULSETS, name))) else "no"

    async def do_recorded(self) -> str:
        """Return the pods with a record of an eviction or a downscale."""
        pods: list[Json] = await self.world.api.items(PODS, self.world.namespace)
        living = [one for one in pods if "deletionTimestamp" not in one["metadata"]]
        found = [one["metadata"]["name"] for one in living if has_record(one)]
        return " ".join(sorted(found)) or "-"

    async def do_called(self, pod: str) -> str:
        assert self.pods is not None
        return " ".join(one.method for one in self.pods.calls_to(pod)) or "-"

    async def do_posted(self) -> str:
        """Return which pods were called since this was asked before, and in how many rounds a set.

        A round is one that the operator counts; the API server may need a second one.
        """
        assert self.pods is not None
        new, self.posted = self.pods.calls[self.posted :], len(self.pods.calls)
        before, self.rounds = self.rounds, int(await self.do_metric(*ROUNDS))
        sets = len({one.pod.rpartition("-")[0] for one in new})
        is_right = sets <= self.rounds - before <= 2 * sets
        calls = [f"{'' if one.method == 'POST' else one.method}{one.pod}" for one in new]
        return f"{' '.join(sorted(calls))} in {'1 or 2' if is_right else self.rounds - before}"

    async def do_undone(self, *names: str) -> str:
        """Wait until pods know that they stay, and say whether that was not too early."""
        pods = self.pods
        assert pods is not None

        def holds() -> bool:
            return all(is_called(pods.calls_to(one)) for one in names)

        await pods.wait_until(f"told that they stay: {names}", holds, LONG)
        calls = [(pods.calls_to(one, "POST")[-1], pods.calls_to(one, "DELETE")[0]) for one in names]
        waits = [undone.at - prepared.at for prepared, undone in calls]
        return "in time" if min(waits) >= MAY_PERSIST.total_seconds() else str(waits)

    async def do_served(self) -> None:
        """The certificate that is served is one of the CA that was stored when it was held."""
        self.held = self.held or await fetch_secret(self.world)
        await shake_hands(self.operator().tls_port, trusting(self.held["ca"]))

    async def do_renewed(self) -> None:
        held = self.held

        async def is_renewed() -> bool:
            return (await fetch_secret(self.world))["cert"] != held.get("cert")

        await wait_true("renewed", is_renewed, LONG)

    async def do_unrecorded(self) -> None:
        """For judges: what was granted from memory has no record."""
        promises = self.world.judge.promises
        self.world.judge.promises = replace(promises, are_recorded=False)

    # Counts that zones take from others

    async def do_template(self, count: str) -> None:
        """Create the ReplicaTemplate, or scale it as an autoscaler does."""
        if self.template is None:
            self.template = Template(world=self.world)
            await self.template.create(int(count))
        else:
            await self.template.scale(int(count))

    async def do_mirrored(self, replicas: str, wait: str) -> None:
        """Create three zones that are prepared: one mirrors the template, two follow it."""
        self.pods = await self.world.serve_pods()
        a, *others = (
            ZoneSpec(name=f"live-{letter}", group="live", replicas=int(replicas))
            for letter in "abc"
        )
        zones = [mirror(a), *(follow(one, a.name) for one in others)]
        words = ("prepared", f"wait={wait}")
        self.names = await self.world.create(*(self.change(one, words) for one in zones))

    async def do_published(self) -> str:
        assert self.template is not None
        return str(await self.template.read_status())

    async def do_wants(self, name: str, count: str) -> None:
        await self.world.wait_until(lambda now: _missing_wanted(now, name, int(count)))

    async def do_counts(self, count: str) -> None:
        """Wait until each zone wants so many pods and has them, all ready."""

        def check(now: Snapshot) -> Missing:
            missing = (_missing_count(now, one, int(count)) for one in self.names)
            return next(filter(None, missing), "")

        await self.world.wait_until(check)

    async def do_steps(self) -> str:
        """Return the changes of counts since this was asked before, in their order."""
        found = await self._list_steps()
        new, self.stepped = found[self.stepped :], len(found)
        return " ".join(f"{name} {before}>{now}" for name, before, now, _ in new)

    async def do_gaps(self, least: str, most: str) -> str:
        """Say whether the times between downscales are within these seconds."""
        times = [at for _, before, now, at in await self._list_steps() if now < before]
        found = [after - before for before, after in pairwise(times)]
        is_right = all(int(least) <= gap <= int(most) for gap in found)
        return f"{len(found)} right" if is_right else str(found)

    async def _list_steps(self) -> list[tuple[str, int, int, float]]:
        """Return name, both counts and time of each change of the zones' counts, in their order."""
        await self.world.judge.settle()
        return [
            (now.name, before.replicas, now.replicas, change.at.total_seconds())
            for change in self.world.judge.changes
            for before, now in [(change.before, change.now)]
            if isinstance(before, Set) and isinstance(now, Set)
            if now.name in self.names and now.replicas != before.replicas
        ]

    # The zone tracker

    async def do_tracker(self) -> str:
        """Return what the ConfigMap holds: entries, and what others have written."""
        try:
            found = await self.world.get(CONFIG_MAPS, TRACKER)
        except ApiError:
            return "none"
        data: Json = found.get("data") or {}
        shown = [
            f"{key}={'foreign' if FOREIGN.get(key) == text else 'entry'}"
            for key, text in sorted(data.items())
            if FOREIGN.get(key) == text or ENTRY.fullmatch(text)
        ]
        owner = found["metadata"].get("labels", {}).get("owner", "us")
        return f"{' '.join(shown)} of {owner}"

    async def do_foreign(self) -> None:
        """Let another client write into the ConfigMap, which it may have to create."""
        body: Json = {"metadata": {"labels": {"owner": "others"}}, "data": FOREIGN}
        try:
            await self.world.patch(CONFIG_MAPS, TRACKER, body)
        except ApiError:
            metadata = {"name": TRACKER, **body["metadata"]}
            head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            await self.world.post(CONFIG_MAPS, {**body, **head})

    async def do_permit(self, verb: str) -> None:
        """Let the tracker's Role have a verb that it is not shipped with."""
        rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]}
        step = [{"op": "add", "path": "/rules/-", "value": rule}]
        await self.world.patch(ROLES, f"{ACCOUNT}-zone-tracker", step, kind="json")

    # The judge itself

    async def do_rogue(self, *pods: str) -> None:
        """Delete pods at once under the name of the operator, as it would one by one."""
        async with self.world.plane.api(self.world.token) as operator, asyncio.TaskGroup() as tasks:
            for pod in pods:
                meta: Json = (await self.world.get(PODS, pod))["metadata"]
                wanted = {"uid": meta["uid"], "version": meta["resourceVersion"]}
                tasks.create_task(operator.delete(PODS, self.world.namespace, pod, **wanted))

    async def do_stray(self) -> None:
        """Delete a pod of no zone under the name of the operator, without preconditions."""
        spec = {"containers": [{"name": "a", "image": "b"}]}
        await self.world.post(PODS, {"metadata": {"name": "stray"}, "spec": spec})
        async with self.world.plane.api(self.world.token) as operator:
            await operator.delete(PODS, self.world.namespace, "stray")

    async def do_remove(self, pod: str) -> None:
        """Delete a pod as a person."""
        await self.world.delete(PODS, pod)

    async def do_rolled(self, *names: str) -> None:
        await self.world.wait_rolled(names)

    async def do_restarts(self) -> str:
        """Return how many pods came back that were deleted under the name of the operator."""
        found = await self.world.judge.restarts()
        return str(sum(one.ready is not None and one.deleted < one.ready for one in found))

    async def do_broken(self) -> str:
        """Return the promises that are broken, as the judge says it beside what happened."""
        try:
            await self.world.judge.assert_clean()
        except BrokenPromise as error:
            text = str(error)
        else:
            return "-"
        assert "<- operator" in text
        return " ".join(sorted({*re.findall(r"^(\w+-\d+): ", text, re.MULTILINE)}))

    async def do_misled(self) -> str:
        """Return what is held against downscales."""
        assert self.pods is not None
        found = await self.world.judge.downscale_violations(self.pods.calls)
        return " ".join(one.invariant for one in found) or "-"

    async def do_early(self, pod: str) -> None:
        """Prepare a pod before any request, which no webhook could do."""
        assert self.pods is not None
        url = f"http://{self.pods.address(pod)}:{self.pods.port}/{PATH}"
        async with aiohttp.ClientSession() as session, session.post(url) as answer:
            await answer.read()

    async def do_labelled(self, name: str, key: str, value: str = "") -> None:
        """Set a label of a set, or take it off."""
        await self.world.label(name, **{key: value or None})

    async def do_judged(self) -> None:
        """Have judged what pods were called, too."""
        assert self.pods is not None
        if found := await self.world.judge.downscale_violations(self.pods.calls):
            raise BrokenPromise("\n".join(f"{one.invariant}: {one.text}" for one in found))
        await self.world.judge.assert_clean()


def _missing_count(now: Snapshot, name: str, count: int) -> Missing:
    return _missing_wanted(now, name, count) or missing_ready(now, name)


def _missing_wanted(now: Snapshot, name: str, count: int) -> Missing:
    found = now.sets[name]["spec"]["replicas"] if name in now.sets else "none"
    return "" if found == count else f"{name} wants {found}, not {count}"
