"""The operator as a process of its own: start, stop, pause, kill, and read what it shows."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import msgspec

from tests.world.childproc import Child, Process, free_ports, start_program
from tests.world.forkserver import fork_operator

OPERATOR: Final = (sys.executable, "-m", "rollout_operator")
READY_LIMIT: Final = timedelta(seconds=30)
READY_POLL: Final = timedelta(milliseconds=20)
# What a pod gets as `terminationGracePeriodSeconds`.
END_LIMIT: Final = timedelta(seconds=30)
CALL_LIMIT: Final = timedelta(seconds=5)
TLS_FLAG: Final = "-server-tls.enabled=true"


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    folder: Path
    """For its output and kubeconfig."""
    url: str
    """Of the API server, or of the proxy before it."""
    kubeconfig: Path
    namespace: str
    """Empty: what is watched is left to `env`."""
    flags: Sequence[str] = ()
    command: Sequence[str] = OPERATOR
    """Empty: forked, with its modules read already."""
    env: Mapping[str, str] = {}
    """Added to the environment of the tests."""


class OperatorProcess:
    """One operator at a time; after its end it can be started again, on the same port."""

    def __init__(self, launch: Launch, name: str = "operator") -> None:
        self.launch = launch
        self.name = name
        self.port, self._tls_port, self.peer_port = free_ports(3)
        self.log = launch.folder / f"{name}-{self.port}.log"
        self.started_at = 0.0
        self._child: Child | None = None
        self._client: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Start it; `wait_ready` is the caller's."""
        self._client = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=CALL_LIMIT.total_seconds())
        )
        self.start()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        if self.is_running:
            self.kill()
        if self._client is not None:
            await self._client.close()

    # Life

    def start(self) -> None:
        """Start the process. It must not be running."""
        if self.is_running:
            raise RuntimeError(f"{self.name} runs already")
        launch = self.launch
        flags = [
            f"-kubernetes.api-url={launch.url}",
            f"-kubernetes.config-file={launch.kubeconfig}",
            *([f"-kubernetes.namespace={launch.namespace}"] if launch.namespace else ()),
            f"-server.port={self.port}",
            *(self._tls_flags if self._serves_tls else ()),
            *launch.flags,
        ]
        self.started_at = time.monotonic()
        environment = self._make_environment()
        if launch.command:
            process: Process = start_program([*launch.command, *flags], self.log, environment)
        else:
            process = fork_operator(flags, self.log, environment)
        self._child = Child(self.name, process, self.log)

    def _make_environment(self) -> dict[str, str]:
        """As the shipped Deployment: after its end it begins again in the same pod."""
        pod = {"POD_NAME": f"{self.name}-{self.port}", "POD_IP": "127.0.0.1"}
        return {**os.environ, **pod, **self.launch.env}

    async def wait_ready(self, limit: timedelta = READY_LIMIT) -> timedelta:
        """Wait until `/ready` says yes and return the time since the start."""
        try:
            async with asyncio.timeout(limit.total_seconds()):
                while not await self.is_ready():
                    if not self.is_running:
                        raise RuntimeError(
                            f"{self.name} ended with {self.child.exit_code}\n{self.child.tail()}"
                        )
                    await asyncio.sleep(READY_POLL.total_seconds())
        except TimeoutError as late:
            raise TimeoutError(
                f"{self.name} is not ready after {limit}\n{self.child.tail()}"
            ) from late
        return timedelta(seconds=time.monotonic() - self.started_at)

    def kill(self) -> None:
        """End it without a chance to clean up (SIGKILL)."""
        self.child.kill()

    async def terminate(self, limit: timedelta = END_LIMIT) -> int:
        """End it (SIGTERM) and return its exit code. Raises TimeoutError."""
        self.child.send(signal.SIGTERM)
        return await self.child.wait(limit)

    def pause(self) -> None:
        """Stop it where it is (SIGSTOP), as a starved or swapped-out process would."""
        self.child.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        self.child.send(signal.SIGCONT)

    async def wait_end(self, limit: timedelta = END_LIMIT) -> int:
        """Wait until it ends by itself and return its exit code. Raises TimeoutError."""
        return await self.child.wait(limit)

    # Reads

    @property
    def tls_port(self) -> int:
        """Return the port of the webhooks, the same over all starts."""
        if not self._serves_tls:
            raise RuntimeError(f"{self.name} was launched without {TLS_FLAG}")
        return self._tls_port

    @property
    def _tls_flags(self) -> tuple[str, ...]:
        ports = f"-server-tls.port={self._tls_port}", f"-server-tls.peer-port={self.peer_port}"
        # Nothing calls it by a Service that has to learn of its end.
        return *ports, "-server-tls.shutdown-delay=0s"

    @property
    def _serves_tls(self) -> bool:
        return TLS_FLAG in self.launch.flags

    @property
    def child(self) -> Child:
        if self._child is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._child

    @property
    def is_running(self) -> bool:
        """Say whether the process exists (a paused one does)."""
        return self._child is not None and self._child.exit_code is None

    async def is_ready(self) -> bool:
        try:
            status, _ = await self.fetch("/ready")
        except (aiohttp.ClientError, TimeoutError):
            return False
        return status == 200

    async def fetch(self, path: str, *, port: int = 0) -> tuple[int, str]:
        """Return status and text of a page of the admin port, or of another.

        Raises aiohttp.ClientError.
        """
        if self._client is None:
            raise RuntimeError("use `async with OperatorProcess(...)`")
        async with self._client.get(f"http://127.0.0.1:{port or self.port}{path}") as answer:
            return answer.status, await answer.text()

    async def metrics(self) -> str:
        """Return the metrics page. Raises aiohttp.ClientError."""
        return (await self.fetch("/metrics"))[1]

    def log_lines(self) -> list[str]:
        """Return all it printed, over all its starts."""
        return self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
