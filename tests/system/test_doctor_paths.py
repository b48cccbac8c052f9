"""`doctor` calls pods where they are to be prepared, through the proxy of the real API server."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from rollout_operator.cli.access import ACCESS_FLAGS, choose_access, open_client
from rollout_operator.config.grammar import parse_arguments
from rollout_operator.model.diagnosis import Diagnosis, FindingCode
from rollout_operator.operator.examine import examine
from tests.system.guarded import PATH, prepared_zone
from tests.system.test_status_command import find_address
from tests.world import webpods
from tests.world.plane import ADMIN
from tests.world.webpods import Hang, Reset, Respond
from tests.world.world import World

pytestmark = pytest.mark.controlplane

CHECK: Final = "pods answer where they are prepared"
CODES: Final = {FindingCode.PREPARE_PATH_UNKNOWN, FindingCode.PREPARE_UNANSWERED}

Examine = Callable[[str], Awaitable[tuple[str, str]]]
"""With a token; returns what is found and what is recorded of the check."""


@pytest.fixture
def examine_as(world: World, tmp_path: Path) -> Examine:
    async def examined(token: str) -> Diagnosis:
        file = world.plane.kubeconfig(tmp_path / "some.conf", token)
        words = [f"-kubeconfig={file}", f"-n={world.namespace}"]
        async with open_client(choose_access(parse_arguments(ACCESS_FLAGS, words))) as client:
            return await examine(client, world.namespace, datetime.now(UTC))

    async def examine_as(token: str) -> tuple[str, str]:
        diagnosis = await examined(token)
        found = [f"{one.code} {one.text}" for one in diagnosis.findings if one.code in CODES]
        skipped = [one.why for one in diagnosis.skipped if one.check == CHECK]
        return "".join(found), "".join(skipped)

    return examine_as


async def test_what_the_api_server_does_not_pass_on_is_no_finding(
    world: World, examine_as: Examine
) -> None:
    """The API server calls no loopback address; nothing is learnt of the pods then."""
    world.may_be_forbidden = True
    pods = await world.serve_pods()
    await world.create(prepared_zone(pods, ZoneSpec(name="near", replicas=1)))
    await world.wait_ready(["near"])

    found, skipped = await examine_as(world.plane.tokens[ADMIN])
    requested = f"GET /{PATH} on port {pods.port} of pod near-0"
    assert (found, skipped) == ("", f"{requested}: 400 BadRequest: address not allowed")
    found, skipped = await examine_as(world.token)
    assert (found, skipped) == ("", f"may not get pods/proxy in namespace {world.namespace}")
    assert pods.calls == []


async def test_what_a_pod_answers_through_the_api_server(
    world: World, examine_as: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = find_address()
    if address is None:
        pytest.skip("this machine has loopback addresses only, and the API server calls none")
    monkeypatch.setattr(webpods, "next_address", lambda: address)
    pods = await world.serve_pods()
    await world.create(prepared_zone(pods, ZoneSpec(name="far", replicas=1)))
    await world.wait_ready(["far"])
    admin = world.plane.tokens[ADMIN]
    requested = f"GET /{PATH} on port {pods.port} of pod far-0"

    for status in (200, 405, 503):
        pods.behave("", Respond(status=status, body=b"unset"))
        assert await examine_as(admin) == ("", "")
    assert {(call.method, call.path) for call in pods.calls} == {("GET", f"/{PATH}")}
    assert not pods.is_prepared("far-0")

    pods.behave("", Respond(status=401))
    assert await examine_as(admin) == ("", f"{requested}: HTTP status 401")
    pods.behave("", Respond(status=404, body=b"404 page not found"))
    assert await examine_as(admin) == (f"prepare_path_unknown {requested}: HTTP status 404", "")
    pods.behave("", Hang())
    assert await examine_as(admin) == (f"prepare_unanswered {requested}: no answer within 5s", "")
    pods.behave("", Reset())
    assert (await examine_as(admin))[0].startswith(f"prepare_unanswered {requested}: ")
    await pods.refuse("far-0")
    found, _ = await examine_as(admin)
    assert found.startswith(f"prepare_unanswered {requested}: ")
    assert found.endswith("connection refused")
