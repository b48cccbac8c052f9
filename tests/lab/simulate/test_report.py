"""What people read of a simulation: what was found, what is assumed, the story, the end."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from rollout_lab.simulate.command import simulate
from rollout_lab.simulate.flags import read_settings
from rollout_lab.simulate.report import SimulationRun, list_ends, render_text
from rollout_lab.zones import ZoneSpec

from rollout_operator.model.names import ExitCode
from tests.lab.simulate.dumps import THREE, Json, grow, pick, to_yaml
from tests.virtual_time import EPOCH


def _run(objects: Sequence[Json], *changes: str, flags: str = "") -> SimulationRun:
    words = [word for change in changes for word in ("-change", change)]
    settings = read_settings(["-f", "-", *flags.split(), *words])
    return simulate(settings, to_yaml(objects), EPOCH)


def _lines(objects: Sequence[Json], *changes: str, flags: str = "") -> list[str]:
    return list(render_text(_run(objects, *changes, flags=flags)))


def _part(lines: Sequence[str], begin: str) -> list[str]:
    """Return what stands under a heading, until the next empty line."""
    start = next(place for place, line in enumerate(lines) if line.startswith(begin)) + 1
    ends = [place for place, line in enumerate(lines) if not line and place > start]
    return [line.strip() for line in lines[start : ends[0] if ends else None]]


def test_a_rollout_from_its_first_line_to_its_last() -> None:
    zones = [ZoneSpec(name="zone-a", replicas=1), ZoneSpec(name="zone-b", replicas=1)]

    lines = _lines(grow(*zones), "new template", flags="-ready-after 20s -terminates-after 5s")

    assert lines[0] == "Nothing is sent anywhere: all of this happens on a copy of the input."
    assert _part(lines, "Rollout group ingester in namespace prod:") == [
        "zone-a  1 of 1 pod ready, at most 1 down",
        "zone-b  1 of 1 pod ready, at most 1 down",
    ]
    assert _part(lines, "Assumptions:")[:2] == [
        "a new pod of ingester is ready after 20s",
        "a pod ends within 5s",
    ]
    assert lines[2] == "In the end, after 51s:", "before anything that is long"
    assert _part(lines, "In the end, after 51s:") == [
        "ingester: rolled out: 2 pods of 2 zones: all ready at the update revision",
        "2 deletes by the operator",
        "most pods down at a time: 1 of zone-a and 1 of zone-b",
        "pods of two zones of a group were never down together",
        "0 requests refused",
    ]


def test_each_delete_says_why() -> None:
    story = _part(_lines(grow(), "image zone-a=v2"), "What happens:")

    deletes = [line for line in story if " operator  deletes " in line]
    assert len(deletes) == 3
    assert all("at revision " in line and ", zone-a wants " in line for line in deletes)
    assert any("(v2) instead of " in line for line in story)


def test_nothing_at_all_is_said() -> None:
    lines = _lines(grow())

    assert _part(lines, "What happens:") == ["nothing"]
    assert "In the end:" in lines
    assert "0 deletes by the operator" in _part(lines, "In the end:")
    assert not [line for line in lines if "refused" in line], "nothing was requested"


def test_what_the_first_instant_is_made_of_is_not_shown() -> None:
    """Putting the input into the world, and starting the operator, is none of the story."""
    story = _part(_lines(grow(), "new template"), "What happens:")

    assert story[0].split()[1:] == ["you", "new", "template"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param("", "is ready after 3s (median of 9 pods)", id="learnt"),
        pytest.param("-ready-after 1m30s", "is ready after 1m30s", id="given"),
    ],
)
def test_how_long_pods_take_is_reported(flags: str, said: str) -> None:
    assert _part(_lines(grow(), flags=flags), "Assumptions:")[0].endswith(said)


def test_the_state_of_each_zone_is_reported() -> None:
    objects = grow(ZoneSpec(name="zone-a", max_unavailable="50%"), *THREE[1:])
    pick(objects, "zone-b-0")["metadata"]["labels"]["controller-revision-hash"] = "zone-b-old"
    pick(objects, "zone-c")["metadata"]["annotations"] = {"grafana.com/rollout-paused": "true"}

    assert _part(_lines(objects), "Rollout group ingester") == [
        "zone-a  3 of 3 pods ready, at most 50% down",
        "zone-b  3 of 3 pods ready, 1 outdated, at most 1 down",
        "zone-c  3 of 3 pods ready, at most 1 down, grafana.com/rollout-paused=true",
    ]


def test_the_limit_that_is_used_is_reported_where_what_is_given_cannot_be() -> None:
    lines = _lines(grow(ZoneSpec(name="zone-a", max_unavailable="lots"), *THREE[1:]))

    assert _part(lines, "Rollout group ingester")[0] == (
        'zone-a  3 of 3 pods ready, at most 1 down (rollout-max-unavailable="lots" cannot be used)'
    )


def test_what_was_left_out_is_reported() -> None:
    service: Json = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}

    lines = _lines([*grow(), service])

    assert "1 Service is left out: without effect here" in lines


def test_pods_are_named_in_full() -> None:
    """A bare ordinal reads as a number of pods."""
    story = " ".join(_part(_lines(grow(), "new template zone-a"), "What happens:"))

    assert "zone-a    zone-a-0 going down" in story
    assert "zone-a    zone-a-0 ready" in story


def test_what_holds_it_is_reported_with_what_would_help() -> None:
    lines = _lines(grow(), "pause zone-b", "new template")

    assert _part(lines, "What holds it in the end, and what would help:") == [
        "ingester: zone-b is paused: 3 outdated pods wait [paused]",
        "remove the annotation grafana.com/rollout-paused when the zone may go on",
    ]
    assert not [line for line in _lines(grow()) if line.startswith("What holds it")]


def test_pods_that_others_take_down_past_a_bound_are_reported() -> None:
    lines = _lines(grow(), "delete pod zone-a-0", "delete pod zone-a-1", "pod zone-b-0 fails at 2s")

    run = [line for line in _part(lines, "In the end") if line.startswith("past a bound")]
    assert run == [
        "past a bound at 0s, by you: zone-a-1 is number 2 down of zone-a, of 1 allowed",
        "past a bound at 2s, by kubelet: zone-b-0 goes down beside pods of zone-a",
    ]


@pytest.mark.parametrize(
    ("changes", "flags", "code"),
    [
        pytest.param(["new template"], "", ExitCode.DONE, id="rolled out"),
        pytest.param(["bad template"], "", ExitCode.NEEDS_A_PERSON, id="stands still"),
        pytest.param(["new template"], "-until 5s", ExitCode.TIMED_OUT, id="still moves"),
        pytest.param(
            ["pause zone-a", "new template"],
            "-until 2m",
            ExitCode.NEEDS_A_PERSON,
            id="stands still, and time would not help",
        ),
        pytest.param(["delete pod zone-a-0"], "", ExitCode.DONE, id="no more than a rollout may"),
        pytest.param(
            ["delete pod zone-a-0", "delete pod zone-b-0"],
            "",
            ExitCode.BOUND_CROSSED,
            id="two zones at a time",
        ),
    ],
)
def test_an_exit_code_says_how_it_ends(changes: list[str], flags: str, code: ExitCode) -> None:
    assert _run(grow(), *changes, flags=flags).exit_code == code


def test_it_stops_at_a_signal() -> None:
    run = _run(grow(), "new template", flags="-until 15s")

    assert run.play.ended_at == timedelta(seconds=15)
    assert run.figures.deletes == ("zone-a-0", "zone-a-1")
    assert "it was cut off after 15s: more may follow" in list_ends(run.play)


@pytest.mark.parametrize("width", [80, 100])
def test_lines_fit_on_a_screen(width: int) -> None:
    zones = [ZoneSpec(name=f"ingester-with-a-long-name-zone-{letter}") for letter in "abc"]

    run = _run(grow(*zones), "bad template", "scale ingester-with-a-long-name-zone-b to 2")

    assert width - 20 < max(len(line) for line in render_text(run, width)) <= width
