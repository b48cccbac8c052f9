"""Reviews on the real control plane, for stories: certificates, evictions and downscales."""

import re
from collections.abc import Sequence
from typing import Final

import yaml
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec, three_zones

from tests.second_try import BrokenPromise
from tests.system.budgeted import create_budgets, has_record
from tests.system.guarded import (
    LAST_DOWNSCALE,
    NO_DOWNSCALE,
    has_downscale_record,
    is_of_now,
    prepared_zone,
)
from tests.system.hooked import PROBE, fetch_secret, secret_body, shake_hands, trusting
from tests.system.scaled import Template, follow, gaps, mirror, steps, wait_counts, wait_wanted
from tests.system.stage import LONG, PlaneStage
from tests.system.waits import show_columns, wait_true
from tests.world.api import (
    BUDGETS,
    CONFIG_MAPS,
    PODS,
    ROLES,
    SECRETS,
    STATEFULSETS,
    ApiError,
    Json,
    Resource,
)
from tests.world.budgets import ZONE_BUDGETS, DryRun, evict, native_budget, zone_budget
from tests.world.clients import Route, Workload
from tests.world.hooks import BUDGET_HOOKS, Registration
from tests.world.manifests import ACCOUNT, SECRET
from tests.world.webpods import WebPods
from tests.world.world import World

TRACKER: Final = "rollout-operator-zone-tracker"
ENTRY: Final = re.compile(r'\{"lastDownscaled":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"\}')
ALL: Final = (*Registration(port=1).hooks, *BUDGET_HOOKS)
FOREIGN: Final = {"README": "kept", "store": '{"lastDownscaled":"2020-01-01T00:00:00Z"}'}


class ReviewStage(PlaneStage):
    """Has webhooks, and pods that are prepared before they go."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.pods: WebPods | None = None
        self.template: Template | None = None
        self.stepped = 0
        """So many changes of counts have been told."""
        self.has_webhooks = False
        self.held: dict[str, bytes] = {}
        """The Secret as it was when what is served was looked at first."""

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

    async def do_pair(self) -> None:
        """Create a zone that may not be scaled down, and one that follows it."""
        first, second, _ = three_zones(replicas=2)
        kept = replace(first, labels={NO_DOWNSCALE: "true"})
        self.names = await self.world.create(kept, follow(second, first.name))

    async def do_replicas(self, name: str, count: str) -> None:
        await self.world.set_replicas(name, int(count))

    async def do_events(self, kind: str, name: str) -> str:
        """Return the reasons of our Events on an object, as `kubectl describe` requests them."""
        # kubectl requests those of the core group: the same objects.
        selector = f"involvedObject.kind={kind},involvedObject.name={name}"
        where = (Resource("v1", "events"), self.world.namespace)
        found = (await self.world.api.list(*where, query={"fieldSelector": selector}))["items"]
        own = [one for one in found if one["reportingComponent"] == "rollout-operator"]
        return " ".join(
            f"{one['reason']}{f' x{count}' if (count := _count(one)) > 1 else ''}"
            for one in sorted(own, key=lambda one: str(one["eventTime"]))
        )

    async def do_budget(self, name: str) -> None:
        await create_budgets(self.world, [zone_budget(name, {"rollout-group": name})])

    async def do_set(self, name: str, spec: str) -> None:
        """`set mock "maxUnavailable: 0"`: change fields of a budget."""
        await self.world.patch(ZONE_BUDGETS, name, {"spec": yaml.safe_load(f"{{{spec}}}")})

    async def do_invalid(self, spec: str) -> str:
        """Return how the API server answers another budget."""
        body = zone_budget("other", {"app": "other"}, **yaml.safe_load(f"{{{spec}}}"))
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

    async def _read_budget(self, name: str) -> tuple[Json, Json]:
        status: Json = (await self.world.get(ZONE_BUDGETS, name)).get("status", {})
        conditions = status.get("conditions", ())
        return next((one for one in conditions if one["type"] == "Ready"), {}), status

    async def grant_webhooks(self) -> None:
        """Grant what webhooks need, and create the Secret, once."""
        if not self.has_webhooks:
            self.has_webhooks = True
            await self.world.grant_webhooks()

    async def do_grant(self, component: str, *only: str) -> None:
        if component == "webhooks":
            await self.grant_webhooks()
        else:
            await super().do_grant(component, *only)

    async def do_hook(self, what: str) -> None:
        """Have the API server call the operator about evictions or downscales."""
        await self.world.create(PROBE)
        more = {"evictions": {"hooks": BUDGET_HOOKS}, "all": {"hooks": ALL}}.get(what, {})
        port = self.operator().tls_port
        hooks = await self.world.register(Registration(port=port, **more))  # type: ignore[arg-type]
        await hooks.wait_injected()
        await hooks.wait_called(PROBE.name)

    async def do_hooks(self) -> None:
        """Register configurations, whether the operator may write into them or not."""
        self.hooks = await self.world.register(Registration(port=1))

    async def do_injected(self) -> None:
        await self.hooks.wait_injected(LONG)

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

    async def do_scale(self, name: str, count: str, *words: str) -> str:
        """`scale a 2 SCALE_MERGE "words of the answer"`."""
        route = Route[words[0]] if words and words[0] in Route.__members__ else Route.MERGE
        workload = Workload(api=self.world.api, namespace=self.world.namespace, name=name)
        answer = await workload.scale(int(count), route)
        if answer.status == 200:
            await self.world.wait_ready([name])
        parts = [word for word in words if word not in Route.__members__]
        missing = [part for part in parts if part not in answer.message]
        return f"{answer.status}{f', not {missing} in {answer.message}' if missing else ''}"

    async def do_secret(self, change: str) -> None:
        """Delete the operator's Secret, or create it empty."""
        await self.grant_webhooks()
        if change == "empty":
            await self.world.post(SECRETS, secret_body({}))
        else:
            await self.world.delete(SECRETS, SECRET)

    async def do_stamped(self, name: str) -> str:
        """Say whether a set carries the time of a downscale of this minute."""
        annotations = (await self.world.get(STATEFULSETS, name))["metadata"].get("annotations", {})
        return "yes" if is_of_now(annotations.get(LAST_DOWNSCALE, "")) else "no"

    async def do_recorded(self) -> str:
        """Return the pods with a record of an eviction or a downscale."""
        pods: list[Json] = await self.world.api.items(PODS, self.world.namespace)
        found = [one for one in pods if has_record(one) or has_downscale_record(one)]
        living = [one for one in found if "deletionTimestamp" not in one["metadata"]]
        return " ".join(sorted(one["metadata"]["name"] for one in living)) or "-"

    async def do_called(self, pod: str) -> str:
        assert self.pods is not None
        return " ".join(one.method for one in self.pods.calls_to(pod)) or "-"

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
        await wait_wanted(self.world, {name: int(count)})

    async def do_counts(self, count: str) -> None:
        await wait_counts(self.world, dict.fromkeys(self.names, int(count)))

    async def do_steps(self) -> str:
        """Return the changes of counts since this was asked before, in their order."""
        await self.world.judge.settle()
        found = steps(self.world, *self.names)
        new, self.stepped = found[self.stepped :], len(found)
        return " ".join(f"{name} {before}>{now}" for name, before, now in new)

    async def do_gaps(self, least: str, most: str) -> str:
        """Say whether the times between downscales are within these seconds."""
        found = [gap.total_seconds() for gap in gaps(self.world, *self.names)]
        is_right = all(int(least) <= gap <= int(most) for gap in found)
        return f"{len(found)} right" if is_right else str(found)

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

    async def do_judged(self) -> None:
        """Have judged what pods were called, too."""
        assert self.pods is not None
        if found := await self.world.judge.downscale_violations(self.pods.calls):
            raise BrokenPromise("\n".join(f"{one.invariant}: {one.text}" for one in found))
        await self.world.judge.assert_clean()


def _count(event: Json) -> int:
    return int((event.get("series") or {}).get("count", 1))
