"""Several replicas that share one certificate, are upgraded under load, and are killed at random.

What each of them serves, publishes and trusts comes from one Secret, which all of them write.
"""

import asyncio
import base64
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import aiohttp
import pytest
from rollout_lab.zones import ZoneSpec

from rollout_operator.pki.certificates import issue_ca, issue_leaf
from rollout_operator.planning.certificate import Wanted
from tests.kills.campaign import LIMITS, Round, play
from tests.pki.stage import MADE_BY_US
from tests.system.hooked import (
    EVICTION_PATH,
    HOST,
    PROBE,
    TLS_FLAGS,
    Caller,
    eviction_review,
    fetch_secret,
    put_secret,
    secret_body,
    shake_hands,
    trusting,
)
from tests.system.waits import acts, read_metric, wait_true
from tests.system.zones import create_budgets, prepared_zone
from tests.world.api import PODS, VALIDATING_HOOKS, Answer, Json
from tests.world.budgets import TRY_AGAIN, ZONE_BUDGETS, DryRun, evict, grouped_zones, zone_budget
from tests.world.clients import CREATED, UNANSWERED, Drain, Route, Workload, list_victims
from tests.world.hooks import (
    NO_DOWNSCALE,
    POD_EVICTION,
    PREPARE_DOWNSCALE,
    ZPDB_VALIDATION,
    Hooks,
    Registration,
)
from tests.world.kubelet import Behaviour, Kind, always
from tests.world.operatorproc import OperatorProcess
from tests.world.service import Service
from tests.world.world import World

pytestmark = pytest.mark.controlplane

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
                answer = await Caller(operator, session).send_request(EVICTION_PATH, review)
            except (aiohttp.ClientError, TimeoutError) as error:
                return f"{error!r}"
        return "" if answer.is_allowed else answer.message


@pytest.mark.slow
async def test_fp33_replicas_that_start_at_once_issue_one_certificate(world: World) -> None:
    """FP-33, TLS-13, TLS-14, SI-19, DEP-92: one writes the empty Secret; all serve and trust that.

    The bundle that is published first is never replaced, and reviews are passed on from then on.
    """
    await world.grant("webhooks")
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
                # One that does not lead knows who does a moment later.
                await wait_true("answered", partial(_is_answered, seen, world, operator))
            following.cancel()
        assert seen.bundles == [data["ca"]]
        written = [
            call
            for call in await world.judge.calls()
            if (call.verb, call.resource, call.code) == ("update", "secrets", 200)
        ]
        assert len(written) == 1

        async def is_counted() -> bool:
            counts = [await count_forwarded(one) for one in operators if one is not leader]
            return min(counts) > 0

        await wait_true("passed on by those that do not lead", is_counted)


async def _is_answered(seen: Seen, world: World, operator: OperatorProcess) -> bool:
    return await seen.request_replica(world, operator) == ""


@pytest.mark.slow
async def test_si19_replicas_change_their_ca_and_answer_all_the_while(world: World) -> None:
    """SI-19, DEP-92, LI-13, TLS-14: each bundle is published once, and no review goes unanswered.

    Called by the API server and by new connections, of the replica that leads and of one
    that passes reviews on. A third one, frozen meanwhile, publishes nothing that is over, and
    answers by the new certificate.
    """
    await world.grant("webhooks")
    await put_secret(world, secret_body(make_data(), labels=MADE_BY_US))
    await world.create(PROBE)
    leader, follower, frozen = [await world.operator(*FLAGS) for _ in range(REPLICAS)]
    async with Service() as service:
        for operator in (leader, follower):
            service.add(operator)
        wanted = Registration(port=service.port, hooks=(POD_EVICTION,))
        hooks = await world.register(wanted, PROBE.name)
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


def make_data() -> dict[str, bytes]:
    """Return the data of a Secret of ours whose certificates live as long as those of `FLAGS`."""
    now = datetime.now(UTC)
    wanted = Wanted(names=(HOST,), organisation="", expiration=LIFE, ca_life=LIFE)
    ca = issue_ca(wanted, now)
    leaf = issue_leaf(ca, wanted, now)
    return {"ca": ca.cert, "ca-key": ca.key, "cert": leaf.cert, "key": leaf.key}


async def wait_leader(operators: Sequence[OperatorProcess]) -> OperatorProcess:
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


RATE: Final = 10
"""Of each kind, a second. Measured with 50, too: docs/install.md."""
UPGRADES: Final = 2
DRAIN_LIMIT: Final = timedelta(seconds=120)
ALL_HOOKS: Final = (NO_DOWNSCALE, PREPARE_DOWNSCALE, POD_EVICTION, ZPDB_VALIDATION)
HELD: Final = "held"
"""A group with a pod that never gets ready: no pod of its other zones may go."""
DRAINED: Final = "drained"
# As shipped: the other tests do not wait.
SHIPPED: Final = (*TLS_FLAGS, "-server-tls.shutdown-delay=5s")
KEPT: Final = ZoneSpec(
    name="kept", group=None, replicas=2, labels={"grafana.com/no-downscale": "true"}
)


@dataclass(slots=True)
class Load:
    """Sends one review again and again; each answer must be the same refusal."""

    send_request: Callable[[], Awaitable[Answer]]
    words: str
    """Of the refusal, while an operator leads."""
    may_wait: bool = False
    """Whether only the replica that leads decides it: there is a moment without any."""
    outcomes: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        """Call at `RATE`, without waiting for answers, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._request())
                await asyncio.sleep(1 / RATE)

    async def _request(self) -> None:
        answer = await self.send_request()
        self.outcomes[self._judge(answer)] += 1

    def _judge(self, answer: Answer) -> str:
        if answer.status >= 400 and self.words in answer.message:
            return "right"
        if self.may_wait and answer.status == TRY_AGAIN and UNANSWERED not in answer.message:
            return "limited" if "rate limiter" in answer.message else "wait"
        return f"wrong: {answer.status} {answer.message}"


@pytest.mark.slow
async def test_dep94_upgrades_under_load_fail_no_call(world: World) -> None:
    """DEP-91, DEP-92, DEP-94: reviews of each kind and a drain go on over upgrades.

    No call fails, no verdict is wrong, and what is to be tried again is so for moments.
    """
    pods = await world.serve_pods()
    budgets = [zone_budget(group, {"rollout-group": group}) for group in (HELD, DRAINED)]
    await create_budgets(world, budgets)
    await world.grant("webhooks")
    held = [prepared_zone(pods, zone, wait="1h") for zone in grouped_zones(HELD)]
    await world.create(*held, *grouped_zones(DRAINED), KEPT)
    async with Service() as service:
        operator = await world.operator(*SHIPPED)
        service.add(operator)
        wanted = Registration(port=service.port, hooks=ALL_HOOKS)
        await world.register(wanted, f"{HELD}-zone-a")
        await hold_back(world)
        async with under_load(world) as loads:
            drain = Drain(world.api, world.namespace)
            victims = await list_victims(world.api, world.namespace, [f"{DRAINED}-zone-a"])
            draining = asyncio.create_task(drain.run(victims, DRAIN_LIMIT))
            for _ in range(UPGRADES):
                operator = await upgrade(world, service, operator)
            await draining
    for load in loads:
        wrong = {text: n for text, n in load.outcomes.items() if text.startswith("wrong")}
        assert not wrong, wrong
        assert load.outcomes["right"] > 0, load.outcomes
        assert load.outcomes["wait"] <= UPGRADES * RATE * 4, load.outcomes
    assert not [answer for _, answer in drain.answers if UNANSWERED in answer.message]
    assert service.refused == 0
    await world.judge.assert_clean()


async def upgrade(world: World, service: Service, old: OperatorProcess) -> OperatorProcess:
    """Replace an operator as the Deployment does: the next is ready before it ends."""
    new = await world.operator(*SHIPPED)
    service.add(new)
    assert await service.end(old) == 0
    return new


async def hold_back(world: World) -> None:
    """Replace a pod of a zone by one that never gets ready."""
    name = f"{HELD}-zone-a-0"
    before = (await world.get(PODS, name))["metadata"]["uid"]

    def is_stuck(pod: Json) -> bool:
        is_new = pod["metadata"]["uid"] != before
        return bool(is_new and pod["status"].get("phase") == "Running")

    with world.kubelet.choosing(always(Behaviour(kind=Kind.NEVER_READY))):
        answer = await evict(world.api, world.namespace, name)
        assert answer.status in CREATED, answer
        await world.wait_pod(name, "running, and not ready", is_stuck)


@asynccontextmanager
async def under_load(world: World) -> AsyncIterator[list[Load]]:
    """Send all kinds of reviews meanwhile."""
    kept = Workload(api=world.api, namespace=world.namespace, name=KEPT.name)
    scaled = Workload(api=world.api, namespace=world.namespace, name=f"{HELD}-zone-b")
    empty = zone_budget("empty", {})
    loads = [
        Load(lambda: kept.scale(1, Route.MERGE, is_dry_run=True), "no-downscale"),
        Load(
            lambda: world.api.exchange(
                "POST", ZONE_BUDGETS.path(world.namespace), body=empty, query={"dryRun": "All"}
            ),
            "selector is empty",
        ),
        Load(
            lambda: evict(world.api, world.namespace, f"{HELD}-zone-b-0", dry_run=DryRun.QUERY),
            f"{HELD}-zone-a",
            may_wait=True,
        ),
        Load(lambda: scaled.scale(2, Route.MERGE), f"{HELD}-zone-a", may_wait=True),
    ]
    tasks = [asyncio.create_task(load.run()) for load in loads]
    try:
        yield loads
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# Of these kills two take the pod along, and three do not; the stop hits the one that acts.
GATE: Final = Round(
    seed=103,
    replicas=3,
    kills=6,
    stops=1,
    ends=1,
    is_dense=False,
    frozen_for=timedelta(seconds=20),
    longest_pause=2.0,
    lost_share=0.4,
)


@pytest.mark.slow
async def test_li08_operators_that_are_killed_frozen_and_ended(world: World) -> None:
    """LI-08, LI-01, SI-22, FP-06, FP-18, FP-35: another one acts in time, and nothing is broken.

    Under rollouts, drains and downscales that are prepared; `python -m tests.prove kills` plays
    more rounds.
    """
    figures = await play(world, GATE)
    assert figures.list_late() == [], figures.render()
    assert all(figures.spans[hit] for hit in LIMITS), figures.render()
