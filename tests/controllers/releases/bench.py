"""The controller of Rollouts on an API server of a few dictionaries, with caches that may lag."""

import copy
import json
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from rollout_lab.schemas.patches import merge

from rollout_operator.controllers.worker import Attempts, Result
from rollout_operator.kube import api as kinds
from rollout_operator.kube.api import NAMESPACES, JsonObject, Resource
from rollout_operator.kube.informer import Informer
from rollout_operator.kube.kinds import FollowedKind, KindSource
from rollout_operator.kube.store import WatchedStore
from rollout_operator.model.budget import EventRecord
from rollout_operator.model.names import ApiError, UnknownOutcome
from rollout_operator.model.objects import AnyWatched
from rollout_operator.releases.controller import (
    FluxObjects,
    ReleaseController,
    ReleaseObserver,
    ReleaseReports,
)
from rollout_operator.releases.metrics import ReleaseCounters
from rollout_operator.releases.model.decode_flux import DECODERS
from rollout_operator.releases.model.releases import OURS
from rollout_operator.releases.schedules import FollowedSchedules, ScheduleReader
from rollout_operator.releases.sources import ReleaseCaches, WideChecks, list_tags
from rollout_operator.telemetry.metrics import Metrics
from tests.controllers.fake_client import FakeClient, Json
from tests.virtual_time import EPOCH, VirtualClock, elapsed

NAMESPACE = "prod"


class Died(Exception):
    """The process ended at a call."""


class FakeReleaseApi(FakeClient):
    """Objects as JSON, by plural and name; errors are scripted by `verb plural`."""

    def __init__(self) -> None:
        super().__init__((), ())
        self.before = self._fail
        self.dies_before: int | None = None
        """After so many calls more the process dies, and the next one is not sent."""
        self.dies_after: int | None = None
        """The call is carried out, and nothing learns of it."""
        self.errors: dict[str, deque[ApiError]] = {}
        self.applied: list[str] = []
        """Tags that OCIRepositories were given."""
        self.deployed: set[tuple[int, str, str]] = set()
        """Number, tag and time of each entry that any history ever had."""
        self._version = 100
        self._lost: UnknownOutcome | None = None

    def add(self, resource: Resource, name: str, spec: Json, **more: Any) -> Json:
        """Store an object; `metadata` and `status` by name."""
        self._version += 1
        head = {"namespace": NAMESPACE, "name": name, "uid": f"uid-{name}", "generation": 1}
        metadata = {**head, **more.pop("metadata", {}), "resourceVersion": f"{self._version}"}
        version = f"{resource.group}/{resource.version}"
        body = {"apiVersion": version, "metadata": metadata, "spec": spec, **more}
        self.objects[resource.plural, name] = body
        return body

    async def apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: JsonObject,
        *,
        manager: str,
        is_forced: bool = False,
        is_trial: bool = False,
    ) -> bytes:
        if is_trial:
            await self._record(f"try {resource.plural}/{name}")
            if self._lost is not None:
                raise self._lost
            return b""
        await self._record(f"apply {resource.plural}/{name}")
        self.applied.append(body["spec"]["ref"]["tag"])  # type: ignore[index]
        merged = merge(self._held(resource, name), body)
        return self._write(resource, name, copy.deepcopy(dict(merged)))

    def _fail(self, call: str) -> None:
        """Fail as it is scripted; with an answer that is lost the call is carried out."""
        if self.dies_before is not None:
            self.dies_before -= 1
            if self.dies_before < 0:
                self.dies_before = None
                raise Died
        scripted = self.errors.get(call.rpartition("/")[0])
        error = scripted.popleft() if scripted else None
        # One that is `late` is not carried out before the story ends.
        self._lost = None
        if isinstance(error, UnknownOutcome) and str(error) != "late":
            self._lost = error
        if error is not None and self._lost is None:
            raise error

    def _write(self, resource: Resource, name: str, one: Json) -> bytes:
        self._version += 1
        one["metadata"]["resourceVersion"] = f"{self._version - 1}"
        answer = super()._write(resource, name, one)
        for entry in one.get("status", {}).get("history", ()):
            self.deployed.add((entry["id"], entry["version"]["tag"], entry["timestamp"]))
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after < 0:
                self.dies_after = None
                raise Died
        if self._lost is not None:
            raise self._lost
        return answer


class FakeKind(FollowedKind):
    """A kind whose cache is filled by the test."""

    def __init__(self, resources: Sequence[Resource], api: FakeReleaseApi) -> None:
        source = KindSource(
            resources=resources, namespace=NAMESPACE, client=api, make_informer=_make_none
        )
        super().__init__(source, WatchedStore(list_tags))
        self.first = resources[0]
        self.is_there = True
        self.may_be_read = True
        self.proved_ago = timedelta(0)

    @property
    def resource(self) -> Resource | None:
        return self.first if self.is_there else None

    @property
    def is_absent(self) -> bool:
        return not self.is_there

    @property
    def is_forbidden(self) -> bool:
        return not self.may_be_read

    @property
    def is_awaited(self) -> bool:
        return False

    @property
    def lack(self) -> str | None:
        return None if self.may_be_read else f"{self.kind}: forbidden"

    @property
    def age(self) -> timedelta:
        return self.proved_ago


def _make_none(resource: Resource) -> Informer[AnyWatched]:
    raise AssertionError("nothing is followed")


class ReleaseBench:
    """One Rollout `app`, what it depends on, and the controller."""

    def __init__(self, **spec: Any) -> None:
        self.api = api = FakeReleaseApi()
        self.events: list[EventRecord] = []
        self.caches = caches = ReleaseCaches(
            rollouts=FakeKind([kinds.ROLLOUTS], api),
            gates=FakeKind([kinds.ROLLOUT_GATES], api),
            checks=FakeKind([kinds.HEALTH_CHECKS], api),
            policies=FakeKind(kinds.IMAGE_POLICIES, api),
            image_repositories=FakeKind(kinds.IMAGE_REPOSITORIES, api),
            oci_repositories=FakeKind(kinds.OCI_REPOSITORIES, api),
            kustomizations=FakeKind(kinds.KUSTOMIZATIONS, api),
            schedules=FakeKind([kinds.ROLLOUT_SCHEDULES], api),
        )
        self._how: dict[str, Any] = {
            "look_ups": None,
            "verifies_wanted": False,
            "keeps_to_namespace": False,
        }
        self.wide_checks = FakeKind([kinds.HEALTH_CHECKS], api)
        self.namespaces = FakeKind([NAMESPACES], api)
        self.wide = WideChecks(self.wide_checks, self.namespaces)
        self.controller = self._build(caches)
        self._create(spec)

    def _build(self, caches: ReleaseCaches) -> ReleaseController:
        api, clock = self.api, VirtualClock()
        self.flux = flux = FluxObjects(
            api, NAMESPACE, caches.oci_repositories, caches.kustomizations
        )
        observer = ReleaseObserver(
            namespace=NAMESPACE,
            caches=caches,
            flux=flux,
            **self._how,
            reader=api,
            wide=self.wide,
            schedules=FollowedSchedules(
                own=caches.schedules, wide=None, reader=ScheduleReader(OURS)
            ),
            now=now,
            compat=OURS,
        )
        counters = ReleaseCounters(Metrics().registry, NAMESPACE, ())
        return ReleaseController(
            client=api,
            resource=kinds.ROLLOUTS,
            namespace=NAMESPACE,
            get_cached=caches.rollouts.store.get,
            find_lack=observer.find_lack,
            observer=observer,
            flux=flux,
            attempts=Attempts(clock, longest=timedelta(seconds=5)),
            reports=ReleaseReports(self.events.append, counters),
        )

    def restart(self, **how: Any) -> None:
        """Begin anew with nothing that was remembered, and observe in this way from now on."""
        self._how |= how
        self.controller = self._build(self.caches)

    def kind(self, name: str) -> FakeKind:
        """Return the cache of a kind, by its name among the caches."""
        found = getattr(self.caches, name)
        assert isinstance(found, FakeKind)
        return found

    def _create(self, spec: Json) -> None:
        """Create a Rollout, its policy, and an OCIRepository for it; the caches know them."""
        self.api.add(kinds.ROLLOUTS, "app", {"releasesImagePolicy": {"name": "app"}, **spec})
        self.announce("1.0.0")
        metadata = {"annotations": {"rollout.kuberik.com/rollout": "app"}}
        tag = {"ref": {"tag": "none"}}
        self.api.add(kinds.OCI_REPOSITORIES[0], "app", tag, metadata=metadata)
        self.show()

    def announce(self, tag: str) -> None:
        """Have the policy select a tag."""
        spec = {"imageRepositoryRef": {"name": "app"}, "policy": {"semver": {}}}
        status = {"latestRef": {"name": "registry/app", "tag": tag}}
        self.api.add(kinds.IMAGE_POLICIES[0], "app", spec, status=status)
        self.show("imagepolicies")

    def show(self, *plurals: str) -> None:
        """Let the caches catch up, of these kinds or of all."""
        for one in self.caches.list_kinds():
            assert isinstance(one, FakeKind)
            plural = one.first.plural
            if not plurals or plural in plurals:
                decode = DECODERS[one.first.kind]
                found = [
                    decode(json.dumps(body).encode())
                    for (kind, _), body in self.api.objects.items()
                    if kind == plural
                ]
                one.store.replace_all(found)

    def put_elsewhere(self, namespace: str, status: str, **labels: str) -> None:
        """Have a HealthCheck and its namespace, with these labels, known in another namespace."""
        head = {"uid": f"uid-{namespace}", "resourceVersion": "1", "name": namespace}
        space = {"metadata": {**head, "labels": labels}}
        check = {"metadata": {**head, "namespace": namespace}, "status": {"status": status}}
        for kind, decode, body in (
            (self.namespaces, DECODERS["Namespace"], space),
            (self.wide_checks, DECODERS["HealthCheck"], check),
        ):
            kind.store.upsert(decode(json.dumps(body).encode()))

    async def step(self, name: str = "app") -> Result:
        """Reconcile once, with caches that lag."""
        return await self.controller.reconcile(name)

    async def rest(self) -> list[str]:
        """Reconcile with fresh caches until nothing is written; return the calls of it."""
        before = len(self.api.calls)
        while True:
            count = len(self.api.calls)
            self.show()
            await self.step()
            if len(self.api.calls) == count:
                return self.api.calls[before:]

    @property
    def status(self) -> Json:
        """Return the status of the Rollout as the store has it."""
        found: Json = self.api.objects["rollouts", "app"].get("status", {})
        return found

    @property
    def tag(self) -> str:
        """Return the tag of the OCIRepository as the store has it."""
        tag: str = self.api.objects["ocirepositories", "app"]["spec"]["ref"]["tag"]
        return tag

    def history(self) -> str:
        """Return the tags that were deployed, the newest first."""
        return " ".join(one["version"]["tag"] for one in self.status.get("history", ()))

    def condition(self, kind: str = "Ready") -> str:
        """Return status, reason and message of a condition."""
        found = next(one for one in self.status["conditions"] if one["type"] == kind)
        return f"{found['status']} {found['reason']}: {found['message']}"


def now() -> datetime:
    """Return the time of the loop, as the API server's."""
    return EPOCH + elapsed()
