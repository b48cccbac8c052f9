"""The commands of stories of rotations: replicas, a webhook configuration, and time that passes.

Each replica keeps the configuration to its own bundle. All but the first learn late what the Secret
holds. Where their bundles differ, they overwrite each other at each tick, one time this one last,
one time that one.
"""

from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from rollout_operator.model.names import Unreachable
from tests.fakes_clock import FakeClock
from tests.pki.certificates import WANTED, verify
from tests.pki.stage import Rig, SecretClient, background
from tests.stories import Steps

HOUR: Final = timedelta(hours=1)
TICK: Final = timedelta(seconds=5)
OUTAGE: Final = timedelta(seconds=17)
# What an API server may still use after it was replaced.
MEMORY: Final = timedelta(seconds=60)


class RotationStage(Steps):
    """What is shown are all leaves, the CAs that signed them, bundles, and writes of the Secret."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.published = b""
        self.publishes = True
        self.bundles: dict[bytes, datetime] = {}
        """When each was published last."""
        self.rigs: list[Rig] = []
        self.leaves: set[x509.Certificate] = set()
        self._checked: set[tuple[x509.Certificate, bytes]] = set()

    def look(self) -> list[str]:
        cas = len({leaf.issuer for leaf in self.leaves})
        writes = sum(rig.secrets.writes for rig in self.rigs)
        counts = f"{len(self.leaves)} leaves of {cas} CAs, {len(self.bundles)} bundles"
        return [f"{counts}, {writes} writes"]

    async def do_replicas(self, count: str, life: str, ca_life: str) -> None:
        """Start replicas whose leaves and CAs last so long."""
        spans = [float(text.removesuffix("h")) * HOUR for text in (life, ca_life)]
        wanted = replace(WANTED, expiration=spans[0], ca_life=spans[1])
        first = SecretClient()
        for secrets in [first, *[self._open_late(first) for _ in range(int(count) - 1)]]:
            rig = Rig(secrets, self.clock, wanted, holds=lambda bundle: self.published == bundle)
            self.rigs.append(rig)
            await rig.start()
            await self.stack.enter_async_context(background(rig.controller))
        self._publish()

    def _open_late(self, secrets: SecretClient) -> SecretClient:
        """Return a client of the same Secret that reaches no API server for half of the time."""

        def fail(call: str) -> None:
            if call.startswith("get") and self.clock.elapsed() // OUTAGE % 2:
                raise Unreachable("connection refused")

        late = SecretClient()
        late.objects, late.before = secrets.objects, fail
        return late

    async def do_withhold(self) -> None:
        """Publish no bundle from now on."""
        self.publishes = False

    async def do_publish(self) -> None:
        self.publishes = True

    async def do_wait(self, seconds: float) -> None:
        end = self.clock.now() + timedelta(seconds=seconds)
        while self.clock.now() < end:
            await self.clock.advance(TICK)
            self._check()
            self._publish()

    async def do_unwatched(self, minutes: str) -> None:
        """Let time pass in which no client connects, and take the replica at its word then."""
        await self.clock.advance(timedelta(minutes=float(minutes.removesuffix("m"))))
        self.bundles.clear()
        self._check()

    def _publish(self) -> None:
        """Let every replica put its bundle into the configuration."""
        if not self.publishes:
            return
        self.rigs.reverse()
        for rig in self.rigs:
            if self.published != rig.controller.ca_bundle:
                self.published = rig.controller.ca_bundle
                self.bundles[self.published] = self.clock.now()
        self.bundles[self.published] = self.clock.now()

    def _check(self) -> None:
        now = self.clock.now()
        for rig in self.rigs:
            leaf = x509.load_der_x509_certificate(rig.served)
            self.leaves.add(leaf)
            assert leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc
            for bundle, last in self.bundles.items():
                if now - last <= MEMORY and (leaf, bundle) not in self._checked:
                    verify(leaf.public_bytes(Encoding.PEM), bundle, now, lax=False)
                    self._checked.add((leaf, bundle))
