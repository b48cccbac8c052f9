"""What the demo reads from objects: the state of each pod's place, and the row of a zone."""

from collections.abc import Mapping

import pytest
from rollout_lab.demo.snapshot import Cell, PodCell, ZoneRow, read_cell, read_row
from rollout_lab.nodes.behaviour import image_of

from rollout_operator.kube.api import JsonObject

RUNNING: Mapping[str, object] = {"running": {}}


def pod(
    version: str = "v2",
    *,
    is_ready: bool = True,
    phase: str = "Running",
    state: Mapping[str, object] = RUNNING,
    metadata: Mapping[str, object] | None = None,
) -> JsonObject:
    return {
        "metadata": {"name": "zone-a-0", **(metadata or {})},
        "spec": {"containers": [{"name": "app", "image": version}]},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": str(is_ready)}],
            "containerStatuses": [{"ready": is_ready, "state": state}],
        },
    }


ENDING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
CREATING = {"waiting": {"reason": "ContainerCreating"}}
CRASHING = {"waiting": {"reason": "CrashLoopBackOff"}}
CRASHED = {"terminated": {"exitCode": 1}}


@pytest.mark.parametrize(
    ("found", "state"),
    [
        pytest.param(pod(), PodCell.NEW, id="new and ready"),
        pytest.param(pod(is_ready=False), PodCell.STARTING, id="new, runs, not ready"),
        pytest.param(pod(is_ready=False, state=CREATING), PodCell.STARTING, id="new, created"),
        pytest.param(pod(is_ready=False, state=CRASHING), PodCell.BROKEN, id="new, crash loop"),
        pytest.param(pod(is_ready=False, state=CRASHED), PodCell.BROKEN, id="new, has crashed"),
        pytest.param(
            pod(phase="Pending"), PodCell.STARTING, id="ready is said, but it does not run"
        ),
        pytest.param(pod(metadata=ENDING), PodCell.ENDING, id="ending, though it looks ready"),
        pytest.param(pod("v1"), PodCell.OLD, id="of another template"),
        pytest.param(pod("v1", is_ready=False), PodCell.BROKEN, id="of another, and not ready"),
    ],
)
def test_a_pod_shows_its_state(found: JsonObject, state: PodCell) -> None:
    assert read_cell(found, "v2") == Cell(state, image_of(found))


def zone(spec: Mapping[str, object], metadata: Mapping[str, object] | None = None) -> JsonObject:
    template = {"spec": {"containers": [{"name": "app", "image": "v2"}]}}
    return {
        "metadata": {"name": "zone-a", **(metadata or {})},
        "spec": {"template": template, **spec},
        "status": {
            "replicas": 2,
            "readyReplicas": 1,
            "currentRevision": "zone-a-1f",
            "updateRevision": "zone-a-2e",
        },
    }


def test_a_row_has_a_place_for_each_wanted_pod() -> None:
    pods = {"zone-a-0": pod("v1"), "zone-a-2": pod(), "zone-a-7": pod()}

    assert read_row(zone({"replicas": 3}), pods) == ZoneRow(
        name="zone-a",
        cells=(Cell(PodCell.OLD, "v1"), Cell(PodCell.GONE), Cell(PodCell.NEW, "v2")),
        ready=1,
        existing=2,
        current="1f",
        update="2e",
    )


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        pytest.param({}, ["zone-a-0"], id="no replicas given: one"),
        pytest.param({"replicas": 0}, [], id="none"),
        pytest.param(
            {"replicas": 2, "ordinals": {"start": 5}}, ["zone-a-5", "zone-a-6"], id="ordinals.start"
        ),
    ],
)
def test_the_places_follow_replicas_and_ordinals(
    spec: Mapping[str, object], names: list[str]
) -> None:
    row = read_row(zone(spec), {name: pod() for name in names})

    assert [cell.state for cell in row.cells] == [PodCell.NEW] * len(names)


@pytest.mark.parametrize(("value", "is_paused"), [("true", True), ("false", False), ("Off", False)])
def test_a_row_says_that_its_zone_is_paused(value: str, is_paused: bool) -> None:
    annotations = {"annotations": {"grafana.com/rollout-paused": value}}

    assert read_row(zone({}, annotations), {}).is_paused is is_paused
