"""What any client in the cluster may send to the TLS port: a refusal comes back, or nothing."""

import asyncio
import json
import ssl
import time
from contextlib import AsyncExitStack, suppress
from copy import deepcopy
from datetime import UTC, datetime
from typing import Final

import msgspec
import pytest
from rollout_lab.zones import ZoneSpec

from tests.system.guarded import LAST_DOWNSCALE, NO_DOWNSCALE, Guarded, guard, prepared_zone
from tests.system.hooked import HOST, fetch_secret, send_bytes, shake_hands, trusting
from tests.world.api import PODS, STATEFULSETS, Json
from tests.world.clients import Route
from tests.world.world import World

pytestmark = pytest.mark.controlplane

# Answered or given up after 0.9 s.
QUERY: Final = "?timeout=1s"
MARK: Final = "mark-of-a-body-0815"
FLAGS: Final = ("-log.level=debug", "-no-downscale.fail-closed=true")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A world to attack."""

    guarded: Guarded
    context: ssl.SSLContext
    kept: Json
    """A set of three with the label no-downscale, as it is stored."""
    prepared: Json


def review(old: Json, replicas_to: object, **request: object) -> Json:
    """Return a review of a StatefulSet as the API server holds it, that is to be scaled."""
    new = deepcopy(old)
    new["spec"]["replicas"] = replicas_to
    new["metadata"].setdefault("annotations", {})["note"] = MARK
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "kind": {"group": "apps", "version": "v1", "kind": "StatefulSet"},
            "resource": {"group": "apps", "version": "v1", "resource": "statefulsets"},
            "operation": "UPDATE",
            "namespace": old["metadata"]["namespace"],
            "name": old["metadata"]["name"],
            "userInfo": {"username": "mallory"},
            "object": new,
            "oldObject": old,
            "dryRun": False,
            **request,
        },
    }


def post(path: str, body: bytes) -> bytes:
    """Return a whole request after which the connection ends."""
    head = [
        f"POST {path}{QUERY} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


async def _target(world: World, *flags: str) -> Target:
    pods = await world.serve_pods()
    kept = ZoneSpec(name="kept", group=None, labels={NO_DOWNSCALE: "true"})
    guarded = await guard(
        world, prepared_zone(pods, ZoneSpec(name="prep")), kept, pods=pods, flags=flags or FLAGS
    )
    (bundle, *_) = await guarded.hooks.wait_injected()
    stored = [await world.get(STATEFULSETS, name) for name in ("kept", "prep")]
    return Target(guarded=guarded, context=trusting(bundle), kept=stored[0], prepared=stored[1])


async def _assert_silent_about(world: World, target: Target) -> None:
    """Find nothing secret, and nothing of what was sent, in all that the operator shows."""
    operator = target.guarded.operator
    data = await fetch_secret(world)
    pages = [(await operator.fetch(path))[1] for path in ("/metrics", "/status", "/ready")]
    shown = "\n".join([operator.log.read_text(errors="replace"), *pages])
    for key in ("key", "ca-key"):
        for line in data[key].decode().splitlines()[1:-1]:
            assert line not in shown, f"SEC-14: {key}"
    assert "PRIVATE KEY" not in shown
    assert world.token not in shown
    assert world.token.rpartition(".")[2] not in shown
    assert "Bearer" not in shown
    assert MARK not in shown, "SI-23"
    assert "\x1b" not in shown


async def _post(target: Target, hook: str, tree: Json) -> Json:
    """Return the answer to a review that is one."""
    port = target.guarded.operator.tls_port
    body = json.dumps(tree).encode()
    came = await send_bytes(port, target.context, post(f"/admission/{hook}", body))
    assert came.startswith(b"HTTP/1.1 200 "), came
    answer: Json = json.loads(came.partition(b"\r\n\r\n")[2])
    return answer


async def test_sec09_forged_reviews_move_nothing(world: World) -> None:
    """SEC-09, SEC-14, SI-13, ADM-05: counts, names and namespaces are those of the store.

    Nothing of what was sent is shown anywhere. What is no review at all is sent over TLS in
    `tests/web/test_webhooks.py` and `tests/web/http`.
    """
    target = await _target(world)
    pods, real = target.guarded.pods, target.prepared

    def forge(counts: tuple[int, int], **metadata: object) -> Json:
        old = deepcopy(real)
        old["spec"]["replicas"] = counts[0]
        old["metadata"].update(metadata)
        return review(old, counts[1])

    elsewhere = forge((3, 1), namespace="kube-system")
    for tree, text in (
        (forge((9, 1)), "the API server shows it with 3 replicas"),
        (forge((2**31 - 1, 0)), "the API server shows it with 3 replicas"),
        (forge((3, 1), uid="another"), "does not confirm that it exists"),
        (forge((3, 1), name="none"), ""),
        (elsewhere, "namespace kube-system is not looked after by this operator"),
    ):
        answer = (await _post(target, "prepare-downscale", tree))["response"]
        assert (answer["uid"], answer["allowed"]) == ("u-1", False), answer
        assert text in answer["status"]["message"]
    old_kind = {**review(target.kept, 2), "apiVersion": "admission.k8s.io/v1beta1"}
    answer = await _post(target, "no-downscale", old_kind)
    assert (answer["apiVersion"], answer["response"]["allowed"]) == (
        "admission.k8s.io/v1beta1",
        False,
    )
    dry = review(real, 1, dryRun=True)
    assert (await _post(target, "prepare-downscale", dry))["response"]["allowed"] is True
    assert pods.calls == []
    for number in range(3):
        pod = await world.get(PODS, f"prep-{number}")
        assert not [key for key in pod["metadata"].get("annotations", {}) if "downscale" in key]
    answer_of_all = await target.guarded.workload("prep").scale(2, Route.MERGE)
    assert answer_of_all.status == 200, "nothing is reserved"
    await _assert_silent_about(world, target)


WAIT: Final = "grafana.com/min-time-between-zones-downscale"
NOT_IN_EARNEST: Final = (
    {LAST_DOWNSCALE: "2999-01-01T00:00:00Z"},
    {LAST_DOWNSCALE: "9999-12-31T23:59:59+14:00"},
    {LAST_DOWNSCALE: "0000-00-00T00:00:00Z"},
    {LAST_DOWNSCALE: "2026-01-01T00:00:00-99:99"},
    {LAST_DOWNSCALE: "9" * 10240},
    {LAST_DOWNSCALE: "\x1b[31m"},
    {WAIT: "1h\n"},
    {WAIT: "9" * 9 + "h"},
    {WAIT: "2562047h47m16.9s"},
    {WAIT: "-5h"},
)


async def test_sec25_times_that_no_one_wrote_in_earnest(world: World) -> None:
    """SEC-25, SI-23: a wait is never shortened, and what cannot be read refuses."""
    pods = await world.serve_pods()
    zones = [prepared_zone(pods, ZoneSpec(name=name), wait="1h") for name in ("a", "b")]
    guarded = await guard(world, *zones, pods=pods, flags=FLAGS)
    lately = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for annotations in NOT_IN_EARNEST:
        changes = {LAST_DOWNSCALE: lately, WAIT: None, **annotations}
        await world.annotate("b", **changes)

        answer = await guarded.workload("a").scale(2, Route.SCALE_MERGE)

        assert 400 <= answer.status < 500, (annotations, answer)
        assert answer.message.isprintable()
        assert len(answer.message) < 4500
    assert pods.calls == []
    assert guarded.operator.is_running
    assert "\x1b" not in guarded.operator.log.read_text()


async def test_sec06_idle_strangers_do_not_shut_out_the_api_server(world: World) -> None:
    """SEC-01, 02, 05, 06, in small amounts: silent, half, idle, plain, and old versions of TLS."""
    target = await _target(world, "-log.level=debug")
    operator = target.guarded.operator
    before = operator.resident_kib()
    async with AsyncExitStack() as stack:
        for number in range(450):
            context = (None, None, target.context)[number % 3]
            _, writer = await asyncio.open_connection(
                "127.0.0.1", operator.tls_port, ssl=context, server_hostname=context and HOST
            )
            stack.push_async_callback(_cut, writer)
            if number % 3 == 1:
                writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
            elif number % 6 == 2:
                writer.write(b"POST /admission/no-downscale HTTP/1.1\r\nHost: a")
        for _ in range(20):
            begin = time.monotonic()
            answer = await target.guarded.workload("kept").scale(2, Route.MERGE)
            assert answer.status == 400
            assert "has the label" in answer.message
            assert time.monotonic() - begin < 3
    assert operator.resident_kib() - before < 64 * 1024, "D-50"
    assert await send_bytes(operator.tls_port, None, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") == b""
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("AES128-SHA:AES256-SHA:@SECLEVEL=0")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await shake_hands(operator.tls_port, old)
    assert "Traceback" not in operator.log.read_text()
    await _assert_silent_about(world, target)


async def _cut(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()
