"""A certificate controller over a fake Secret and a clock that a test moves."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import NoReturn, Protocol

from rollout_operator.pki.certificates import SecretStore
from rollout_operator.pki.manager import CertificateCallbacks, CertificateController
from rollout_operator.pki.serving import ServingCertificate
from rollout_operator.planning.certificate import Wanted
from tests.fakes_clock import FakeClock
from tests.pki.certificates import WANTED, client_context, shake_hands
from tests.pki.fake_secrets import NAME, NAMESPACE, FakeSecrets


class Rig:
    """A replica: its manager and all that it reported."""

    def __init__(
        self,
        secrets: FakeSecrets,
        clock: FakeClock | None = None,
        wanted: Wanted = WANTED,
        *,
        holds: Callable[[bytes], bool] = lambda bundle: True,
    ) -> None:
        self.secrets = secrets
        self.clock = FakeClock() if clock is None else clock
        self.serving = ServingCertificate()
        self._shown: tuple[ssl.SSLContext, bytes] | None = None
        self.expiry: dict[str, datetime] = {}
        self.bundles: list[bytes] = []
        self.controller = CertificateController(
            SecretStore(secrets, namespace=NAMESPACE, name=NAME),
            self.serving,
            self.clock,
            wanted,
            CertificateCallbacks(
                holds=holds,
                on_change=lambda: self.bundles.append(self.controller.ca_bundle),
                record_expiry=self.expiry.__setitem__,
            ),
        )

    @property
    def served(self) -> bytes:
        """Return the leaf that a handshake shows now, as DER."""
        context = self.serving.current
        if self._shown is None or self._shown[0] is not context:
            self._shown = (context, shake_hands(context, client_context()).cert)
        return self._shown[1]

    async def start(self) -> None:
        """Start the controller; one that goes on trying for real seconds fails the test."""
        async with asyncio.timeout(10):
            await self.controller.start()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Rig"]:
        """Start the controller and let it run."""
        await self.start()
        async with background(self.controller):
            yield self


async def started(secrets: FakeSecrets) -> Rig:
    """Return a replica whose controller has started."""
    rig = Rig(secrets)
    await rig.start()
    return rig


class Runs(Protocol):
    """What runs for ever."""

    async def run(self) -> NoReturn: ...


@asynccontextmanager
async def background(controller: Runs) -> AsyncIterator[None]:
    """Let something run that was started before."""
    task = asyncio.create_task(controller.run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


MINUTE = timedelta(minutes=1)
