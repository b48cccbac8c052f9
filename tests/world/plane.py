"""A real control plane as child processes: etcd, API server, controller manager.

Starting and stopping is all that lives here; `api.Api` talks to it, `kubelet.Kubelet` plays the
nodes it does not have. Nothing here is bound to an event loop: any loop may start, use or stop it.
"""

import asyncio
import os
import secrets
import shutil
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final, Self

import msgspec
import yaml

from tests.world.api import NAMESPACES, SERVICE_ACCOUNTS, Api, ApiError, Json
from tests.world.childproc import Child, free_ports, start_program
from tests.world.pki import Pki, make_pki

ADMIN: Final = "admin"
KUBELET: Final = "kubelet"
JUDGE: Final = "judge"
CONTROLLERS: Final = "controllers"
MASTERS: Final = (ADMIN, KUBELET, JUDGE, CONTROLLERS)

# Ready in three seconds on two free cores; the rest is for a machine that is busy.
READY_LIMIT: Final = timedelta(seconds=60)
READY_POLL: Final = timedelta(milliseconds=50)
STOP_LIMIT: Final = timedelta(seconds=10)

# For workers of the tests, which take all processors. With one thread of Go's each, the same
# rollouts take a sixth less of a processor: 11.1 s instead of 13.0 for 6 of 3 x 3 pods. With
# garbage collected once the heap is five times what is used, and not twice, they take another
# twentieth less. A benchmark or a demo has a control plane to itself, with all its threads.
FRUGAL: Final = {"GOMAXPROCS": "1", "GOGC": "400", "GOMEMLIMIT": "1GiB"}

CONTROLLER_NAMES: Final = (
    "statefulset-controller",
    "garbage-collector-controller",
    "serviceaccount-controller",
    "namespace-controller",
    "disruption-controller",
    "clusterrole-aggregation-controller",
)

AUDIT_POLICY: Final = Path(__file__).with_name("audit.yaml")


class ControlPlane:
    """etcd, kube-apiserver and kube-controller-manager on loopback ports."""

    def __init__(self, assets: Path, *, flags: Mapping[str, str] | None = None) -> None:
        """Prepare; `flags` are added to those of the API server (`{"etcd-...": "..."}`)."""
        self.assets = assets
        self.folder = Path(tempfile.mkdtemp(prefix="test-world-"))
        self.pki: Pki = make_pki(self.folder)
        self.tokens = {user: secrets.token_hex(16) for user in MASTERS}
        port, self.etcd_port, self._peer_port = free_ports(3)
        self.url = f"https://127.0.0.1:{port}"
        self.port = port
        self.audit_log = self.folder / "audit.log"
        self._flags = dict(flags or {})
        self._children: dict[str, Child] = {}
        self._context: ssl.SSLContext | None = None

    # Life

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Start it, and leave no trace of it after."""
        try:
            await self.start()
            yield self
        finally:
            await self.stop()

    async def start(self) -> None:
        """Start all three and wait until the API server is ready."""
        self._write_settings()
        self.start_etcd()
        await self.start_apiserver()
        self.start_controllers()

    async def stop(self) -> None:
        """Stop all three, last started first, and remove every trace."""
        for name in ("kube-controller-manager", "kube-apiserver", "etcd"):
            await self._stop(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self.etcd_port, self._peer_port))
        self._start(
            "etcd",
            {
                "name": "world",
                "data-dir": str(self.folder / "etcd"),
                "listen-client-urls": client,
                "advertise-client-urls": client,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": f"world={peer}",
                # Data need not outlive a crash of the machine, and a sync per write is slow.
                "unsafe-no-fsync": "true",
                "snapshot-count": "10000",
                "log-level": "warn",
            },
        )

    async def start_apiserver(self) -> None:
        """Start the API server on its own port and wait until it is ready."""
        self._start("kube-apiserver", self._apiserver_flags())
        await self._wait_ready()

    async def stop_apiserver(self) -> None:
        """Stop the API server; its audit log is complete after that."""
        await self._stop("kube-apiserver")

    async def restart_apiserver(self) -> None:
        """Stop the API server and start it again on the same port and data.

        The controllers start anew too: left alone, their watches pause for up to a minute before
        they are opened again, and no deleted pod comes back meanwhile.
        """
        await self.stop_apiserver()
        await self.start_apiserver()
        if "kube-controller-manager" in self._children:
            self._children.pop("kube-controller-manager").kill()
            self.start_controllers()

    def start_controllers(self) -> None:
        """Start the controller manager; it works some hundred milliseconds later."""
        kubeconfig = self.kubeconfig(self.folder / "controllers.conf", self.tokens[CONTROLLERS])
        self._start(
            "kube-controller-manager",
            {
                "kubeconfig": str(kubeconfig),
                "controllers": ",".join(CONTROLLER_NAMES),
                "leader-elect": "false",
                "use-service-account-credentials": "false",
                "secure-port": "0",
                "kube-api-qps": "2000",
                "kube-api-burst": "4000",
                "concurrent-statefulset-syncs": "20",
                "concurrent-gc-syncs": "5",
                "profiling": "false",
            },
        )

    async def stop_controllers(self) -> None:
        """Stop the controller manager: statuses freeze, deleted pods do not come back."""
        await self._stop("kube-controller-manager")

    def child(self, name: str) -> Child:
        """Return a running part by its program name, to pause it or to read its log."""
        return self._children[name]

    def tails(self) -> str:
        """Return the last output of each part, for a failure's report."""
        return "\n".join(
            f"--- {name} (exit code {child.exit_code})\n{child.tail()}"
            for name, child in self._children.items()
        )

    # Ways in

    def context(self) -> ssl.SSLContext:
        """Return a client context that trusts the test CA and nothing else."""
        if self._context is None:
            self._context = ssl.create_default_context(cafile=str(self.pki.ca))
        return self._context

    def api(self, token: str = "") -> Api:
        """Return a client for a token, the admin's if none is given; open it with `async with`."""
        return Api(self.url, token or self.tokens[ADMIN], self.context())

    def kubeconfig(self, path: Path, token: str, *, url: str = "", namespace: str = "") -> Path:
        config: Json = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "world",
                    "cluster": {
                        "server": url or self.url,
                        "certificate-authority": str(self.pki.ca),
                    },
                }
            ],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [
                {
                    "name": "world",
                    "context": {"cluster": "world", "user": "user"}
                    | ({"namespace": namespace} if namespace else {}),
                }
            ],
            "current-context": "world",
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path

    async def create_namespace(self, api: Api, name: str) -> None:
        """Create a namespace and wait for its default ServiceAccount, which pods need.

        One of the name that is on its way out is waited for.
        """
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        async with asyncio.timeout(READY_LIMIT.total_seconds()):
            while not await _creates(api, body):  # noqa: ASYNC110 (an answer, no event)
                await asyncio.sleep(READY_POLL.total_seconds())
            while not await _exists(api, name, "default"):  # noqa: ASYNC110 (an answer, no event)
                await asyncio.sleep(READY_POLL.total_seconds())

    async def fetch_token(
        self, api: Api, namespace: str, account: str, life: timedelta = timedelta(hours=1)
    ) -> str:
        """Return a token of a ServiceAccount, issued by the TokenRequest subresource."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": int(life.total_seconds())},
        }
        answer = await api.create(SERVICE_ACCOUNTS, namespace, body, account, "token")
        token: str = answer["status"]["token"]
        return token

    async def create_account(self, api: Api, namespace: str, account: str) -> str:
        body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
        await api.create(SERVICE_ACCOUNTS, namespace, body)
        return await self.fetch_token(api, namespace, account)

    def read_audit(self, offset: int) -> tuple[list[Json], int]:
        """Return the whole entries from a byte offset on, and the offset to go on from."""
        if not self.audit_log.exists():
            return [], offset
        with self.audit_log.open("rb") as log:
            log.seek(offset)
            content = log.read()
        content = content[: content.rfind(b"\n") + 1]  # an unfinished last line comes later
        return [msgspec.json.decode(line) for line in content.splitlines()], offset + len(content)

    def audit_size(self) -> int:
        """Return the length of the audit log in bytes."""
        return self.audit_log.stat().st_size if self.audit_log.exists() else 0

    # Inside

    def _write_settings(self) -> None:
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(
            "".join(
                f"{token},{user},{user},system:masters\n" for user, token in self.tokens.items()
            )
        )

    def _apiserver_flags(self) -> dict[str, str]:
        return {
            "etcd-servers": f"http://127.0.0.1:{self.etcd_port}",
            # The judge reads the store itself; JSON is what it can read.
            "storage-media-type": "application/json",
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": str(self.port),
            "endpoint-reconciler-type": "none",
            "tls-cert-file": str(self.pki.cert),
            "tls-private-key-file": str(self.pki.key),
            "client-ca-file": str(self.pki.ca),
            "token-auth-file": str(self.folder / "tokens.csv"),
            "authorization-mode": "RBAC",
            "service-cluster-ip-range": "10.0.0.0/24",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": str(self.pki.accounts_key),
            "service-account-signing-key-file": str(self.pki.accounts_key),
            "audit-policy-file": str(AUDIT_POLICY),
            "audit-log-path": str(self.audit_log),
            "audit-log-maxsize": "8192",
            "max-requests-inflight": "2000",
            "max-mutating-requests-inflight": "1000",
            # Without it a stop waits a minute for watches that stay open.
            "shutdown-watch-termination-grace-period": "200ms",
            "profiling": "false",
        } | self._flags

    def _start(self, name: str, flags: Mapping[str, str]) -> None:
        running = self._children.get(name)
        if running is not None and running.exit_code is None:
            raise RuntimeError(f"{name} runs already")
        log = self.folder / f"{name}.log"
        words = (f"--{flag}={value}" for flag, value in flags.items())
        command: list[str | Path] = [self.assets / name, *words]
        self._children[name] = Child(name, start_program(command, log, _make_environment()), log)

    async def _stop(self, name: str) -> None:
        child = self._children.pop(name, None)
        if child is not None:
            await child.stop(STOP_LIMIT)

    async def _wait_ready(self) -> None:
        child = self._children["kube-apiserver"]
        try:
            async with asyncio.timeout(READY_LIMIT.total_seconds()):
                while not await asyncio.to_thread(self._is_ready):
                    if child.exit_code is not None:
                        raise RuntimeError(f"the API server ended\n{self.tails()}")
                    await asyncio.sleep(READY_POLL.total_seconds())
        except TimeoutError as late:
            raise TimeoutError(
                f"the API server is not ready after {READY_LIMIT}\n{self.tails()}"
            ) from late

    def _is_ready(self) -> bool:
        request = urllib.request.Request(
            f"{self.url}/readyz", headers={"Authorization": f"Bearer {self.tokens[JUDGE]}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=2, context=self.context()) as answer:
                return bool(answer.status == 200)
        except OSError:  # refused, reset, or an HTTP error: all mean "not yet"
            return False


async def _creates(api: Api, namespace: Json) -> bool:
    try:
        await api.create(NAMESPACES, "", namespace)
    except ApiError as refused:
        if "is being deleted" in str(refused):
            return False
        raise
    return True


async def _exists(api: Api, namespace: str, account: str) -> bool:
    try:
        await api.get(SERVICE_ACCOUNTS, namespace, account)
    except ApiError as refused:
        if refused.status in (403, 404):
            return False
        raise
    return True


def _make_environment() -> dict[str, str]:
    # Proxies and cluster settings of the machine have no place in a world of its own.
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
    return kept | (FRUGAL if "PYTEST_XDIST_WORKER" in os.environ else {})
