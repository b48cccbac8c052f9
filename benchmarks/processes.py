"""Processes that a benchmark starts: fake API server, operator, and children that measure inside.

What is measured always has a process of its own, so that neither the server's work nor the
benchmark's shows up in its figures.
"""

import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
import yaml

from benchmarks.objects import NAMESPACE
from benchmarks.server import Feed, Spec, Traits
from benchmarks.single import COUNTS_PATH
from tests.world.childproc import Child, free_ports, start_program
from tests.world.operatorproc import Launch
from tests.world.pki import make_pki

ROOT: Final = Path(__file__).parents[1]
TOKEN: Final = "bench-token"  # noqa: S105 (made up, of a server on loopback)
# Encoding 5,000 pods takes two seconds on a free core.
SERVER_LIMIT: Final = timedelta(seconds=60)
POLL: Final = timedelta(milliseconds=20)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A running fake API server, and how to log in to it."""

    folder: str
    """Removed when the server ends."""
    url: str
    kubeconfig: str
    namespace: str = NAMESPACE

    def launch(self, *flags: str) -> Launch:
        """Return how to start the operator here, with default flags but for these."""
        return Launch(
            folder=Path(self.folder),
            url=self.url,
            kubeconfig=Path(self.kubeconfig),
            namespace=self.namespace,
            flags=(NO_ELECTION, *flags),
        )

    async def fetch_counts(self) -> Counter[str]:
        """Return what the server has been asked so far, by words such as `list pods`."""
        url = f"{self.url}{COUNTS_PATH}"
        # Its certificate is the operator's business.
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as answer:
            return Counter(msgspec.json.decode(await answer.read(), type=dict[str, int]))


@asynccontextmanager
async def open_server(
    pods: int,
    feed: Feed = Feed.NONE,
    events: int = 0,
    traits: Traits | None = None,
    events_per_s: float = 0.0,
) -> AsyncIterator[Target]:
    """Start a fake API server and wait until it answers. Raises TimeoutError, RuntimeError."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        pki = make_pki(folder)
        port = free_ports(1)[0]
        spec = Spec(
            port=port,
            cert=str(pki.cert),
            key=str(pki.key),
            pods=pods,
            feed=feed,
            events=events,
            events_per_s=events_per_s,
            traits=traits or Traits(),
        )
        async with open_child("server", spec, folder, port):
            url = f"https://127.0.0.1:{port}"
            config = _write_kubeconfig(folder / "kubeconfig", url, pki.ca)
            yield Target(folder=name, url=url, kubeconfig=str(config))


@asynccontextmanager
async def open_child(
    name: str, task: msgspec.Struct, folder: Path, port: int
) -> AsyncIterator[Child]:
    """Run `python -m benchmarks.<name>` for a task, from when it listens on `port`.

    Raises TimeoutError, RuntimeError.
    """
    command = [sys.executable, "-m", f"benchmarks.{name}", msgspec.json.encode(task).decode()]
    log = folder / f"{name}.log"
    child = Child(name, start_program(command, log, _environment()), log)
    try:
        await _wait_listening(child, port)
        yield child
    finally:
        child.kill()


async def measure_in_child(what: str, task: msgspec.Struct) -> Mapping[str, float]:
    """Run `python -m benchmarks.child` for one task and return what it measured.

    Raises RuntimeError with its output where it failed.
    """
    words = ("-m", "benchmarks.child", what, msgspec.json.encode(task).decode())
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        env=_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        output, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        raise RuntimeError(f"measuring {what} in a child ended with {child.returncode}")
    return msgspec.json.decode(output, type=dict[str, float])


def read_memory(pid: int) -> Mapping[str, float]:
    """Return resident memory of a process in MiB: what it has now and the most it had."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return {
        "now": int(fields["VmRSS"].split()[0]) / 1024,
        "most": int(fields["VmHWM"].split()[0]) / 1024,
    }


def forget_peak(pid: int) -> None:
    """Let the kernel count the most memory of a process from now on, where it may be asked to."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def _environment() -> Mapping[str, str]:
    # This folder is no installed package: children find it from wherever we were started.
    return os.environ | {"PYTHONPATH": str(ROOT)}


# This server keeps no Lease.
NO_ELECTION: Final = "-leader-election.enabled=false"


class Time(msgspec.Struct, frozen=True):
    """What the main thread of a process had of the processor, in seconds."""

    cpu: float
    starved: float
    """For how long it wanted a core and had none."""


def read_time(pid: int) -> Time:
    """Return the time of a process so far; its other threads have nothing to do here."""
    cpu, starved, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return Time(int(cpu) / 1e9, int(starved) / 1e9)


async def _wait_listening(child: Child, port: int) -> None:
    async with asyncio.timeout(SERVER_LIMIT.total_seconds()):
        while True:
            if child.exit_code is not None:
                raise RuntimeError(f"the server ended with {child.exit_code}\n{child.tail()}")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(POLL.total_seconds())
                continue
            writer.close()
            return


def _write_kubeconfig(path: Path, url: str, ca: Path) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "b", "cluster": {"server": url, "certificate-authority": str(ca)}}],
        "users": [{"name": "b", "user": {"token": TOKEN}}],
        "contexts": [{"name": "b", "context": {"cluster": "b", "user": "b"}}],
        "current-context": "b",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path
