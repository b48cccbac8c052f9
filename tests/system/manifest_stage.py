"""The shipped manifests in a namespace, for stories: which requests they bring to the operator."""

from typing import Any, Final

import yaml

from tests.gates.trees import health_check_tree
from tests.kustomize import render
from tests.model.cases import bend
from tests.rendered import MANIFESTS
from tests.system.installing import CONFIGURATIONS, installed, trust
from tests.system.review_stage import KINDS, ReviewStage
from tests.system.waits import wait_true
from tests.world.api import (
    DEPLOYMENTS,
    PATCH_TYPES,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    Answer,
    Json,
    Resource,
)
from tests.world.budgets import FOLDER, ZONE_BUDGETS, DryRun, evict, install_kinds, zone_budget
from tests.world.clients import EVERY_ROUTE, OF_ANY_COUNT, UNANSWERED, Route, workload_body
from tests.world.hooks import BUDGET_HOOKS, Hooks, Registration, Reviewer, Seen
from tests.world.pki import make_pki
from tests.world.world import World

SERVICE: Final = "rollout-operator"
ALL: Final = ("no-downscale", "prepare-downscale", *BUDGET_HOOKS)
HEALTH_CHECKS: Final = Resource("rollout-operator.grafana.com/v1", "rollouthealthchecks")
RESOURCES: Final = {**KINDS, "pods": PODS, "zpdb": ZONE_BUDGETS, "rhc": HEALTH_CHECKS}


class ManifestStage(ReviewStage):
    """Tells after each command which reviews there were, where they come to us."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.reviewer: Reviewer | None = None
        # The shipped configurations are called like those of tests.
        self.shipped = Hooks(world.api, world.namespace, Registration(port=1, hooks=ALL))
        self.objects: list[Json] = []

    def look(self) -> list[str]:
        seen = self._take()
        return [f"reviewed {seen}"] if seen else []

    def _take(self) -> str:
        if self.reviewer is None:
            return ""
        # Once each: where its own cache is late, the API server has a write reviewed again.
        told = sorted({_tell(one) for one in self.reviewer.seen})
        self.reviewer.seen.clear()
        return ", ".join(told)

    # What is there

    async def do_reviewer(self) -> None:
        """Take the operator's place: everything is allowed."""
        pki = make_pki(self.world.folder, more_names=[f"{SERVICE}.{self.world.namespace}.svc"])
        self.file_ca = pki.ca.read_bytes()
        self.reviewer = await self.running.enter_async_context(Reviewer(pki))

    async def do_shipped(self, *components: str) -> None:
        """Apply the base with components; webhooks lead to the reviewer, or nowhere."""
        port = self.reviewer.port if self.reviewer else 1
        await install_kinds(self.world.api)
        if "health-checks" in components:
            await install_kinds(self.world.api, FOLDER / "health-checks")
        installing = installed(self.world, self.world.folder / "shipped", *components, port=port)
        self.objects = await self.running.enter_async_context(installing)
        if self.reviewer:
            await trust(self.world, self.objects, self.file_ca)

    async def do_deployed(self) -> None:
        """Start the operator as its Deployment says; let the webhooks lead to it."""
        (deployment,) = (one for one in self.objects if one["kind"] == "Deployment")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        words = [word for word in container["args"] if "kubernetes.namespace" not in word]
        here = [word.replace("$(POD_NAMESPACE)", self.world.namespace) for word in words]
        await self.do_operator("shipped", *here)
        step = {"op": "replace", "path": "/webhooks/0/clientConfig/service/port"}
        for one in self.objects:
            if one["kind"] in CONFIGURATIONS:
                patch = [{**step, "value": self.operator().tls_port}]
                where = (CONFIGURATIONS[one["kind"]], "", one["metadata"]["name"])
                await self.world.api.patch(*where, patch, kind="json")
        await self.shipped.wait_injected()

    async def do_works(self, name: str) -> None:
        """Wait until the API server calls all webhooks; the set serves for proof."""
        await self.shipped.wait_called(name)
        self._take()

    async def do_dead(self, *names: str) -> None:
        """Wait until the API server calls each configuration, and no answer comes.

        It takes them up one by one. Of the two about downscales the mutating one is called first,
        and alone it is not called for Deployments.
        """
        workloads = [self.find(name) for name in names]

        async def are_dead() -> bool:
            answers = [await one.scale(0, Route.MERGE, is_dry_run=True) for one in workloads]
            first = f"{names[0]}-0"
            answers.append(await evict(*self._here, first, dry_run=DryRun.QUERY))
            answers.append(
                await self._send("POST", "zpdb/", zone_budget("new", {"a": "b"}), dry=True)
            )
            is_mutating_called = "prepare-downscale" in answers[0].message
            return is_mutating_called and all(UNANSWERED in one.message for one in answers)

        await wait_true("dead", are_dead)

    async def do_from(self, name: str, first: str) -> None:
        """Let a set begin with another ordinal."""
        await self.world.patch(STATEFULSETS, name, {"spec": {"ordinals": {"start": int(first)}}})
        await self.world.wait_ready([name])

    async def do_pod(self, *names: str) -> None:
        for name in names:
            spec = {"containers": [{"name": SERVICE, "image": "v1"}]}
            await self.world.post(PODS, {"metadata": {"name": name}, "spec": spec})

    async def do_replicaset(self, name: str, owner: str = "") -> None:
        body = workload_body(REPLICASETS, name, 2)
        if owner:
            body["metadata"]["ownerReferences"] = [await self._owner(owner)]
        await self.world.post(REPLICASETS, body)

    async def do_replace(self) -> str:
        """Delete the operator's Deployment, and create it again."""
        (manifest,) = (one for one in render(MANIFESTS / "base") if one["kind"] == "Deployment")
        gone = await self._send("DELETE", f"deployments/{SERVICE}")
        return f"{_show(gone)} {_show(await self._send('POST', 'deployments/', manifest))}"

    # Requests

    async def do_put(self, what: str, fields: str) -> str:
        """`put zpdb/old "spec: {maxUnavailable: 2}"`: patch an object."""
        return _show(await self._send("PATCH", what, yaml.safe_load(f"{{{fields}}}")))

    async def do_make(self, name: str) -> str:
        """Create a budget."""
        return _show(await self._send("POST", "zpdb/", zone_budget(name, {"rollout-group": name})))

    async def do_health(self, changes: str = "") -> str:
        """Create a health check with changes, as a dry run."""
        tree = bend(health_check_tree(), changes)
        body = {**tree, "metadata": {"name": "new"}}
        answer = await self._send("POST", "rhc/", body, dry=True)
        return " ".join([f"{answer.status}", *answer.message.split(" denied the request: ")[1:]])

    async def do_drop(self, what: str) -> str:
        return _show(await self._send("DELETE", what))

    async def do_adopt(self, name: str, owner: str) -> str:
        """Let a ReplicaSet be of a Deployment, and scale it to nothing by the same request."""
        metadata = {"ownerReferences": [await self._owner(owner)]}
        body = {"metadata": metadata, "spec": {"replicas": 0}}
        return _show(await self._send("PATCH", f"replicasets/{name}", body))

    async def do_each(self, what: str, *counts: str) -> str:
        """Scale by each route that leads to the count; `dry` for dry runs."""
        found = {
            _show(await self.find(what).scale(int(count), route, is_dry_run="dry" in counts))
            for count in counts
            if count != "dry"
            for route in OF_ANY_COUNT
            if route is not Route.UNLABEL
        }
        return ", ".join(sorted(found))

    async def do_routes(self, name: str, count: str) -> str:
        """Scale by each route in dry runs; say which reviews there were.

        A stale request is turned away before validating webhooks are called.
        """
        found = set()
        for route in EVERY_ROUTE:
            await self.find(name).scale(int(count), route, is_dry_run=True)
            seen = self._take()
            if not (route.is_stale and "no-downscale" not in seen):
                found.add(seen or "none")
        return " or ".join(sorted(found))

    async def do_ordinals(self, name: str, first: str, replicas: str) -> str:
        """Set first ordinal and count in a dry run."""
        spec = {"ordinals": {"start": int(first)}, "replicas": int(replicas)}
        return _show(await self._send("PATCH", f"statefulsets/{name}", {"spec": spec}, dry=True))

    @property
    def _here(self) -> tuple[Any, str]:
        return self.world.api, self.world.namespace

    async def _owner(self, deployment: str) -> Json:
        uid = (await self.world.get(DEPLOYMENTS, deployment))["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment, "uid": uid}
        return {**owner, "controller": True}

    async def _send(self, method: str, what: str, body: Any = None, *, dry: bool = False) -> Answer:
        plural, _, name = what.partition("/")
        resource: Resource = RESOURCES[plural]
        return await self.world.api.exchange(
            method,
            resource.path(self.world.namespace, name),
            body=body,
            query={"dryRun": "All"} if dry else None,
            content_type=PATCH_TYPES["merge"] if method == "PATCH" else "application/json",
        )


def _show(answer: Answer) -> str:
    return f"{answer.status}{' unanswered' if UNANSWERED in answer.message else ''}"


def _tell(seen: Seen) -> str:
    hook, request = seen.path.rpartition("/")[2], seen.request
    if hook in BUDGET_HOOKS:
        return f"{hook} {request['operation']} {request['name']}"
    before, after = seen.replicas
    return f"{hook} {before}>{after}"
