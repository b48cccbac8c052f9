"""The operator with its webhooks on a fake API server, and a bare server to compare it with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import bare
from benchmarks.objects import Place
from benchmarks.processes import Target, open_child, open_server
from benchmarks.questions import Kind, make_request
from benchmarks.server import Traits
from benchmarks.tasks import Load
from rollout_operator.model.names import NO_DOWNSCALE
from tests.world.childproc import free_ports
from tests.world.operatorproc import TLS_FLAG, OperatorProcess

GUARDED: Final = Traits(labels={NO_DOWNSCALE: "true"})
FIRST: Final = Place(group=0, zone="a")
# What the answers of all reviews of these benchmarks are about as long as.
BARE_ANSWER: Final = b"{%s}" % (b" " * 320)


class Hooks(msgspec.Struct, frozen=True):
    """A running operator, ready and with its caches filled."""

    target: Target
    operator: OperatorProcess

    def load(self, request: bytes, expected: bytes = b"") -> Load:
        """Return how to ask it."""
        return Load(
            port=self.operator.tls_port,
            pid=self.operator.child.pid,
            request=request,
            expected=expected,
        )


@asynccontextmanager
async def open_hooks(pods: int, traits: Traits, *flags: str) -> AsyncIterator[Hooks]:
    """Start both with default flags but for these. Raises TimeoutError, RuntimeError."""
    async with (
        open_server(pods, traits=traits) as target,
        OperatorProcess(target.launch(TLS_FLAG, *flags)) as operator,
    ):
        await operator.wait_ready()
        yield Hooks(target, operator)


@asynccontextmanager
async def open_bare(target: Target) -> AsyncIterator[Load]:
    """Start a server that does nothing, and return how to ask it nothing."""
    folder, port = Path(target.folder), free_ports(1)[0]
    spec = bare.Spec(
        port=port,
        cert=str(folder / "serving.crt"),
        key=str(folder / "serving.key"),
        answer=BARE_ANSWER,
    )
    async with open_child("bare", spec, folder, port) as child:
        yield Load(port=port, pid=child.pid, request=b"", expected=BARE_ANSWER)


def falling(kind: Kind, path: str, replicas: tuple[int, int]) -> bytes:
    """Return the request of a review of the first set that the API server shows."""
    return make_request(kind, path, replicas, FIRST, GUARDED)
