"""What people read of a simulation: what was found, what is assumed, the story, the end."""

from collections.abc import Sequence

import pytest

from rollout_operator.lab.simulate.command import tell
from rollout_operator.lab.simulate.flags import read_settings
from rollout_operator.lab.simulate.report import render_text
from rollout_operator.lab.zones import ZoneSpec
from tests.lab.simulate.dumps import THREE, Json, grow, pick, to_yaml
from tests.virtual_time import EPOCH


def _lines(objects: Sequence[Json], *changes: str, flags: str = "") -> list[str]:
    words = [word for change in changes for word in ("-change", change)]
    settings = read_settings(["-f", "-", *flags.split(), *words])
    return list(render_text(tell(settings, to_yaml(objects), EPOCH)))


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
    assert _part(lines, "Taken for granted:")[:2] == [
        "a new pod of ingester is ready after 20s",
        "a pod ends within 5s",
    ]
    assert _part(lines, "In the end, after 51s:") == [
        "ingester: 2 pods of 2 zones: all ready at the update revision"
    ]
    assert _part(lines, "In all:") == [
        "2 deletes by the operator",
        "most pods down at a time: 1 of zone-a and 1 of zone-b",
        "pods of two zones of a group were never down together",
        "0 requests refused",
    ]


def test_each_delete_says_why() -> None:
    story = _part(_lines(grow(), "image zone-a=v2"), "What happens:")

    deletes = [line for line in story if "operator-1  deletes" in line]
    assert len(deletes) == 3
    assert all("at revision " in line and ", zone-a wants " in line for line in deletes)
    assert any("(v2) instead of " in line for line in story)


def test_nothing_at_all_is_said() -> None:
    lines = _lines(grow())

    assert _part(lines, "What happens:") == ["nothing"]
    assert "In the end:" in lines
    assert "0 deletes by the operator" in _part(lines, "In all:")
    assert not [line for line in lines if "refused" in line], "nobody has asked for anything"


def test_what_the_first_instant_is_made_of_is_not_told() -> None:
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
def test_how_long_pods_take_is_told(flags: str, said: str) -> None:
    assert _part(_lines(grow(), flags=flags), "Taken for granted:")[0].endswith(said)


def test_the_state_of_each_zone_is_told() -> None:
    objects = grow(ZoneSpec(name="zone-a", max_unavailable="50%"), *THREE[1:])
    pick(objects, "zone-b-0")["metadata"]["labels"]["controller-revision-hash"] = "zone-b-old"
    pick(objects, "zone-c")["metadata"]["annotations"] = {"grafana.com/rollout-paused": "true"}

    assert _part(_lines(objects), "Rollout group ingester") == [
        "zone-a  3 of 3 pods ready, at most 50% down",
        "zone-b  3 of 3 pods ready, 1 outdated, at most 1 down",
        "zone-c  3 of 3 pods ready, at most 1 down, grafana.com/rollout-paused=true",
    ]


def test_the_limit_that_is_used_is_told_where_what_is_given_cannot_be() -> None:
    lines = _lines(grow(ZoneSpec(name="zone-a", max_unavailable="lots"), *THREE[1:]))

    assert _part(lines, "Rollout group ingester")[0] == (
        'zone-a  3 of 3 pods ready, at most 1 down (rollout-max-unavailable="lots" cannot be used)'
    )


def test_what_was_left_out_is_told() -> None:
    service: Json = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}

    lines = _lines([*grow(), service])

    assert "1 Service is left out: it decides nothing here" in lines


def test_lines_fit_on_a_screen() -> None:
    zones = [ZoneSpec(name=f"ingester-with-a-long-name-zone-{letter}") for letter in "abc"]

    lines = _lines(grow(*zones), "new template", "scale ingester-with-a-long-name-zone-b to 2")

    assert max(len(line) for line in lines) <= 100
