"""Certificates over years, with a clock that jumps: SI-19, SEED-101, SEED-109, LI-13."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from rollout_operator.model.names import Unreachable
from rollout_operator.pki.manager import CHECK_EVERY
from rollout_operator.planning.certificate import OVERLAP
from tests.fakes_clock import FakeClock
from tests.pki.certificates import WANTED, verify
from tests.pki.stage import MINUTE, Rig, SecretClient, background

pytestmark = pytest.mark.thorough

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TICK = timedelta(seconds=5)
OUTAGE = timedelta(seconds=17)
# What an API server may still use after it was replaced.
MEMORY = timedelta(seconds=60)


def open_late(secrets: SecretClient, clock: FakeClock) -> SecretClient:
    """Return a client of the same Secret that reaches no API server for half of the time."""

    def fail(call: str) -> None:
        if call.startswith("get") and clock.elapsed() // OUTAGE % 2:
            raise Unreachable("connection refused")

    late = SecretClient()
    late.objects, late.before = secrets.objects, fail
    return late


class World:
    """Replicas over one Secret and one webhook configuration, which each keeps to its own bundle.

    All but the first learn late what the Secret holds. Where their bundles differ, they overwrite
    each other at each tick, one time this one last, one time that one.
    """

    def __init__(self, *, life: timedelta, ca_life: timedelta, replicas: int) -> None:
        self.clock = FakeClock()
        self.secrets = SecretClient()
        self.published = b""
        self.publishes = True
        self.bundles: dict[bytes, datetime] = {}
        """When each was published last."""
        wanted = replace(WANTED, expiration=life, ca_life=ca_life)
        late = [open_late(self.secrets, self.clock) for _ in range(replicas - 1)]
        self.rigs = [
            Rig(secrets, self.clock, wanted, holds=lambda bundle: self.published == bundle)
            for secrets in [self.secrets, *late]
        ]
        self.leaves: set[x509.Certificate] = set()
        self._checked: set[tuple[x509.Certificate, bytes]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        async with AsyncExitStack() as stack:
            for rig in self.rigs:
                await rig.start()
                await stack.enter_async_context(background(rig.controller))
            self.publish()
            yield self

    def publish(self) -> None:
        """Let every replica put its bundle into the configuration."""
        if not self.publishes:
            return
        self.rigs.reverse()
        for rig in self.rigs:
            if self.published != rig.controller.ca_bundle:
                self.published = rig.controller.ca_bundle
                self.bundles[self.published] = self.clock.now()
        self.bundles[self.published] = self.clock.now()

    async def pass_time(self, span: timedelta) -> None:
        """Let time pass; at each tick, every client accepts what every replica serves."""
        end = self.clock.now() + span
        while self.clock.now() < end:
            await self.clock.advance(TICK)
            self.check()
            self.publish()

    def check(self) -> None:
        now = self.clock.now()
        for rig in self.rigs:
            leaf = x509.load_der_x509_certificate(rig.served)
            self.leaves.add(leaf)
            assert leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc
            for bundle, last in self.bundles.items():
                if now - last <= MEMORY and (leaf, bundle) not in self._checked:
                    verify(leaf.public_bytes(Encoding.PEM), bundle, now, lax=False)
                    self._checked.add((leaf, bundle))

    @property
    def cas(self) -> int:
        """Return how many CAs have signed what was served."""
        return len({leaf.issuer for leaf in self.leaves})


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.prove), 2])
async def test_twenty_rotations_under_the_eyes_of_every_client(replicas: int) -> None:
    """SI-19: a client with any bundle of the last minute accepts what is served at any instant.

    A leaf lasts an hour and a CA for about two leaves. It holds even where the replicas overwrite
    each other's bundles for as long as one has not seen the Secret that the other wrote, which the
    injector does not do.
    """
    world = World(life=HOUR, ca_life=2.2 * HOUR, replicas=replicas)
    async with world.running():
        await world.pass_time(14 * HOUR)
    assert len(world.leaves) > 20
    assert 8 <= world.cas <= 12
    assert len(world.bundles) > 2 * world.cas - 2
    assert sum(rig.secrets.writes for rig in world.rigs) < 4 * len(world.leaves) * replicas


def test_the_overlap_covers_a_replica_that_learns_of_it_late() -> None:
    """SI-19: its last bundle without the next CA comes a look after the first with it."""
    assert OVERLAP > MEMORY + CHECK_EVERY


async def test_bundles_that_are_not_published_end_the_wait_in_time() -> None:
    """LI-13: the next CA is used at an eighth of the life at the latest, and served in time."""
    world = World(life=HOUR, ca_life=HOUR, replicas=1)
    async with world.running():
        world.publishes = False
        await world.pass_time(50 * MINUTE)
        assert world.cas == 1
        await world.clock.advance(5 * MINUTE)
    world.bundles.clear()
    world.check()
    assert world.cas == 2


async def test_a_rotation_waits_for_a_bundle_that_is_late() -> None:
    """SI-19: the overlap counts from the moment at which every configuration holds both CAs."""
    world = World(life=HOUR, ca_life=HOUR, replicas=1)
    async with world.running():
        world.publishes = False
        await world.pass_time(45 * MINUTE)
        world.publishes = True
        await world.pass_time(1 * MINUTE)
        assert world.cas == 1
        await world.pass_time(1 * MINUTE)
        assert world.cas == 2
