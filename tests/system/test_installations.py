"""Each documented way to install, applied by kubectl to a namespace in which pods run already.

Those pods meet no Pod Security level but the one that allows all. A way is right if one of them
that is deleted comes back.
"""

import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import yaml
from rollout_lab.zones import ZoneSpec

from tests.kustomize import Object, render
from tests.pages import example_of
from tests.rendered import (
    CERTIFICATES,
    DEPLOYMENTS,
    LEAST,
    MANIFESTS,
    MIRRORING,
    NETWORK,
    NETWORK_PARAMETERS,
    PRIORITY,
    REPLICAS,
    SCALING,
    TRACKER,
    WEBHOOKS,
    write_kustomization,
)
from tests.system.starts import run_command
from tests.world.api import DEPLOYMENTS as DEPLOYMENTS_API
from tests.world.api import NAMESPACES, PODS, ApiError
from tests.world.kubectl import KUBECTL
from tests.world.manifests import KINDS, remove_cluster_scoped
from tests.world.plane import ADMIN
from tests.world.world import World

pytestmark = pytest.mark.controlplane

PAGE: Final = "install.md"
SHIPPED: Final = "rollouts"
OPERATOR: Final = "rollout-operator"
OVERLAYS: Final = sorted(
    path.parent.name for path in MANIFESTS.glob("overlays/*/kustomization.yaml")
)
MIXED: Final = (TRACKER, REPLICAS, WEBHOOKS, SCALING, LEAST, MIRRORING, PRIORITY)
HARDENED: Final = (WEBHOOKS, LEAST, DEPLOYMENTS, CERTIFICATES, NETWORK)
# The other order of each: only what is listed after `webhooks` has to stay behind it.
ORDERS: Final = {
    "mixed": MIXED,
    "mixed, the other way round": (
        PRIORITY,
        MIRRORING,
        SCALING,
        WEBHOOKS,
        LEAST,
        REPLICAS,
        TRACKER,
    ),
    "hardened": HARDENED,
    "hardened, the other way round": (NETWORK, WEBHOOKS, CERTIFICATES, DEPLOYMENTS, LEAST),
}


@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_d78_an_overlay_leaves_pods_alone(world: World, tmp_path: Path, overlay: str) -> None:
    """D-78, DEP-84: copied, with its one line `namespace:` changed."""
    copy = shutil.copytree(MANIFESTS, tmp_path / "manifests")
    for path in copy.glob("overlays/*/kustomization.yaml"):
        text = path.read_text()
        path.write_text(text.replace(f"namespace: {SHIPPED}", f"namespace: {world.namespace}"))
    folder = copy / "overlays" / overlay

    async with in_use(world, render(folder)):
        apply(world, "-k", str(folder))


async def test_d78_one_file_leaves_pods_alone(world: World, tmp_path: Path) -> None:
    """D-78: as the page has it, by `sed`."""
    rendered = run_command(kubectl(), "kustomize", str(MANIFESTS / "overlays" / "install")).out
    file = tmp_path / "install.yaml"
    moved = rendered.replace(SHIPPED, world.namespace)
    file.write_text(moved.replace(f"multiaz{world.namespace}", "multiazrollouts"))

    async with in_use(world, list(yaml.safe_load_all(file.read_text()))):
        apply(world, "-f", str(file))


@pytest.mark.parametrize(
    "components",
    [
        pytest.param(order, id=name, marks=[pytest.mark.prove] if "other way" in name else [])
        for name, order in ORDERS.items()
    ],
)
async def test_d78_components_leave_pods_alone(
    world: World, tmp_path: Path, components: tuple[str, ...]
) -> None:
    """D-78, DEP-84: in two orders, below a namespace that is set one level below."""
    more = [NETWORK_PARAMETERS] if NETWORK in components else []
    at = tmp_path / "it"
    write_kustomization(at, *components, namespace=world.namespace, more=more)

    async with in_use(world, render(at)):
        apply(world, "-k", str(at))


async def test_d78_the_page_shows_what_works(world: World, tmp_path: Path) -> None:
    """D-78: the two kustomizations of docs/install.md, as they stand there."""
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    inner, outer = (example_of(PAGE, word) for word in ("namespace: mimir", "- ../manifests/crds"))
    (tmp_path / "mimir" / "operator").mkdir(parents=True)
    at = tmp_path / "mimir"
    (at / "operator" / "kustomization.yaml").write_text(inner.replace("mimir", world.namespace))
    (at / "kustomization.yaml").write_text(outer)

    async with in_use(world, render(at)):
        apply(world, "-k", str(at))
        deployment = await world.get(DEPLOYMENTS_API, OPERATOR)

    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example.org/rollout-operator:0.1.0"


@pytest.mark.parametrize(
    "components",
    [
        pytest.param(MIXED, id="mixed", marks=pytest.mark.prove),
        pytest.param(HARDENED, id="hardened"),
    ],
)
async def test_dep85_the_removal_of_the_page_leaves_nothing(
    world: World, tmp_path: Path, components: tuple[str, ...]
) -> None:
    """DEP-85: each line of docs/webhooks.md, in its order; the kinds stay."""
    more = [NETWORK_PARAMETERS] if NETWORK in components else []
    write_kustomization(tmp_path / "it", *components, namespace=world.namespace, more=more)
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(render(tmp_path / "it")))
    apply(world, "-f", str(file))
    config = world.folder / "admin.conf"
    page = example_of("webhooks.md", "rollout-operator admin uninstall-webhooks --namespace")
    path = os.pathsep.join(
        (str(Path(sys.executable).parent), str(KUBECTL.locate().parent), os.environ["PATH"])
    )
    given = {"KUBECONFIG": str(config), "PATH": path}

    removed = run_command("bash", "-ec", page.replace("NAMESPACE", world.namespace), env=given)
    found = run_command("kubectl", "get", "--ignore-not-found", "-f", str(file), env=given)

    assert (removed.code, found.code) == (0, 0), (removed.err, found.err)
    assert found.out == ""


async def test_a_level_of_the_namespace_would_keep_pods_away(world: World) -> None:
    """D-78: what the tests above would see, were a level enforced by what they apply."""
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    await world.api.patch(NAMESPACES, "", world.namespace, {"metadata": {"labels": enforce}})
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}}

    with pytest.raises(ApiError, match="violates PodSecurity"):
        await world.post(PODS, {**body, "spec": {"containers": [{"name": "app", "image": "v1"}]}})


@asynccontextmanager
async def in_use(world: World, objects: list[Object]) -> AsyncIterator[None]:
    """Let a pod run before what is applied inside, and delete it after: another one comes."""
    await world.create(ZoneSpec(name="used", group=None, replicas=1))
    before = await world.get(PODS, "used-0")
    labels = (await world.api.get(NAMESPACES, "", world.namespace))["metadata"]["labels"]
    try:
        yield
        await world.get(DEPLOYMENTS_API, OPERATOR)
        await world.delete(PODS, "used-0")
        await world.wait_pod("used-0", "another one", lambda pod: uid(pod) != uid(before))
        await world.wait_ready(["used"])
    finally:
        own = [one for one in objects if one["kind"] in KINDS]
        await remove_cluster_scoped(world.api, own)
    assert (await world.api.get(NAMESPACES, "", world.namespace))["metadata"]["labels"] == labels


def uid(pod: Object) -> object:
    return pod["metadata"]["uid"]


def apply(world: World, *words: str) -> None:
    """Run `kubectl apply` as a cluster administrator whose context names another namespace."""
    config = world.plane.kubeconfig(world.folder / "admin.conf", world.plane.tokens[ADMIN])
    ended = run_command(kubectl(), "--kubeconfig", str(config), "apply", *words)
    assert ended.code == 0, ended.err
    assert f"/{OPERATOR} created" in ended.out


def kubectl() -> str:
    return str(KUBECTL.locate())
