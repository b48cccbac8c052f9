"""docs/releases-migrate.md, each command of it run on the real control plane.

Kuberik's controller is played: its objects are as it leaves them at six points of their way, and
at the end it reads and writes all of them as its typed client does, under its own definitions.
"""

import json
import re
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
import yaml

from tests.code_rules import ROOT
from tests.contract.bodies import owner
from tests.demo.kept import write_kubeconfig
from tests.system.pages import DOCS, Terminal
from tests.system.releasing import (
    CHECKS,
    DIGEST,
    GATES,
    ROLLOUTS,
    SCHEDULES,
    create,
    patch_status,
    read_annotations,
    read_status,
    show_condition,
    show_history,
)
from tests.system.waits import wait_true
from tests.world.api import DEPLOYMENTS, NAMESPACES, PATCH_TYPES, ApiError, Json
from tests.world.budgets import CRDS, FOLDER, wait_served
from tests.world.flux import (
    IMAGE_POLICIES,
    IMAGE_REPOSITORIES,
    KUSTOMIZATIONS,
    OCI_REPOSITORIES,
    install_flux,
    render_applied,
    render_fetched,
)
from tests.world.kuberik import SCHEMAS, render_kinds
from tests.world.manifests import read_manifests
from tests.world.operatorproc import OperatorProcess
from tests.world.plane import ControlPlane
from tests.world.world import World

pytestmark = pytest.mark.controlplane

SYSTEM: Final = "kuberik-system"
CONTROLLER: Final = "rollout-controller-controller-manager"
GATE: Final = "schedule-gate-x7k2p"
LEFT: Final = Path(__file__).with_name("left_by_kuberik.yaml")
PREFIX: Final = "rollout.kuberik.com"
# Where its definitions are, as in a checkout of its sources.
BASES: Final = Path("rollout-controller/config/crd/bases")
RESOURCES: Final = {
    "Rollout": ROLLOUTS,
    "RolloutGate": GATES,
    "RolloutSchedule": SCHEDULES,
    "HealthCheck": CHECKS,
}
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def ago(seconds: int) -> str:
    """Return a time as that controller writes it."""
    return f"{datetime.now(UTC) - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


async def install_kuberik(world: World) -> None:
    """Put its definitions in place of what is there, and its Deployment beside them; add Flux."""
    folder = world.folder / BASES
    folder.mkdir(parents=True)
    for crd in render_kinds():
        (folder / f"{crd['metadata']['name']}.yaml").write_text(yaml.safe_dump(crd))
    await put_kinds(world, render_kinds())
    await install_flux(world.api)
    with suppress(ApiError):  # there already
        await world.api.create(
            NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
        )
    await world.api.patch(DEPLOYMENTS, SYSTEM, CONTROLLER, _render_controller(), kind="apply")


async def put_kinds(world: World, crds: Iterable[Json]) -> None:
    """Write definitions in place of those that are there, as `kubectl apply` leaves them."""
    for crd in crds:
        name = crd["metadata"]["name"]
        applied = {_APPLIED: json.dumps(crd)}
        body = {**crd, "metadata": {**crd["metadata"], "annotations": applied}}
        try:
            found = await world.api.get(CRDS, "", name)
        except ApiError:
            await world.api.create(CRDS, "", body)
        else:
            body["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
            await world.api.call("PUT", CRDS.path("", name), body=body)
        await wait_served(world.api, crd)


def _render_controller() -> Json:
    labels = {"control-plane": "controller-manager", "app.kubernetes.io/name": "rollout-controller"}
    container = {"name": "manager", "image": "ghcr.io/kuberik/rollout-controller:v0.8.0"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": CONTROLLER, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


async def leave_namespace(world: World) -> None:
    """Create all that there is of releases, and what Rollouts read and write."""
    images: Json = {"image": "registry.invalid/app"}
    await create(world, IMAGE_REPOSITORIES, "ImageRepository", "images", images)
    text = re.sub(r"\$(\d+)", lambda found: ago(int(found[1])), LEFT.read_text())
    for left in yaml.safe_load(text.replace("NAMESPACE", world.namespace))["objects"]:
        metadata, spec, status = left["metadata"], left.get("spec", {}), left.get("status")
        name, resource = metadata.pop("name"), RESOURCES[left["kind"]]
        if left["kind"] == "Rollout":
            spec = {"releasesImagePolicy": {"name": name}, **spec}
            metadata["labels"] = {"app": name}
            newest = status["availableReleases"][-1]["tag"]
            written = left.get("written", status["history"][0]["version"]["tag"])
            await _leave_targets(world, name, newest, written)
        if "owner" in left:
            made = await world.get(SCHEDULES, left["owner"])
            block = {"controller": True, "blockOwnerDeletion": True}
            metadata["ownerReferences"] = [{**owner(made), **block}]
        await create(world, resource, left["kind"], name, spec, **metadata)
        if status:
            await patch_status(world, resource, name, status)
    await _leave_kustomization(world, "shop", "1.4.0")


async def _leave_targets(world: World, name: str, newest: str, written: str) -> None:
    """Create the image policy of a Rollout, and the OCIRepository that it writes."""
    policy: Json = {"imageRepositoryRef": {"name": "images"}, "policy": {"semver": {"range": "*"}}}
    await create(world, IMAGE_POLICIES, "ImagePolicy", name, policy)
    latest = {"name": "registry.invalid/app", "tag": newest}
    await patch_status(world, IMAGE_POLICIES, name, {"latestRef": latest})
    await create(
        world,
        OCI_REPOSITORIES,
        "OCIRepository",
        name,
        {"interval": "1m", "url": f"oci://registry.invalid/{name}", "ref": {"tag": written}},
        annotations={f"{PREFIX}/rollout": name},
    )
    fetched = render_fetched(f"{written}@{DIGEST}", 1, ago(60))
    await patch_status(world, OCI_REPOSITORIES, name, fetched)


async def _leave_kustomization(world: World, name: str, tag: str) -> None:
    """Create a Kustomization, and apply all of its variables as that controller does."""
    key, variables = f"{PREFIX}/substitute.version.from", {"version": tag, "color": "red"}
    build: Json = {"postBuild": {"substitute": variables}}
    spec = {"interval": "1m", "sourceRef": {"kind": "OCIRepository", "name": name}}
    await create(
        world, KUSTOMIZATIONS, "Kustomization", name, {**spec, **build}, annotations={key: name}
    )
    body = {
        "apiVersion": KUSTOMIZATIONS.api_version,
        "kind": "Kustomization",
        "metadata": {"name": name},
        "spec": build,
    }
    await world.api.call(
        "PATCH",
        KUSTOMIZATIONS.path(world.namespace, name),
        body=body,
        query={"fieldManager": "rollout-controller", "force": "true"},
        content_type=PATCH_TYPES["apply"],
    )
    applied = render_applied(f"{tag}@{DIGEST}", 1, ago(60))
    await patch_status(world, KUSTOMIZATIONS, name, applied)


async def write_as_kuberik(world: World) -> None:
    """Read all objects, keep what that controller knows of them, and write it back.

    As its typed client does: unknown fields go, and times are cut to seconds. Raises ApiError
    where the API server takes one for invalid.
    """
    for kind, resource in RESOURCES.items():
        listed = await _call(world, "GET", resource.path(world.namespace))
        for found in listed["items"]:
            name = found["metadata"]["name"]
            body = {**found, "status": _cut(found.get("status"), SCHEMAS[kind], "status")}
            if body["status"]:
                body = await _call(
                    world, "PUT", resource.path(world.namespace, name, "status"), body
                )
            body["spec"] = _cut(found["spec"], SCHEMAS[kind], "spec")
            await _call(world, "PUT", resource.path(world.namespace, name), body)


async def _call(world: World, method: str, path: str, body: Json | None = None) -> Json:
    """Send a request, again where the API server still takes a new definition up, as clients do."""
    answer: Json = {}

    async def is_answered() -> bool:
        nonlocal answer
        try:
            answer = await world.api.call(method, path, body=body)
        except ApiError as error:
            if error.status != 429:
                raise
            return False
        return True

    await wait_true(path, is_answered)
    return answer


def _cut(value: Any, schema: Json, field: str = "") -> Any:
    """Return a value as a client reads and writes it that knows only the fields of a schema."""
    if field:
        schema = schema["properties"][field]
    if isinstance(value, dict) and "properties" in schema:
        return {
            key: _cut(each, schema["properties"][key])
            for key, each in value.items()
            if key in schema["properties"]
        }
    if isinstance(value, list):
        return [_cut(each, schema["items"]) for each in value]
    if schema.get("format") == "date-time":
        return f"{datetime.fromisoformat(value):%Y-%m-%dT%H:%M:%SZ}"
    return value


PAGE: Final = DOCS / "releases-migrate.md"
NAME: Final = "rollout-operator"
NO_REGISTRY: Final = "-releases.metadata=none"
# What was not written: the tag was there, or the Rollout stays with its version.
UNTOUCHED: Final = ("shop", "till", "mail", "cart", "fax")
AT_HOME: Final = {
    "shop": "1.4.0 Succeeded, 1.3.0 Succeeded",
    "till": "2.1.0 Succeeded",
    "mail": "3.0.0 Failed",
    "search": "5.2.0 Succeeded, 5.1.0 Succeeded",
    "cart": "1.1.0 Succeeded, 1.0.0 Succeeded",
    "desk": "1.0.0 Succeeded",
    "fax": "0.9.0 Succeeded",
}


@dataclass(slots=True)
class Move:
    """The namespace on its way, and what was there before."""

    world: World
    generations: dict[str, int] = field(default_factory=dict)
    histories: dict[str, list[Json]] = field(default_factory=dict)
    operator: OperatorProcess | None = None

    async def begin(self) -> None:
        """Start an operator as its Deployment says, once kuberik's controller is stopped."""
        assert (await self.world.api.get(DEPLOYMENTS, SYSTEM, CONTROLLER))["spec"]["replicas"] == 0
        self.generations, self.histories = await self._read_generations(), {}
        for name in AT_HOME:
            self.histories[name] = (await read_status(self.world, name))["history"]
        await self._start()
        assert "-releases.compat=kuberik" in await self._read_flags()

    async def assert_owned(self) -> None:
        """Raise AssertionError unless each writer of variables owns its own."""
        found = await self.world.get(KUSTOMIZATIONS, "shop")
        owned = {
            one["manager"]: {*one["fieldsV1"]["f:spec"]["f:postBuild"]["f:substitute"]}
            for one in found["metadata"]["managedFields"]
            if one["operation"] == "Apply"
        }
        color, version = "f:color", "f:version"
        assert owned == {"rollout-controller": {color}, "rollout-controller/shop": {version}}

    async def begin_anew(self) -> None:
        """Replace the operator by one without the switch."""
        await self.end()
        assert await self._read_flags() == ["-releases.enabled=true"]
        await self.assert_owned()
        await self._start()

    async def end(self) -> None:
        assert self.operator is not None
        assert await self.operator.terminate() == 0

    async def _start(self) -> None:
        self.operator = await self.world.operator(*await self._read_flags(), NO_REGISTRY)

    async def _read_flags(self) -> list[str]:
        deployment = await self.world.get(DEPLOYMENTS, NAME)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        return [one for one in container["args"] if "POD_NAMESPACE" not in one]

    async def _read_generations(self) -> dict[str, int]:
        found = await self.world.api.items(OCI_REPOSITORIES, self.world.namespace)
        return {one["metadata"]["name"]: one["metadata"]["generation"] for one in found}

    async def assert_once(self) -> None:
        """Raise AssertionError where a version was deployed twice, or a request is lost."""
        statuses = {name: await read_status(self.world, name) for name in AT_HOME}
        assert {name: show_history(one) for name, one in statuses.items()} == AT_HOME
        for name, before in self.histories.items():
            history = statuses[name]["history"]
            assert [one["id"] for one in history[-len(before) :]] == [one["id"] for one in before]
            assert _times(history[-len(before) :]) == _times(before)
        writes = await self._read_generations()
        assert {name: writes[name] for name in UNTOUCHED} == {
            name: self.generations[name] for name in UNTOUCHED
        }
        # This tag was requested; the other had a tag that a closed gate holds.
        for name, tag in (("search", "5.2.0"), ("desk", "1.0.0")):
            assert writes[name] == self.generations[name] + 1
            source = await self.world.get(OCI_REPOSITORIES, name)
            assert source["spec"]["ref"] == {"tag": tag}
        first = statuses["search"]["history"][0]
        assert first["triggeredBy"] == {"kind": "User", "name": "amy"}
        assert first["message"] == "past the gate"
        for name in ("search", "fax"):
            assert await read_annotations(self.world, name) == {}
        await self._assert_taken_over()

    async def _assert_taken_over(self) -> None:
        """Gates keep their names, and a check that was healthy before stays so."""
        assert await self._list_gates() == ["approve-desk", "approve-search", GATE]
        gate = await self.world.get(GATES, GATE)
        assert gate["spec"]["passing"] is True
        assert gate["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "rollout-schedule"
        check = (await self.world.get(CHECKS, "till"))["status"]
        assert (check["status"], check["message"]) == ("Healthy", "2xx")

    async def announce(self) -> None:
        latest = {"name": "registry.invalid/app", "tag": "1.5.0"}
        await patch_status(self.world, IMAGE_POLICIES, "shop", {"latestRef": latest})

    async def return_to_kuberik(self) -> None:
        """Have kuberik's controller read and write all; nothing is refused, and nothing is lost."""

        await wait_true("fields dropped", self._is_pruned)
        before = {name: await read_status(self.world, name) for name in AT_HOME}
        await write_as_kuberik(self.world)
        for name, status in before.items():
            after = await read_status(self.world, name)
            assert show_history(after) == show_history(status)
            assert (
                {*after} == {*status} <= {*SCHEMAS["Rollout"]["properties"]["status"]["properties"]}
            )
            assert after["conditions"] == status["conditions"]
        assert show_history(before["shop"]).startswith("1.5.0 Succeeded, 1.4.0")
        assert show_condition(before["mail"], "Stalled").startswith("True")
        assert await self._list_gates() == ["approve-desk", "approve-search", GATE]

    async def _is_pruned(self) -> bool:
        """Return whether the API server reads all kinds by kuberik's definitions by now."""
        try:
            statuses = [
                one["status"]
                for resource in RESOURCES.values()
                for one in await self.world.api.items(resource, self.world.namespace)
                if one.get("status")
            ]
        except ApiError as error:
            if error.status != 429:
                raise
            return False
        return not any("observedGeneration" in status for status in statuses)

    async def _list_gates(self) -> list[str]:
        found = await self.world.api.items(GATES, self.world.namespace)
        return sorted(one["metadata"]["name"] for one in found)


def _times(history: list[Json]) -> list[datetime]:
    return [datetime.fromisoformat(one["timestamp"]) for one in history]


@pytest_asyncio.fixture(name="move")
async def open_move(plane: ControlPlane, world: World, tmp_path: Path) -> AsyncIterator[Move]:
    """Yield a namespace under kuberik's controller; its definitions go after."""
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    try:
        await install_kuberik(world)
        await leave_namespace(world)
        yield Move(world)
    finally:
        await put_kinds(world, read_manifests(FOLDER / "releases"))


@pytest.mark.slow
async def test_every_command_of_the_move_and_of_the_way_back(move: Move) -> None:
    """REL-120, REL-15, RELB-10, RELB-15: no version is deployed twice, and no request is lost."""
    world = move.world
    terminal = Terminal(
        kubeconfig=write_kubeconfig(world),
        folder=world.folder,
        words={"NAMESPACE": world.namespace},
        happenings={
            "the operator starts": move.begin,
            "nothing was deployed twice and no request is lost": move.assert_once,
            "shop 1.5.0 is announced": move.announce,
            "the operator starts anew": move.begin_anew,
            "the operator ends": move.end,
            "kuberik's controller writes all objects as it reads them": move.return_to_kuberik,
        },
    )
    await terminal.follow(PAGE)
