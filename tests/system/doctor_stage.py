"""`doctor` beside the operator as it is shipped, for stories."""

import asyncio
import json
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.cli.access import ACCESS_FLAGS, choose_access, open_client
from rollout_operator.config.grammar import parse_arguments
from rollout_operator.model.diagnosis import Diagnosis
from rollout_operator.operator.examine import examine
from tests.system.manifest_stage import SERVICE, ManifestStage
from tests.system.starts import Ended, run_words
from tests.world.api import DEPLOYMENTS, NAMESPACES, PODS, SERVICES, STATEFULSETS
from tests.world.budgets import ZONE_BUDGETS
from tests.world.plane import ADMIN

ENFORCED: Final = {"pod-security.kubernetes.io/enforce": "restricted"}


class DoctorStage(ManifestStage):
    """Examines the namespace as a cluster administrator, or as the operator's own account."""

    def _write_kubeconfig(self, token: str = "") -> Path:
        plane = self.world.plane
        return plane.kubeconfig(self.world.folder / "doctor.conf", token or plane.tokens[ADMIN])

    async def _run(self, *words: str) -> Ended:
        env = {"KUBECONFIG": str(self._write_kubeconfig())}
        where = ("-n", self.world.namespace)
        return await asyncio.to_thread(run_words, "doctor", *where, *words, env=env)

    async def _examine(self, token: str = "") -> Diagnosis:
        words = [f"-kubeconfig={self._write_kubeconfig(token)}", f"-n={self.world.namespace}"]
        access = choose_access(parse_arguments(ACCESS_FLAGS, words))
        async with open_client(access) as client:
            return await examine(client, access.namespace, datetime.now(UTC))

    # What is examined

    async def do_reachable(self) -> None:
        """Let the Service lead to the operator, and its Deployment be ready."""
        ports = [{"name": "https", "port": self.operator().tls_port}]
        await self.world.patch(SERVICES, SERVICE, {"spec": {"ports": ports}})
        status = {"status": {"replicas": 1, "readyReplicas": 1}}
        where = (DEPLOYMENTS, self.world.namespace, SERVICE)
        await self.world.api.patch(*where, status, subresource="status")

    async def do_alone(self, name: str, account: str) -> None:
        """Create a zone without others, without pods, of an account."""
        zone = ZoneSpec(name=name, group="single", replicas=0)
        body = statefulset(zone, self.world.namespace)
        await self.world.post(STATEFULSETS, body)
        fields = {"spec": {"template": {"spec": {"serviceAccountName": account}}}}
        await self.world.patch(STATEFULSETS, name, fields)

    async def do_enforce(self) -> None:
        """Let the namespace admit restricted pods only."""
        labels = {"metadata": {"labels": ENFORCED}}
        await self.world.api.patch(NAMESPACES, "", self.world.namespace, labels)

    async def do_silent(self) -> None:
        """Let webhooks lead to a port that never says a word, as behind some firewalls."""
        server = self.silent = self.running.enter_context(socket.create_server(("127.0.0.1", 0)))
        for hook in self.shipped.wanted.hooks:
            await self._patch_hook(
                hook, clientConfig__service__port=server.getsockname()[1], timeoutSeconds=1
            )

    async def do_closed(self) -> None:
        """Let that port refuse connections."""
        self.silent.close()

    async def do_ignored(self, hook: str) -> None:
        """Let a call that fails be no obstacle."""
        await self._patch_hook(hook, failurePolicy="Ignore")

    async def _patch_hook(self, hook: str, **fields: object) -> None:
        steps = [
            {"op": "add", "path": f"/webhooks/0/{path.replace('__', '/')}", "value": value}
            for path, value in fields.items()
        ]
        where = (self.shipped.resource(hook), "", self.shipped.name(hook))
        await self.world.api.patch(*where, steps, kind="json")

    async def do_bad(self, name: str) -> str:
        """Create a budget that no webhook would let pass."""
        return await self.do_invalid('podNamePartitionRegex: "(x)", podNameRegexGroup: 9', name)

    # What is found

    async def do_doctor(self, *words: str) -> str:
        """Return exit code and text of the command."""
        ended = await self._run(*words)
        return f"{ended.code} {(ended.out + ended.err).strip()}"

    async def do_left(self) -> str:
        """Return what there is of objects that it tries in dry runs."""
        kinds = (ZONE_BUDGETS, PODS, STATEFULSETS)
        found = [await self.world.api.items(kind, self.world.namespace) for kind in kinds]
        return " ".join(str(len(one)) for one in found)

    async def do_finds(self, *codes: str) -> str:
        """Return those of these findings, or of texts in them, that there are."""
        found = " ".join(f"{one.code} {one.text}" for one in (await self._examine()).findings)
        return ", ".join(code for code in codes if code in found)

    async def do_skipped(self) -> str:
        """Return what the operator's own account is told that it may not read."""
        found = await self._examine(self.world.token)
        assert not any(one.check == "rights of the operator" for one in found.skipped)
        why = next((one.why for one in found.skipped if "list deployments" in one.why), "-")
        return why.replace(self.world.namespace, "NAMESPACE")

    async def do_timed_out(self) -> str:
        """Return the exit code, and the webhooks that did not answer in time, by the firewall."""
        ended = await self._run("-o", "json")
        late = [
            one["object"].removeprefix("webhook ").partition(f"-{self.world.namespace}")[0]
            for one in json.loads(ended.out)["findings"]
            if "timed_out" in one["code"] and "firewall" in one["remedy"]
        ]
        return f"{ended.code} {' '.join(sorted(late))}"
