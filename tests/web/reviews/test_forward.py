"""Reviews on their way to the replica that leads, over real TLS: DEP-92, D-71."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from msgspec.structs import replace

from rollout_operator.model.outcome import Code, Reason, Verdict
from rollout_operator.model.scaling import Review
from rollout_operator.pki.certificates import KeyMaterial, carry_out
from rollout_operator.planning.certificate import CertificateStep, Decision
from rollout_operator.web.dispatch import MOST, MOST_ANSWER, MOST_UNCONFIRMED
from tests.pki.certificates import WANTED, Legacy
from tests.web.peers_world import (
    PATH,
    SPAN,
    Follower,
    Leader,
    following,
    fresh,
    leading,
    serving_of,
    strange_server,
)
from tests.web.webhook_world import (
    ALLOWED,
    FINE,
    Gate,
    Setting,
    WebhookWorld,
    body_of,
    post,
    serving,
)

REFUSED = Verdict(
    is_allowed=False,
    reason=Reason(code=Code.ZONE_NOT_READY, text="zone-b has 2 of 3 pods ready"),
    code=429,
    retry_after=timedelta(seconds=7),
)
SHORT = timedelta(seconds=1)


@asynccontextmanager
async def both() -> AsyncIterator[tuple[Leader, Follower]]:
    """Run a replica that leads and one that follows, with the certificate of one Secret."""
    serving = serving_of(fresh())
    async with leading(serving) as leader, following(serving, leader.port) as follower:
        yield leader, follower


@asynccontextmanager
async def front(follower: Follower) -> AsyncIterator[tuple[WebhookWorld, list[Code]]]:
    """Serve a replica's webhooks as API servers call them; yield the codes of its own verdicts."""
    reported: list[Code] = []
    setting = Setting(
        on_verdict=lambda path, review, verdict: reported.append(verdict.reason.code),
        hooks={PATH: follower.led},
        keeps=lambda path: follower.led.forwards,
    )
    async with serving(setting) as world:
        yield world, reported


def assert_refused(answer: Verdict | bytes, *parts: str) -> None:
    """Check that the answer says to try again, and why."""
    assert isinstance(answer, Verdict)
    assert (answer.is_allowed, answer.code, answer.reason.code) == (False, 429, Code.NOT_ELECTED)
    assert answer.retry_after == timedelta(seconds=2)
    for part in (*parts, "try again"):
        assert part in answer.reason.text


async def test_dep92_the_answer_of_the_leader_is_passed_back_as_it_is() -> None:
    """DEP-92: both verdicts, byte for byte; one connection serves many reviews."""
    async with both() as (leader, follower):
        assert await follower.send_request() == ALLOWED
        leader.hook.verdict = REFUSED
        answer = await follower.send_request()
        assert isinstance(answer, bytes)
        assert b'"retryAfterSeconds":7' in answer
        assert b"zone-b has 2 of 3 pods ready" in answer
        assert [review.uid for review in leader.hook.reviewed] == ["u-1", "u-1"]
        assert follower.hook.reviewed == []
        assert follower.count() == {"answered": 2}


async def test_dep92_the_leader_gets_the_same_question() -> None:
    """DEP-92: also where the body was large, of which only what decides is sent on."""
    annotations = {f"key-{number}": "x" * 1000 for number in range(200)}
    tree = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "zone-a", "uid": "u-2", "annotations": annotations},
        "spec": {"replicas": 2, "serviceName": "zone-a"},
    }
    async with both() as (leader, follower):
        assert await follower.send_request(object=tree) == ALLOWED
        (requested,) = leader.hook.reviewed
        follower.is_leading = True
        await follower.send_request(object=tree)
        assert follower.hook.reviewed == [requested]
        assert len(body_of(object=tree)) > 200_000


async def test_dep92_a_review_goes_all_the_way() -> None:
    """DEP-92: from an API server over two replicas; counted and logged by the one that decides."""
    async with both() as (leader, follower), front(follower) as (world, reported):
        answer = await world.send_request(post(body_of(), path=PATH))
        assert (answer.status, answer.body) == (200, ALLOWED)
        assert reported == []
        follower.lease = None
        answer = await world.send_request(post(body_of(), path=PATH))
        assert b'"allowed":false' in answer.body
        assert reported == [Code.NOT_ELECTED]
        assert len(leader.hook.reviewed) == 1


async def test_dep92_what_a_review_alone_decides_is_not_passed_on() -> None:
    """DEP-92: it is answered without a leader, too."""
    async with both() as (leader, follower):
        follower.led = replace(follower.led, assess=lambda review: REFUSED)
        assert await follower.send_request() == REFUSED
        assert leader.hook.reviewed == []


async def test_dep92_a_replica_that_leads_passes_nothing_on() -> None:
    async with both() as (leader, follower):
        follower.is_leading = True
        assert await follower.send_request() == FINE
        assert leader.hook.reviewed == []


async def test_dep92_what_was_passed_on_is_not_passed_on_again() -> None:
    """DEP-92: two replicas that each take the other for the leader end the matter at once."""
    serving = serving_of(fresh())
    async with leading(serving) as leader, following(serving, leader.port) as follower:
        leader.is_leading = False
        answer = await follower.send_request()
        assert isinstance(answer, bytes)
        assert b'"allowed":false' in answer
        assert b'"code":429' in answer
        assert leader.hook.reviewed == []


async def test_dep92_without_a_leader_there_is_a_refusal() -> None:
    """DEP-92: no Lease, or one without an address."""
    async with both() as (leader, follower):
        assert follower.lease is not None
        for lease in (None, type(follower.lease)(version="1", holder="old_1")):
            follower.lease = lease
            assert not follower.led.forwards
            assert_refused(await follower.send_request())
        assert leader.hook.reviewed == []
        assert follower.count() == {}


async def test_dep92_the_leader_has_what_is_left_of_the_time() -> None:
    """DEP-92, D-20: and answers so early that its answer can be passed back in time."""
    async with both() as (leader, follower):
        await follower.send_request(SPAN / 2)
        (until,) = leader.hook.until
        left = until - follower.clock.elapsed()
        assert timedelta(seconds=4.4) < left < timedelta(seconds=4.8)
        assert_refused(
            await follower.send_request(timedelta(milliseconds=200)), "in the time that is left"
        )
        assert len(leader.hook.reviewed) == 1


async def test_dep92_a_leader_whose_time_is_up_says_so_itself() -> None:
    """DEP-92: early enough that it is heard."""
    async with both() as (leader, follower):
        leader.hook.act = Gate()
        # Both wait on this one loop: on a busy machine the moments between them may be lost.
        answers = [await follower.send_request(SHORT) for _ in range(5)]
        own = [answer for answer in answers if isinstance(answer, bytes)]
        assert own
        assert all(b"no answer within" in answer for answer in own)


async def test_dep92_a_leader_that_takes_a_connection_and_says_nothing(lines: list[str]) -> None:
    """DEP-92: as one that was frozen; reported once as a warning."""
    serving = serving_of(fresh())

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.transport.abort()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    async with silent, following(serving, port) as follower:
        began = follower.clock.elapsed()
        answers = await asyncio.gather(*(follower.send_request(SHORT) for _ in range(3)))
        assert follower.clock.elapsed() - began < SHORT
        for answer in answers:
            assert_refused(answer, "leader_1, which does, did not answer within")
        assert follower.count() == {"late": 3}
    reported = [line for line in lines if "Replica that leads does not answer reviews" in line]
    assert ["level=warn" in line for line in reported] == [True, False, False]


async def test_dep92_a_leader_that_is_gone() -> None:
    """DEP-92: and a replica that comes back is tried again."""
    serving = serving_of(fresh())
    async with leading(serving) as leader:
        port = leader.port
    async with following(serving, port) as follower:
        assert_refused(await follower.send_request(), "could not be reached")
        async with leading(serving) as leader:
            assert follower.lease is not None
            follower.lease = type(follower.lease)(
                version="2", holder="leader_2", address=f"127.0.0.1:{leader.port}"
            )
            assert await follower.send_request() == ALLOWED
        assert follower.count() == {"unreachable": 1, "answered": 1}


async def test_dep92_a_stranger_at_the_address_learns_nothing() -> None:
    """DEP-92: a client that edits the Lease gets no review, and no verdict through."""
    requested: list[str] = []

    async def allow(request: web.Request) -> web.StreamResponse:
        requested.append(request.path)
        return web.Response(body=ALLOWED)

    async with (
        strange_server(allow, serving_of(fresh()).current) as port,
        following(serving_of(fresh()), port) as follower,
    ):
        assert_refused(await follower.send_request(), "did not prove to be one of ours")
    assert requested == []


Odd = Callable[[web.Request], web.StreamResponse]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(lambda _: web.Response(status=503), "status 503", id="an error"),
        pytest.param(
            lambda _: web.Response(status=302, headers={"Location": "https://127.0.0.1:1/"}),
            "status 302",
            id="a redirect",
        ),
        pytest.param(lambda _: web.Response(body=b"yes"), "no answer to it", id="no JSON"),
        pytest.param(lambda _: web.Response(body=b"[" * 60_000), "no answer to it", id="nested"),
        pytest.param(lambda _: web.Response(body=b""), "no answer to it", id="nothing"),
        pytest.param(
            lambda _: web.Response(body=ALLOWED.replace(b"u-1", b"u-2")),
            "no answer to it",
            id="an answer to another review",
        ),
        pytest.param(
            lambda _: web.Response(body=ALLOWED.replace(b"v1", b"v1beta1")),
            "no answer to it",
            id="another version",
        ),
        pytest.param(
            lambda _: web.Response(body=ALLOWED.replace(b"true", b'"true"')),
            "no answer to it",
            id="a text for a truth",
        ),
        pytest.param(
            lambda _: web.Response(body=ALLOWED + b" " * MOST_ANSWER), "no answer to it", id="long"
        ),
    ],
)
async def test_dep92_what_is_no_answer_is_a_refusal(answer: Odd, why: str) -> None:
    """DEP-92: from one of ours that is broken, too: never a verdict."""

    async def say(request: web.Request) -> web.StreamResponse:
        await request.read()
        return answer(request)

    serving = serving_of(fresh())
    async with (
        strange_server(say, serving.peers.accepting) as port,
        following(serving, port) as follower,
    ):
        assert_refused(await follower.send_request(), why)
        assert follower.count() == {"unusable": 1}


async def test_dep92_only_so_many_are_on_their_way() -> None:
    """DEP-92: a flood takes no more connections and memory, and is refused at once."""
    async with both() as (leader, follower):
        gate = leader.hook.act = Gate()
        requesting = [asyncio.create_task(follower.send_request()) for _ in range(MOST)]
        for _ in range(MOST):
            await gate.begun.acquire()
        assert_refused(await follower.send_request(), f"has {MOST} reviews already")
        gate.opened.set()
        assert await asyncio.gather(*requesting) == [ALLOWED] * MOST
        assert await follower.send_request() == ALLOWED
        assert follower.count() == {"answered": MOST + 1, "too_many": 1}


async def test_dep92_made_up_objects_keep_no_place_from_true_ones() -> None:
    """DEP-92, D-68: a stranger names pods that are none; the replica that leads lets each wait."""
    async with both() as (leader, follower):
        follower.unknown = {"made-up"}
        gate = leader.hook.act = Gate()
        requesting = [
            asyncio.create_task(follower.send_request(name="made-up")) for _ in range(MOST)
        ]
        for _ in range(MOST_UNCONFIRMED):
            await gate.begun.acquire()
        why = f"has {MOST_UNCONFIRMED} reviews about objects that are not known here already"
        assert_refused(await follower.send_request(name="made-up"), why)
        true = asyncio.create_task(follower.send_request())
        await gate.begun.acquire()
        gate.opened.set()
        assert await true == ALLOWED
        await asyncio.gather(*requesting)


async def test_dep92_a_caller_that_hangs_up_cancels_the_question() -> None:
    """DEP-92, SI-17: the leader learns of it, and releases what it was about to grant."""
    async with both() as (leader, follower):
        ended = asyncio.Event()

        async def wait(review: Review, until: timedelta) -> Verdict:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return FINE

        leader.hook.act = wait
        requesting = asyncio.create_task(follower.send_request())
        await leader.hook.begun.wait()
        requesting.cancel()
        async with asyncio.timeout(5):
            await ended.wait()
        with pytest.raises(asyncio.CancelledError):
            await requesting


async def test_si19_replicas_understand_each_other_while_the_ca_changes() -> None:
    """SI-19, DEP-92: the one has the next certificate already, the other one that of before."""
    before = _step(CertificateStep.INTRODUCE_CA, fresh())
    after = _step(CertificateStep.SWITCH_CA, before)
    serving, other = serving_of(before), serving_of(before)
    async with leading(serving) as leader, following(other, leader.port) as follower:
        assert await follower.send_request() == ALLOWED
        serving.swap(after)
        assert await follower.send_request() == ALLOWED
        other.swap(after)
        assert await follower.send_request() == ALLOWED
        serving.swap(before)
        await follower.forwarder.close()
    async with leading(serving) as leader, following(other, leader.port) as follower:
        assert await follower.send_request() == ALLOWED


def test_dep92_a_certificate_of_an_earlier_operator_is_not_shown() -> None:
    """DEP-92: a Secret that was taken over may hold one that is for servers only."""
    assert serving_of(_of_an_earlier_operator()).peers.calling is None


async def test_dep92_a_caller_without_a_certificate_passes_nothing_on() -> None:
    serving, old = serving_of(fresh()), serving_of(_of_an_earlier_operator())
    async with leading(serving) as leader, following(old, leader.port) as follower:
        assert not follower.led.forwards
        assert_refused(await follower.send_request())
        assert leader.hook.reviewed == []


def _step(step: CertificateStep, material: KeyMaterial) -> KeyMaterial:
    decision = Decision(step=step, reason="it is time")
    return carry_out(decision, material, WANTED, datetime.now(UTC))


def _of_an_earlier_operator() -> KeyMaterial:
    data = Legacy().data()
    return KeyMaterial(cert=data["cert"], key=data["key"], ca=data["ca"])
