"""Several replicas and the one certificate that they share: at the start, and while its CA changes.

What each of them serves, publishes and trusts comes from one Secret, which all of them write.
"""

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import aiohttp
import pytest

from tests.pki.fake_secrets import MADE_BY_US
from tests.system.certs import made
from tests.system.evictions import EVICTION_PATH, REQUESTED, Caller, eviction_review
from tests.system.hooked import (
    PROBE,
    TLS_FLAGS,
    fetch_secret,
    put_secret,
    secret_body,
    shake_hands,
    trusting,
)
from tests.system.test_failover import acts
from tests.system.waits import read_metric, wait_true
from tests.world.api import VALIDATING_HOOKS
from tests.world.budgets import DryRun, evict
from tests.world.drains import CREATED
from tests.world.hooks import POD_EVICTION, Hooks, Registration
from tests.world.operatorproc import OperatorProcess
from tests.world.service import Service
from tests.world.world import World

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

REPLICAS: Final = 3
# A new CA is published three seconds before it is used, and the old one for six after that.
LIFE: Final = timedelta(seconds=36)
FLAGS: Final = (*TLS_FLAGS, f"-server-tls.self-signed-cert.expiration={LIFE.seconds}s")
POD: Final = f"{PROBE.name}-0"
PAUSE: Final = timedelta(milliseconds=200)
AFTER: Final = timedelta(seconds=3)
BEGIN: Final = b"BEGIN CERT"


@dataclass(slots=True)
class Seen:
    """What clients saw during their calls."""

    bundles: list[bytes] = field(default_factory=list)
    """Each that was in the configuration, in order."""
    requested: int = 0
    failed: list[str] = field(default_factory=list)

    async def follow(self, world: World, hooks: Hooks) -> None:
        """Record every bundle of the configuration until cancelled."""
        async for event in world.api.follow(VALIDATING_HOOKS):
            if event.object["metadata"]["name"] == hooks.name(POD_EVICTION):
                config = event.object["webhooks"][0]["clientConfig"]
                bundle = base64.b64decode(config.get("caBundle", ""))
                if bundle and bundle not in self.bundles[-1:]:
                    self.bundles.append(bundle)

    async def request_on(self, what: str, send_request: Callable[[], Awaitable[str]]) -> None:
        """Try again and again until cancelled; `send_request` returns what was wrong."""
        while True:
            self.requested += 1
            if wrong := await send_request():
                self.failed.append(f"{what}, after {len(self.bundles)} bundles: {wrong}")
            await asyncio.sleep(PAUSE.total_seconds())

    async def request_replica(self, world: World, operator: OperatorProcess) -> str:
        """Call a replica as an API server does that has the newest bundle, on a new connection."""
        connector = aiohttp.TCPConnector(ssl=trusting(self.bundles[-1]))
        async with aiohttp.ClientSession(connector=connector) as session:
            review = eviction_review(world.namespace, POD, dryRun=True)
            try:
                answer = await Caller(operator, session, REQUESTED).send_request(
                    EVICTION_PATH, review
                )
            except (aiohttp.ClientError, TimeoutError) as error:
                return f"{error!r}"
        return "" if answer.is_allowed else answer.message


async def test_fp33_replicas_that_start_at_once_issue_one_certificate(world: World) -> None:
    """FP-33, TLS-13, TLS-14, SI-19, DEP-92: one writes the empty Secret; all serve and trust that.

    The bundle that is published first is never replaced, and reviews are passed on from then on.
    """
    await world.grant_webhooks()
    await world.create(PROBE)
    async with AsyncExitStack() as stack:
        launches = [world.launch(*TLS_FLAGS) for _ in range(REPLICAS)]
        operators = [await stack.enter_async_context(OperatorProcess(each)) for each in launches]
        wanted = Registration(port=operators[0].tls_port, hooks=(POD_EVICTION,))
        hooks, seen = await world.register(wanted), Seen()
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(seen.follow(world, hooks))
            for operator in operators:
                await operator.wait_ready()
            await hooks.wait_injected()
            leader = await wait_leader(operators)
            data = await fetch_secret(world)
            await wait_true("the bundle seen", lambda: bool(seen.bundles))
            for operator in operators:
                assert await shake_hands(operator.tls_port, trusting(data["ca"])) == _der(data)
                assert await seen.request_replica(world, operator) == ""
            following.cancel()
        assert seen.bundles == [data["ca"]]
        written = [
            call
            for call in await world.judge.calls()
            if (call.verb, call.resource, call.code) == ("update", "secrets", 200)
        ]
        assert len(written) == 1
        expected = [int(operator is not leader) for operator in operators]

        async def is_counted() -> bool:
            return [await count_forwarded(operator) for operator in operators] == expected

        await wait_true("passed on by those that do not lead", is_counted)


async def test_si19_replicas_change_their_ca_and_answer_all_the_while(world: World) -> None:
    """SI-19, DEP-92, LI-13, TLS-14: each bundle is published once, and no review goes unanswered.

    Called by the API server and by new connections, of the replica that leads and of one
    that passes reviews on. A third one, frozen meanwhile, publishes nothing that is over, and
    answers by the new certificate.
    """
    await world.grant_webhooks()
    await put_secret(world, secret_body(made(expiration=LIFE, ca_life=LIFE), labels=MADE_BY_US))
    await world.create(PROBE)
    leader, follower, frozen = [await world.operator(*FLAGS) for _ in range(REPLICAS)]
    async with Service() as service:
        for operator in (leader, follower):
            service.add(operator)
        hooks = await world.register(Registration(port=service.port, hooks=(POD_EVICTION,)))
        await hooks.wait_injected()
        await hooks.wait_called(PROBE.name)
        assert await acts(leader)
        seen = Seen()

        async def request_api() -> str:
            answer = await evict(world.api, world.namespace, POD, dry_run=DryRun.QUERY)
            return "" if answer.status in CREATED else answer.message

        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(seen.follow(world, hooks))
            await wait_true("a bundle seen", lambda: bool(seen.bundles))
            frozen.pause()
            requesting = [
                tasks.create_task(seen.request_on("the API server", request_api)),
                tasks.create_task(
                    seen.request_on("the leader", lambda: seen.request_replica(world, leader))
                ),
                tasks.create_task(
                    seen.request_on("another one", lambda: seen.request_replica(world, follower))
                ),
            ]
            await wait_true("a new CA alone", lambda: len(seen.bundles) == 3)
            frozen.resume()
            for operator in (leader, follower, frozen):
                await wait_serving(world, operator)
            assert await seen.request_replica(world, frozen) == ""
            await asyncio.sleep(AFTER.total_seconds())  # in which nothing may be published
            for task in (*requesting, following):
                task.cancel()
        assert [bundle.count(BEGIN) for bundle in seen.bundles] == [1, 2, 1]
        assert seen.bundles[-1] == (await fetch_secret(world))["ca"]
        assert seen.failed == [], f"of {seen.requested}"
        assert await count_forwarded(follower) > 0
        for outcome in ("unreachable", "late", "unusable", "too_many"):
            assert await count_forwarded(follower, outcome) == 0


async def wait_leader(operators: Sequence[OperatorProcess]) -> OperatorProcess:
    """Wait until one of them acts, and return it."""
    found: list[OperatorProcess] = []

    async def is_led() -> bool:
        found[:] = [operator for operator in operators if await acts(operator)]
        return bool(found)

    await wait_true("one acts", is_led)
    return found[0]


async def count_forwarded(operator: OperatorProcess, outcome: str = "answered") -> int:
    """Return how many reviews of evictions it was to pass on, by what became of them."""
    name, hook = "rollout_operator_forwarded_reviews_total", "admission_pod_eviction"
    return int(await read_metric(operator, name, hook=hook, outcome=outcome) or 0)


async def wait_serving(world: World, operator: OperatorProcess) -> None:
    """Wait until a replica serves what is stored, by the CA that is stored."""

    async def is_served() -> bool:
        data = await fetch_secret(world)
        try:
            return await shake_hands(operator.tls_port, trusting(data["ca"])) == _der(data)
        except (ssl.SSLError, OSError):
            return False

    await wait_true("served what is stored", is_served)


def _der(data: Mapping[str, bytes]) -> bytes:
    return ssl.PEM_cert_to_DER_cert(data["cert"].decode())
