"""A namespace into which real helm installs charts, and what no kubelet is there to do for it.

Jobs of hooks, and the pod of `helm test`, are played: the test runs the same words under a token of
the same account, with the same files, and reports the end that they had. The operator is a process
of the test, under the account and with the words that the chart rendered. The Service stands for
`localhost`, and webhooks name the port that is listened on.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from tests.system.starts import Ended, run_command, run_words
from tests.system.waits import wait_true
from tests.world.api import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    ApiError,
    Json,
    Resource,
)
from tests.world.budgets import CRDS
from tests.world.helm import HELM
from tests.world.hooks import BUDGET_HOOKS, Hooks, Registration
from tests.world.kubelet import NORMAL, Behaviour, Kind
from tests.world.manifests import ACCOUNT
from tests.world.operatorproc import OperatorProcess
from tests.world.plane import ADMIN
from tests.world.world import World

JOBS: Final = Resource("batch/v1", "jobs")
RELEASE: Final = ACCOUNT
POLL: Final = timedelta(milliseconds=100)
GONE: Final = timedelta(seconds=60)
HOOKS: Final = ("no-downscale", "prepare-downscale", *BUDGET_HOOKS)
KINDS: Final = (
    "replicatemplates.rollout-operator.grafana.com",
    "zoneawarepoddisruptionbudgets.rollout-operator.grafana.com",
    "multiazrollouts.rollout.grafana.com",
)
_HOOK: Final = "helm.sh/hook"
# A stand-in for grafana's chart: objects of the names, labels, words and rights that its has.
# Only what a change to our chart can stumble over is there, written from its interface.
GRAFANAS: Final = Path(__file__).parent / "grafanas"
# What it makes of its Service where webhooks are off, and metrics are scraped.
_UNHOOKED: Final = """
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}", namespace: "{{ .Release.Namespace }}"}
spec:
  type: ClusterIP
  clusterIP: None
  ports: [{port: 8001, protocol: TCP, targetPort: http-metrics, name: http-metrics}]
  selector: {app.kubernetes.io/name: rollout-operator}
"""


def write_chart(folder: Path, *, patches_pods: bool = False, is_hooked: bool = True) -> Path:
    """Write grafana's chart into a folder and return it; until 0.51 its Role patches pods."""
    shutil.copytree(GRAFANAS, folder)
    template = folder / "templates" / "all.yaml"
    text = template.read_text() if is_hooked else _UNHOOKED
    template.write_text(text.replace("watch, delete]", "watch, delete, patch]", patches_pods))
    return folder


@dataclass(slots=True)
class Charted:
    """A world without anything of the operator's, and helm for it."""

    world: World
    folder: Path
    played: list[tuple[str, Ended]] = field(default_factory=list)
    """What hooks have run, with how it ended."""
    operator: OperatorProcess | None = None
    are_jobs_broken: bool = False
    """Whether what hooks run ends with an error, as without its image."""
    _service: Json = field(default_factory=dict)
    """The Service as helm knows it, while it stands for `localhost`."""
    _known: set[str] = field(default_factory=set)

    @property
    def hooks(self) -> Hooks:
        return Hooks(self.world.api, self.world.namespace, Registration(port=1, hooks=HOOKS))

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "admin.conf"

    @property
    def environment(self) -> dict[str, str]:
        """Return where helm is found, without settings, caches or plugins of the machine."""
        path = f"{HELM.locate().parent}{os.pathsep}{os.environ['PATH']}"
        return {"HOME": str(self.folder), "PATH": path}

    async def helm(self, *words: str | Path, values: Mapping[str, Any] | None = None) -> Ended:
        if values is not None:
            file = self.folder / "values.yaml"
            file.write_text(yaml.safe_dump(dict(values)))
            words = (*words, "--values", file)
        return await asyncio.to_thread(
            run_command,
            str(HELM.locate()),
            *(str(word) for word in words),
            f"--namespace={self.world.namespace}",
            env=self.environment | {"KUBECONFIG": str(self.kubeconfig)},
        )

    async def succeed(self, *words: str | Path, values: Mapping[str, Any] | None = None) -> str:
        """Run helm and return what it printed. Raises AssertionError where it fails."""
        ended = await self.helm(*words, values=values)
        assert ended.code == 0, (words, ended.out, ended.err, self.played)
        return ended.out

    # The operator

    async def start(self) -> OperatorProcess:
        """Start the operator as the Deployment says, and wait until the API server calls it."""
        world = self.world
        deployment = await world.get(DEPLOYMENTS, RELEASE)
        pod = deployment["spec"]["template"]["spec"]
        account = pod["serviceAccountName"]
        world.token = await world.plane.fetch_token(world.api, world.namespace, account)
        (container,) = pod["containers"]
        words = [word for word in container["args"] if "kubernetes.namespace" not in word]
        operator = await world.operator(*words)
        await self.lead_to(operator)
        return operator

    async def lead_to(self, operator: OperatorProcess) -> None:
        """Let the Service and the webhooks lead to an operator."""
        world = self.world
        spec = (await world.get(SERVICES, RELEASE))["spec"]
        if spec["type"] == "ClusterIP":
            self._service = {"type": "ClusterIP", "externalName": None, "ports": spec["ports"]}
        ports = [{"name": "https", "port": operator.tls_port}]
        there = {"type": "ExternalName", "externalName": "localhost", "ports": ports}
        gone = {"clusterIP": None, "clusterIPs": None}
        await world.patch(SERVICES, RELEASE, {"spec": {**there, **gone}})
        step = {"op": "replace", "value": operator.tls_port}
        path = "/webhooks/0/clientConfig/service/port"
        for hook in HOOKS:
            resource, name = self.hooks.resource(hook), self.hooks.name(hook)
            await world.api.patch(resource, "", name, [{**step, "path": path}], kind="json")
        await self.hooks.wait_injected()

    async def change(self, *words: str | Path, values: Mapping[str, Any] | None = None) -> str:
        """Let helm change the release, on the Service that it knows; see `succeed`."""
        await self.restore_service()
        return await self.succeed(*words, values=values)

    async def restore_service(self) -> None:
        """Let the Service be as helm knows it."""
        if self._service:
            await self.world.patch(SERVICES, RELEASE, {"spec": self._service})

    # What a kubelet and the Job controller would do

    async def play(self) -> None:
        """Run Jobs and pods of hooks as they come, for ever."""
        while True:
            for resource in (JOBS, PODS):
                for one in await self.world.api.items(resource, self.world.namespace):
                    uid = one["metadata"]["uid"]
                    if uid not in self._known and _HOOK in one["metadata"].get("annotations", {}):
                        self._known.add(uid)
                        await self._play(resource, one)
            await asyncio.sleep(POLL.total_seconds())

    async def _play(self, resource: Resource, one: Json) -> None:
        spec = one["spec"]["template"]["spec"] if resource is JOBS else one["spec"]
        broken = Ended(code=1, out="", err="broken")
        ended = broken if self.are_jobs_broken else await self._run(spec)
        (container,) = spec["containers"]
        self.played.append((container["args"][0], ended))
        status = _job_status(ended) if resource is JOBS else _pod_status(ended)
        path = f"{resource.path(self.world.namespace, one['metadata']['name'])}/status"
        await self.world.api.call(
            "PATCH", path, body={"status": status}, content_type="application/merge-patch+json"
        )

    async def _run(self, spec: Json) -> Ended:
        """Run the words of the only container, with its account and its mounts."""
        world = self.world
        token = await world.plane.fetch_token(
            world.api, world.namespace, spec["serviceAccountName"]
        )
        config = self.folder / f"hook-{len(self.played)}.conf"
        world.plane.kubeconfig(config, token, namespace=world.namespace)
        (container,) = spec["containers"]
        mounts = {
            mount["mountPath"]: str(await self._mount(volume))
            for mount in container.get("volumeMounts", ())
            for volume in spec["volumes"]
            if volume["name"] == mount["name"] and "configMap" in volume
        }
        words = [mounts.get(word, word) for word in container["args"]]
        return await asyncio.to_thread(run_words, *words, env={"KUBECONFIG": str(config)})

    async def _mount(self, volume: Json) -> Path:
        found = await self.world.get(CONFIG_MAPS, volume["configMap"]["name"])
        folder = self.folder / f"mount-{len(self.played)}"
        folder.mkdir()
        for name, text in found["data"].items():
            (folder / name).write_text(text)
        return folder


def _job_status(ended: Ended) -> Json:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    kinds = ("SuccessCriteriaMet", "Complete") if ended.code == 0 else ("FailureTarget", "Failed")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds]
    status: Json = {"startTime": now, "conditions": conditions}
    if ended.code == 0:
        return {**status, "completionTime": now, "succeeded": 1}
    return {**status, "failed": 1}


def _pod_status(ended: Ended) -> Json:
    return {"phase": "Succeeded" if ended.code == 0 else "Failed"}


def _behave(pod: Json) -> Behaviour:
    """Leave pods of hooks to `Charted.play`."""
    is_hook = _HOOK in pod["metadata"].get("annotations", {})
    return Behaviour(kind=Kind.PENDING) if is_hook else NORMAL


@asynccontextmanager
async def charted(world: World, folder: Path) -> AsyncIterator[Charted]:
    """Yield an empty namespace with helm. What is left in the cluster is removed after."""
    for resource in (ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS):
        await world.delete(resource, ACCOUNT)
    world.kubelet.choose = _behave
    here = Charted(world, folder)
    world.plane.kubeconfig(here.kubeconfig, world.plane.tokens[ADMIN])
    player = asyncio.create_task(here.play(), name="hooks")
    try:
        yield here
    finally:
        await here.helm("uninstall", RELEASE, "--no-hooks", "--ignore-not-found")
        player.cancel()
        with suppress(asyncio.CancelledError):
            await player


async def remove_kinds(world: World, names: Sequence[str] = KINDS) -> None:
    """Make the cluster one that has never had the operator's kinds, or some of them."""
    for name in names:
        with suppress(ApiError):
            await world.api.delete(CRDS, "", name)

    async def are_gone() -> bool:
        found = {one["metadata"]["name"] for one in await world.api.items(CRDS)}
        return not found & {*names}

    await wait_true("gone", are_gone, GONE)
