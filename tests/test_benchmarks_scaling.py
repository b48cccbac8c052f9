"""Benchmarks of counts: what they read out of audit logs, and that they run (D-64)."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from benchmarks.__main__ import main
from benchmarks.scaling_delays import describe_delay, read_reactions
from benchmarks.scaling_idle import describe
from benchmarks.scaling_up import Step, read_steps

OPERATOR = "operator"
BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Json = dict[str, Any]


def patch(at: float, name: str, *, by: str = "alice", code: int = 200, **target: str) -> Json:
    """Return the audit entry of a patch of a StatefulSet, `at` in seconds."""
    return {
        "requestReceivedTimestamp": (BEGIN + timedelta(seconds=at)).isoformat(),
        "verb": "patch",
        "user": {"username": by},
        "objectRef": {"resource": "statefulsets", "name": name, **target},
        "responseStatus": {"code": code},
    }


def delete(at: float, *, by: str = OPERATOR, code: int = 200) -> Json:
    """Return the audit entry of a delete of a pod."""
    entry = patch(at, "other-zone-a-0", by=by, code=code, resource="pods")
    return {**entry, "verb": "delete"}


def rounded(steps: Sequence[Step]) -> list[tuple[float, ...]]:
    """Return the delays of steps, to the millisecond."""
    return [tuple(round(delay, 3) for delay in step.delays) for step in steps]


def test_each_step_of_the_leading_zone_is_followed() -> None:
    """SCALE-12: the delays are those of the followers as they were asked for."""
    entries = [
        patch(0, "zone-a"),
        patch(0.03, "zone-c", by=OPERATOR),
        patch(0.02, "zone-b", by=OPERATOR),
        patch(5, "zone-a"),
        patch(5.1, "zone-b", by=OPERATOR),
        patch(5.2, "zone-c", by=OPERATOR),
        patch(5.3, "zone-a", subresource="status", by="controllers"),
    ]
    assert rounded(read_steps(entries, OPERATOR, ("zone-b", "zone-c"))) == [
        (0.02, 0.03),
        (0.1, 0.2),
    ]


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        pytest.param([patch(0, "zone-a")], "0 writes", id="nobody followed"),
        pytest.param(
            [patch(0, "zone-a"), *[patch(1, "zone-b", by=OPERATOR)] * 2], "2 writes", id="twice"
        ),
        pytest.param(
            [patch(0, "zone-a"), patch(1, "zone-b", by=OPERATOR, code=409)],
            "0 writes",
            id="refused",
        ),
        pytest.param(
            [patch(0, "zone-a"), patch(1, "zone-b", by="bob")], "0 writes", id="by somebody else"
        ),
    ],
)
def test_what_did_not_follow_exactly_once_is_no_figure(entries: list[Json], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        read_steps(entries, OPERATOR, ("zone-b",))


def test_a_rollout_is_timed_from_its_template_to_its_delete() -> None:
    """W-06: of the other group only, and of the operator's deletes only."""
    entries = [
        patch(0, "other-zone-a"),
        delete(0.01, by="controllers"),
        patch(0.02, "store-zone-a"),
        delete(0.05),
        patch(9, "other-zone-a", by=OPERATOR),
        patch(10, "other-zone-a"),
        delete(10.2, code=409),
        delete(10.25),
        patch(20, "other-zone-a"),
    ]
    assert [round(one, 3) for one in read_reactions(entries, OPERATOR)] == [0.05, 0.25]


@pytest.mark.parametrize(
    ("quiet", "busy", "delay", "is_met"),
    [
        pytest.param([0.02, 0.03], [0.06, 0.05], 30.0, True, id="a little later"),
        pytest.param([0.02], [0.3], 280.0, False, id="much later"),
        pytest.param([0.2], [0.1], 0.0, True, id="earlier is no gain"),
    ],
)
def test_a_delay_is_what_is_longer_than_without(
    quiet: list[float], busy: list[float], delay: float, is_met: bool
) -> None:
    figures = {figure.name: figure for figure in describe_delay(quiet, busy)}
    assert round(figures["rollout_delay_ms"].value, 6) == delay
    assert figures["rollout_delay_ms"].is_met is is_met


def test_idle_requests_are_counted_by_the_minute() -> None:
    """LI-11: watches are shown beside, writes have a target of their own."""
    asked = Counter(
        {
            ("list", "pods"): 30,
            ("get", "replicatemplates"): 20,
            ("patch", "statefulsets"): 10,
            ("watch", "pods"): 100,
        }
    )
    figures = {figure.name: figure for figure in describe("plain", asked, 10)}
    assert figures["plain_requests_per_minute"].value == 6
    assert figures["plain_requests_per_minute"].is_met
    assert figures["plain_writes_per_minute"].value == 1
    assert not figures["plain_writes_per_minute"].is_met
    assert figures["plain_watches_per_minute"].value == 10
    assert figures["plain_list_pods_per_minute"].value == 3


def _run(name: str) -> Json:
    lines: list[str] = []
    assert main([name, "--small"], lines.append) == 0
    (line,) = lines
    printed: Json = msgspec.json.decode(line)
    assert printed["benchmark"] == name
    return printed


def test_an_idle_minute_is_measured_in_virtual_time() -> None:
    """LI-11: what is read and written while nothing changes, webhooks or not."""
    printed = _run("scaling_idle")
    assert printed["targets"]["plain_requests_per_minute"]["at_most"] == 6
    for name in ("plain", "webhooks"):
        assert 0 < printed["figures"][f"{name}_requests_per_minute"] <= 6
        assert printed["figures"][f"{name}_writes_per_minute"] == 0
    assert printed["figures"]["webhooks_watches_per_minute"] > 0


@pytest.mark.controlplane
def test_followers_are_measured_from_the_audit_log() -> None:
    printed = _run("scaling_up")
    assert printed["targets"]["beside_reaction_median_ms"]["at_most"] == 100
    for shape in ("beside", "chain"):
        assert printed["figures"][f"{shape}_reaction_median_ms"] > 0
        assert printed["figures"][f"{shape}_requests_per_write"] >= 1


@pytest.mark.controlplane
def test_pods_are_asked_while_another_group_rolls() -> None:
    printed = _run("scaling_delays")
    assert printed["targets"]["asked_median_s"]["at_most"] == 3
    assert printed["targets"]["rollout_delay_ms"]["at_most"] == 100
    assert printed["figures"]["calls_per_pod"] == 1
    assert printed["figures"]["asked_median_s"] >= printed["figures"]["begun_median_s"] > 0
