"""What the demo on a control plane reads and sums up is right, and fits 80 columns."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from rollout_operator.lab.demo.drawing import COLUMNS
from rollout_operator.lab.demo.picture import Cell, DemoNote, PodCell, ZoneRow
from tests.demo.figures import Figures
from tests.demo.picture import read_notes, read_rows
from tests.demo.summary import draw_failure, draw_summary
from tests.judge.promises import Violation
from tests.lab.demo.pictures import plain
from tests.world.api import PODS, STATEFULSETS, Event, Json
from tests.world.sets import Snapshot

# Reading


def pod(name: str, image: str = "v1", *, owner: str = "uid-a", is_ready: bool = True) -> Json:
    return {
        "metadata": {"name": name, "ownerReferences": [{"uid": owner}]},
        "spec": {"containers": [{"name": "app", "image": image}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(is_ready)}],
            "containerStatuses": [{"ready": is_ready, "state": {"running": {}}}],
        },
    }


def test_rows_hold_a_place_for_each_wanted_pod_of_the_owner() -> None:
    status = {"readyReplicas": 1, "currentRevision": "zone-a-1f", "updateRevision": "zone-a-2e"}
    found = {
        "metadata": {"name": "zone-a", "uid": "uid-a"},
        "spec": {
            "replicas": 3,
            "template": {"spec": {"containers": [{"name": "app", "image": "v2"}]}},
        },
        "status": status,
    }
    pods = [pod("zone-a-2", "v2"), pod("zone-a-0"), pod("zone-a-1", owner="uid-of-another")]
    now = Snapshot()
    now.take(STATEFULSETS, Event("ADDED", found))
    for each in pods:
        now.take(PODS, Event("ADDED", each))

    assert read_rows(now, ["zone-a", "zone-b"]) == (
        ZoneRow(
            name="zone-a",
            cells=(Cell(PodCell.OLD, "v1"), Cell(PodCell.GONE), Cell(PodCell.NEW, "v2")),
            ready=1,
            current="1f",
            update="2e",
        ),
    )


LOG = r"""
level=info ts=2026-03-01T10:00:00.500000000Z msg=Listed kind=Pod objects=9
level=debug ts=2026-03-01T09:59:59Z msg="Group is up to date" reason=up_to_date why="all ready"
level=debug ts=2026-03-01T10:00:01.250000000Z msg="Group waits" reason=paused why="\"a\" is paused"
level=info ts=2026-03-01T10:00:02Z msg="Recording revision" zone=a revision=a-1f reason=rolled_out
"""


def test_notes_are_the_reasons_since_the_new_template() -> None:
    begin = datetime(2026, 3, 1, 10, tzinfo=UTC)

    assert list(read_notes(LOG.splitlines(), begin)) == [
        DemoNote(at=1.25, who="operator", text='paused: "a" is paused'),
        DemoNote(at=2.0, who="operator", text="rolled_out: a: recording revision a-1f"),
    ]


# Summary


FIGURES = Figures(
    limit=1,
    wall=12.9,
    floor=12.6,
    reaction=0.009,
    replaced=9,
    refused=0,
    zones_short=1,
    pods_short=1,
)


def test_the_summary_has_a_line_for_each_figure_and_fits() -> None:
    lines = plain(draw_summary(FIGURES))

    assert [line[:22].split() for line in lines] == [
        ["took", "12.90", "s"],
        ["floor", "12.60", "s"],
        ["ratio", "1.02"],
        ["reaction", "9", "ms"],
        ["deletes", "9"],
        ["zones", "short", "1"],
        ["pods", "short", "1"],
        ["judge", "clean"],
    ]
    assert max(map(len, lines)) <= COLUMNS
    # Below the grid of three zones and a blank line.
    assert 8 + 1 + len(lines) < 24


def test_the_summary_names_what_was_broken() -> None:
    broken = Violation(invariant="SI-01", text="delete of zone-b-0", at=timedelta(seconds=1))
    lines = plain(draw_summary(replace(FIGURES, broken=(broken,), refused=2, reaction=None)))

    assert lines[3].split()[:2] == ["reaction", "none"]
    assert lines[4].endswith("each replaced a pod; 2 refused")
    assert lines[-2].split()[:3] == ["judge", "1", "broken"]
    assert lines[-1] == "  SI-01: delete of zone-b-0"


def test_a_failure_is_told_in_place_of_figures() -> None:
    lines = plain(draw_failure("the operator has ended with -9\nlevel=error", []))

    assert lines[0].split()[:2] == ["judge", "clean"]
    assert lines[1:] == ["NOT ROLLED OUT", "the operator has ended with -9", "level=error"]
