"""`doctor` on the real control plane: silent on what our manifests make, and what only it finds.

Missing rights, webhooks that are not reached, pods that are refused; the findings that follow from
objects alone: `tests/planning/diagnosis`. One world for all, since installing takes longer than
reading.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.cli.access import ACCESS_FLAGS, choose_access, open_client
from rollout_operator.config.grammar import parse_arguments
from rollout_operator.model.diagnosis import Diagnosis, FindingCode
from rollout_operator.model.names import ExitCode
from rollout_operator.operator.examine import examine
from rollout_operator.planning.doctor import CHECKS
from tests.rendered import WEBHOOKS
from tests.system.installing import installed
from tests.system.starts import Ended, run_words
from tests.system.waits import wait_true
from tests.world.api import (
    CLUSTER_ROLES,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    ROLES,
    SERVICES,
    STATEFULSETS,
    ApiError,
    Json,
)
from tests.world.budgets import ZONE_BUDGETS, install_kinds, zone_budget
from tests.world.hooks import BUDGET_HOOKS, Hooks, Registration
from tests.world.operatorproc import TLS_FLAG, OperatorProcess
from tests.world.plane import ADMIN
from tests.world.world import World

pytestmark = pytest.mark.controlplane

NAME: Final = "rollout-operator"
# The API server takes a moment to act on what was written.
_MOST_ATTEMPTS: Final = 20
HOOKS: Final = ("no-downscale", "prepare-downscale", *BUDGET_HOOKS)
APP: Final = {"app": "ingester"}


@dataclass(slots=True)
class Clinic:
    """A world with the operator as it is shipped, and the command beside it."""

    world: World
    operator: OperatorProcess
    hooks: Hooks
    kubeconfig: Path

    async def examine(self, namespace: str = "") -> Diagnosis:
        words = [f"-kubeconfig={self.kubeconfig}", f"-n={namespace or self.world.namespace}"]
        access = choose_access(parse_arguments(ACCESS_FLAGS, words))
        async with open_client(access) as client:
            return await examine(client, access.namespace, datetime.now(UTC))

    async def find(self, *codes: FindingCode) -> Diagnosis:
        """Read until these are found. Raises AssertionError with what is found instead."""
        for _ in range(_MOST_ATTEMPTS):
            diagnosis = await self.examine()
            found = {finding.code for finding in diagnosis.findings}
            if {*codes} <= found:
                return diagnosis
        raise AssertionError(f"not found: {[*({*codes} - found)]}: {diagnosis}")

    async def patch_hook(self, hook: str, **fields: object) -> None:
        """Change fields of the only webhook of a configuration; a path has `__` for a slash."""
        steps = [
            {"op": "add", "path": f"/webhooks/0/{path.replace('__', '/')}", "value": value}
            for path, value in fields.items()
        ]
        name = self.hooks.name(hook)
        await self.world.api.patch(self.hooks.resource(hook), "", name, steps, kind="json")

    async def set_ready(self, ready: int) -> None:
        status = {"replicas": 1, "readyReplicas": ready}
        path = f"{DEPLOYMENTS.path(self.world.namespace, NAME)}/status"
        await self.world.api.call(
            "PATCH", path, body={"status": status}, content_type="application/merge-patch+json"
        )

    async def run(self, *words: str) -> Ended:
        """Run the command as a person would."""
        env = {"KUBECONFIG": str(self.kubeconfig)}
        return await asyncio.to_thread(
            run_words, "doctor", "-n", self.world.namespace, *words, env=env
        )


@asynccontextmanager
async def _open(world: World, tmp_path: Path) -> AsyncIterator[Clinic]:
    await install_kinds(world.api)
    zones = [
        ZoneSpec(name=name, replicas=1, labels=APP, pod_labels=APP) for name in ("zone-a", "zone-b")
    ]
    await world.create(*zones)
    world.may_be_forbidden = True  # rights are taken away
    kubeconfig = world.plane.kubeconfig(tmp_path / "admin.conf", world.plane.tokens[ADMIN])
    async with installed(world, tmp_path / "installed", WEBHOOKS):
        operator = await world.operator(TLS_FLAG)
        hooks = Hooks(world.api, world.namespace, Registration(port=1, hooks=HOOKS))
        clinic = Clinic(world, operator, hooks, kubeconfig)
        for hook in HOOKS:
            await clinic.patch_hook(hook, clientConfig__service__port=operator.tls_port)
        ports = [{"name": "https", "port": operator.tls_port}]
        await world.patch(SERVICES, NAME, {"spec": {"ports": ports}})
        await hooks.wait_injected()
        await hooks.wait_called("zone-a")
        await clinic.set_ready(1)
        await world.post(ZONE_BUDGETS, zone_budget("zones", APP))
        yield clinic
        operator.kill()


@pytest.mark.slow
async def test_dep88_silent_on_a_good_installation_and_each_finding_provoked(
    world: World, tmp_path: Path
) -> None:
    """DEP-88, D-76, D3, D20, D21."""
    async with _open(world, tmp_path) as clinic:
        await _assert_silent(clinic)
        await _provoke_rights(clinic)
        await _provoke_settings(clinic)
        clinic.operator.kill()
        await _provoke_reach(clinic)


async def _assert_silent(clinic: Clinic) -> None:
    world = clinic.world
    ended = await clinic.run("-strict")
    assert (ended.code, ended.out, ended.err) == (0, f"{len(CHECKS)} checks passed\n", "")
    budgets = await world.api.items(ZONE_BUDGETS, world.namespace)
    assert [one["metadata"]["name"] for one in budgets] == ["zones"], "a dry run leaves no trace"
    assert len(await world.api.items(PODS, world.namespace)) == 2
    for name in ("zone-a", "zone-b"):
        assert (await world.get(STATEFULSETS, name))["spec"]["replicas"] == 1


async def _provoke_rights(clinic: Clinic) -> None:
    """D20: fewer verbs in Role and ClusterRole; the account itself learns what it may not read."""
    world = clinic.world
    role = await world.get(ROLES, NAME)
    fewer = [{**rule, "verbs": rule["verbs"][:-1] or ["list"]} for rule in role["rules"]]
    await world.patch(ROLES, NAME, {"rules": fewer})
    named = f"{NAME}-{world.namespace}-webhooks"
    step = {"op": "replace", "path": "/rules/0/verbs", "value": ["list", "watch"]}
    await world.api.patch(CLUSTER_ROLES, "", named, [step], kind="json")
    texts = ""
    for _ in range(_MOST_ATTEMPTS):
        texts = " ".join(one.text for one in (await clinic.examine()).findings)
        if "patch pods" in texts and "patch validatingwebhookconfigurations" in texts:
            break
    assert "patch pods" in texts, texts
    assert "patch validatingwebhookconfigurations" in texts, texts
    await world.patch(ROLES, NAME, {"rules": role["rules"]})
    step["value"] = ["list", "watch", "patch"]
    await world.api.patch(CLUSTER_ROLES, "", named, [step], kind="json")

    poor = clinic.world.plane.kubeconfig(world.folder / "poor.conf", world.token)
    own = await replace(clinic, kubeconfig=poor).examine()
    assert not any(one.check == "rights of the operator" for one in own.skipped), own
    assert any(one.why.startswith("may not list deployments") for one in own.skipped), own


async def _provoke_settings(clinic: Clinic) -> None:
    """What a set cannot have by the API server's own word, found by a dry run of its pods."""
    world = clinic.world
    alone = ZoneSpec(name="alone", group="single", replicas=0)
    await world.post(STATEFULSETS, statefulset(alone, world.namespace))
    steps = [{"op": "add", "path": "/spec/template/spec/serviceAccountName", "value": "absent"}]
    await world.patch(STATEFULSETS, "alone", steps, kind="json")
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    await world.api.patch(NAMESPACES, "", world.namespace, {"metadata": {"labels": enforce}})
    await clinic.find(
        FindingCode.SINGLE_ZONE, FindingCode.POD_SECURITY_VIOLATED, FindingCode.POD_REFUSED
    )
    assert "violates PodSecurity" in (await clinic.run()).out


async def _provoke_reach(clinic: Clinic) -> None:
    """DEP-88: a webhook that never answers, and one that a failing call switches off."""
    world = clinic.world
    with _silent_port() as port:
        for hook in HOOKS:
            ports = {"clientConfig__service__port": port, "timeoutSeconds": 1}
            await clinic.patch_hook(hook, **ports)
        # Of the two about downscales the mutating one is called first.
        await _wait_timed_out(clinic, "prepare-downscale", *BUDGET_HOOKS)
    await clinic.patch_hook("zpdb-validation", failurePolicy="Ignore")
    bad = zone_budget("bad", {"app": "none"}, podNamePartitionRegex="(x)", podNameRegexGroup=9)
    await _wait_accepted(world, bad)
    await clinic.find(
        FindingCode.WEBHOOK_NOT_CALLED,
        FindingCode.WEBHOOK_UNREACHABLE,
        FindingCode.ZONE_BUDGET_INVALID,
    )


@contextmanager
def _silent_port() -> Iterator[int]:
    """Yield a port that takes connections and never says a word, as behind some firewalls."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def _wait_timed_out(clinic: Clinic, *hooks: str) -> None:
    """Run the command until the API server has taken the change of all configurations."""
    wanted = {f"webhook {clinic.hooks.name(hook)}.grafana.com" for hook in hooks}
    for _ in range(_MOST_ATTEMPTS):
        ended = await clinic.run("-o", "json")
        found = json.loads(ended.out)["findings"]
        late = {one["object"]: one["remedy"] for one in found if "timed_out" in one["code"]}
        if wanted == late.keys():
            assert ended.code == ExitCode.UNREACHED
            assert all("firewall" in remedy for remedy in late.values())
            return
    raise AssertionError(f"not all timed out: {found}")


async def _wait_accepted(world: World, budget: Json) -> None:
    async def is_accepted() -> bool:
        try:
            await world.post(ZONE_BUDGETS, budget)
        except ApiError:
            return False
        return True

    await wait_true("accepted", is_accepted)
