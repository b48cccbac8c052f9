"""Records are read rightly from API objects and audit entries, and restarts are timed."""

from dataclasses import replace
from typing import Any

import pytest

from tests.judge.objects import Delete, Pod, read_delete, read_limit, read_pod
from tests.world.stories import begin
from tests.world.timings import Restart, find_restarts


def test_the_moments_of_a_restart() -> None:
    story = begin()
    story.change_set("a", ready_replicas=3)
    story.ask("a-0")
    story.wait(1)
    story.change_set("a", ready_replicas=2)
    story.write("pod/a-0", None)
    story.wait(1)
    new = Pod(name="a-0", uid="x", owner="a", revision="new")
    story.write("pod/a-0", replace(new, is_ready=False))
    story.wait(1)
    story.write("pod/a-0", new)
    story.wait(1)
    story.change_set("a", ready_replicas=3)

    assert find_restarts(story.changes, story.deletes) == [
        Restart(
            pod="a-0",
            zone="a",
            deleted=160.0,
            gone=161.0,
            recreated=162.0,
            ready=163.0,
            counted=164.0,
        )
    ]


@pytest.mark.parametrize(
    ("text", "replicas", "expected"),
    [
        (None, 10, 1),
        ("3", 10, 3),
        (" 3 ", 10, 3),
        ("25%", 10, 2),
        ("5%", 10, 1),
        ("100%", 10, 10),
        ("101%", 10, 1),
        ("0", 10, 1),
        ("0%", 10, 1),
        ("-1", 10, 1),
        ("2.5", 10, 1),
        ("two", 10, 1),
    ],
)
def test_the_limit_of_a_set(text: str | None, replicas: int, expected: int) -> None:
    assert read_limit(text, replicas) == expected


def test_a_pod_without_container_statuses_is_not_ready() -> None:
    status: dict[str, Any] = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    pod = {
        "metadata": {"name": "a-0", "uid": "u"},
        "spec": {"containers": [{"name": "app"}]},
        "status": status,
    }

    assert not read_pod(pod).is_ready

    status["containerStatuses"] = [{"ready": True, "state": {"running": {}}}]
    assert read_pod(pod).is_ready


def test_a_refused_delete_carries_no_answer() -> None:
    entry = {
        "objectRef": {"namespace": "n", "name": "a-0"},
        "requestObject": {"preconditions": {"uid": "u", "resourceVersion": "7"}},
        "responseObject": {"metadata": {}, "kind": "Status"},
        "responseStatus": {"code": 409},
        "stageTimestamp": "t",
    }

    assert read_delete(entry) == Delete(
        namespace="n", name="a-0", code=409, asked_uid="u", asked_version="7", stamp="t"
    )
