"""`doctor` calls pods where they are to be prepared, and reports what comes, or why nothing did."""

import asyncio
from datetime import timedelta

import pytest

from rollout_operator.model.diagnosis import FindingCode, PathQuestion
from rollout_operator.model.names import (
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
    ApiError,
    Denied,
    NotFound,
    Unreachable,
)
from rollout_operator.model.objects import Target
from rollout_operator.operator.examine import examine, probe_paths
from tests.controllers.fake_client import pod_json
from tests.operator.diagnosis.test_examine import NAMESPACE, NOW, Cluster
from tests.virtual_time import elapsed, in_virtual_time

TARGET = Target(port=80, path="prepare", service="")
CALLED = "GET /prepare on port 80 of pod zone-a-0"


class Preparing(Cluster):
    """A cluster in which pods of zone-a are prepared, and answer as a test wants."""

    def __init__(self, answer: int | ApiError, *, is_ready: bool = True) -> None:
        super().__init__()
        self.answer = answer
        self.called: list[str] = []
        zone = self.objects["statefulsets", "zone-a"]
        head, spec = zone["metadata"], zone["spec"]
        assert isinstance(head, dict)
        assert isinstance(spec, dict)
        spec["serviceName"] = "zone-a"
        head["labels"] = {**head["labels"], PREPARE_DOWNSCALE: "true"}
        head["annotations"] = {PREPARE_PATH: "prepare", PREPARE_PORT: "80"}
        self.put("pods", pod_json("zone-a", 0, ready=is_ready))

    async def probe_pod(self, namespace: str, pod: str, target: Target) -> int:
        self.called.append(f"{namespace}/{pod}:{target.port}/{target.path}")
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (404, FindingCode.PREPARE_PATH_UNKNOWN, "HTTP status 404"),
        (
            Unreachable.of("get pods/zone-a-0:80/proxy/prepare", "503: refused", status=503),
            FindingCode.PREPARE_UNANSWERED,
            "503: refused",
        ),
    ],
)
async def test_what_a_pod_does_not_answer_is_found(
    answer: int | ApiError, code: FindingCode, text: str
) -> None:
    cluster = Preparing(answer)
    found = [one for one in (await examine(cluster, NAMESPACE, NOW)).findings if one.code is code]

    assert [one.text for one in found] == [f"{CALLED}: {text}"]
    assert cluster.called == [f"{NAMESPACE}/zone-a-0:80/prepare"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (200, []),
        (403, [f"{CALLED}: HTTP status 403"]),
        (Unreachable("no route"), [f"{CALLED}: no route"]),
        (NotFound("gone", status=404), [f"{CALLED}: gone"]),
        (Denied("no", status=403), [f"may not get pods/proxy in namespace {NAMESPACE}"]),
    ],
)
async def test_what_proves_nothing_is_no_finding(answer: int | ApiError, why: list[str]) -> None:
    diagnosis = await examine(Preparing(answer), NAMESPACE, NOW)

    assert [one.why for one in diagnosis.skipped] == why
    assert not diagnosis.has(FindingCode.PREPARE_PATH_UNKNOWN)
    assert not diagnosis.has(FindingCode.PREPARE_UNANSWERED)


async def test_without_a_ready_pod_none_is_called_and_that_is_reported() -> None:
    cluster = Preparing(200, is_ready=False)
    diagnosis = await examine(cluster, NAMESPACE, NOW)

    assert cluster.called == []
    assert [one.why for one in diagnosis.skipped] == ["no pod is ready of zone-a"]


class Silent:
    """Pods that never answer."""

    async def probe_pod(self, namespace: str, pod: str, target: Target) -> int:
        await asyncio.sleep(3600)
        return 200


@in_virtual_time
async def test_silence_has_a_limit() -> None:
    questions = [PathQuestion(set_name="a", pod=f"a-{number}", target=TARGET) for number in "012"]
    answers = await probe_paths(Silent(), NAMESPACE, questions)

    assert elapsed() == timedelta(seconds=5)
    assert {(one.problem, one.is_lost) for one in answers} == {("no answer within 5s", True)}
