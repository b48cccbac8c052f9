"""What is written on a pod that goes, and what answers to that mean (SI-17, D-10)."""

from collections.abc import Sequence

import msgspec
import pytest

from rollout_operator.guards.grants import TRY_AGAIN, Grant, Recorder
from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.model.budget import DisruptionSource, Record
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    Denied,
    NotFound,
    UnknownOutcome,
    Unreachable,
)
from tests.builders import NOW, pod
from tests.fakes_clock import FakeClock

KEY = "grafana.com/rollout-operator-disruption"
PATH = "/metadata/annotations/grafana.com~1rollout-operator-disruption"
POD = pod("a", 0, resource_version="7")
FORBIDDEN = Denied("patch pods: forbidden", status=403)


class Patched:
    """A Patcher that keeps what it is given and answers what a test wants."""

    def __init__(self) -> None:
        self.patches: list[JsonObject | Sequence[JsonObject]] = []
        self.error: ApiError | None = None

    async def wait_turn_to_patch(self, resource: Resource, namespace: str, name: str) -> None:
        """Wait for nothing."""

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
        *rest: object,
        **how: object,
    ) -> bytes:
        assert (resource.plural, namespace, name) == ("pods", "test", "zone-a-0")
        self.patches.append(patch)
        if self.error is not None:
            raise self.error
        return b"{}"


def make() -> tuple[Patched, FakeClock, Recorder, Grant]:
    """Return a recorder of process `x`, and a grant that it is to write."""
    client, clock = Patched(), FakeClock()
    grant = Grant(
        pod=POD, engine=DisruptionSource.ROLLOUT, budget="ingester", begun=clock.elapsed()
    )
    return client, clock, Recorder(client, clock, "x"), grant


async def test_si17_a_record_names_the_pod_and_the_version_it_was_decided_on() -> None:
    """A merge patch with identity in it is a compare-and-swap."""
    client, _, recorder, grant = make()
    record = await recorder.write(grant, lambda: NOW)
    assert record == Record(uid=POD.uid, by="x", at=NOW, engine=DisruptionSource.ROLLOUT)
    (patch,) = client.patches
    assert patch == {
        "metadata": {"uid": "uid-a-0", "resourceVersion": "7", "annotations": {KEY: grant.record}}
    }
    for text in ('"uid":"uid-a-0"', '"by":"x"', '"at":"2026-01-01T12:00:00Z"', '"rollout"'):
        assert text in grant.record
    assert msgspec.json.decode(grant.record, type=Record) == record


@pytest.mark.parametrize(
    "error", [Conflict("no"), NotFound("no"), Unreachable("no"), UnknownOutcome("no answer")]
)
async def test_si18_what_was_not_written_is_raised(error: ApiError) -> None:
    """SI-18: without an answer it is known what may stand there."""
    client, _, recorder, grant = make()
    client.error = error
    with pytest.raises(type(error)):
        await recorder.write(grant, lambda: NOW)
    assert grant.record
    assert not recorder.is_forbidden


async def test_fp40_a_role_without_the_verb_is_tried_once_a_minute_until_it_is_mended() -> None:
    client, clock, recorder, grant = make()
    client.error = FORBIDDEN
    for patches in (1, 1, 2):
        assert await recorder.write(grant, lambda: NOW) is None
        assert (grant.record, recorder.is_forbidden) == ("", True)
        assert len(client.patches) == patches
        clock.jump(TRY_AGAIN / 2)
    client.error = None
    clock.jump(TRY_AGAIN / 2)
    assert await recorder.write(grant, lambda: NOW) is not None
    assert await recorder.write(grant, lambda: NOW) is not None
    assert len(client.patches) == 4


async def test_si17_only_the_own_record_is_released() -> None:
    """By its very text, whatever else has changed on the pod."""
    client, _, recorder, grant = make()
    assert await recorder.remove(grant)
    assert client.patches == [], "nothing was written yet"
    await recorder.write(grant, lambda: NOW)
    client.patches.clear()
    assert await recorder.remove(grant)
    assert client.patches == [
        [
            {"op": "test", "path": "/metadata/uid", "value": "uid-a-0"},
            {"op": "test", "path": PATH, "value": grant.record},
            {"op": "remove", "path": PATH},
        ]
    ]


@pytest.mark.parametrize(
    ("error", "is_gone"),
    [
        pytest.param(Conflict("test failed", status=422), True, id="another record"),
        pytest.param(NotFound("gone", status=404), True, id="no such pod"),
        pytest.param(Unreachable("refused"), False, id="nothing was sent"),
        pytest.param(UnknownOutcome("no answer"), False, id="no answer"),
        pytest.param(FORBIDDEN, False, id="the role forbids it"),
    ],
)
async def test_si18_whether_a_record_is_gone(error: ApiError, is_gone: bool) -> None:
    client, _, recorder, grant = make()
    await recorder.write(grant, lambda: NOW)
    client.error = error
    assert await recorder.remove(grant) is is_gone


async def test_li07_any_record_is_released_from_the_pod_as_it_was_seen() -> None:
    """Where that fails it is raised."""
    client, _, recorder, _ = make()
    await recorder.clear(POD)
    identity = {"uid": "uid-a-0", "resourceVersion": "7"}
    assert client.patches == [{"metadata": {**identity, "annotations": {KEY: None}}}]
    for error in (Conflict("changed"), FORBIDDEN, Unreachable("refused")):
        client.error = error
        with pytest.raises(type(error)):
            await recorder.clear(POD)
