"""JSON of a schedule's spec: what an absent field means, and what is refused with its place."""

import json
from datetime import date
from typing import Any

import msgspec
import pytest

from rollout_operator.model.decode.releases import (
    MOST_RULES,
    decode_release_schedule,
    decode_schedule,
)
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.objects import LabelSelector
from rollout_operator.model.releases import (
    CLUSTER_SCHEDULE,
    SCHEDULE,
    DateRange,
    MinuteRange,
    ReleaseSchedule,
    ScheduleAction,
    ScheduleRule,
)
from tests.model.decode.releases.trees import as_json


def decode(spec: object) -> ReleaseSchedule:
    return decode_release_schedule(json.dumps(spec).encode())


def test_all_that_a_spec_says_of_time() -> None:
    """REL-18; what it says of Rollouts and namespaces is read elsewhere."""
    rule = {
        "name": "nights",
        "timeRange": {"start": "22:00", "end": "06:30"},
        "daysOfWeek": ["Sunday", "Monday", "Monday"],
        "dateRange": {"start": "2024-02-29", "end": "2024-12-26"},
    }
    spec = {
        "rolloutSelector": {},
        "rules": [rule, {}],
        "timezone": "Europe/Berlin",
        "action": "Allow",
    }

    assert decode(spec) == ReleaseSchedule(
        rules=(
            ScheduleRule(
                name="nights",
                times=MinuteRange(22 * 60, 6 * 60 + 30),
                weekdays=frozenset({6, 0}),
                dates=DateRange(date(2024, 2, 29), date(2024, 12, 26)),
            ),
            ScheduleRule(),
        ),
        time_zone="Europe/Berlin",
        action=ScheduleAction.ALLOW,
    )


@pytest.mark.parametrize("nothing", [None, ""])
def test_what_is_left_out_has_its_default(nothing: str | None) -> None:
    """REL-18: UTC, and Deny."""
    rule: dict[str, Any] = {"name": nothing, "timeRange": None, "daysOfWeek": [], "dateRange": None}
    found = decode({"rules": [rule], "timezone": nothing, "action": nothing})

    assert found == decode({"rules": [{}]}) == ReleaseSchedule(rules=(ScheduleRule(),))


def times(start: object, end: object = "06:00") -> dict[str, Any]:
    return {"rules": [{"timeRange": {"start": start, "end": end}}]}


def dates(start: object) -> dict[str, Any]:
    return {"rules": [{}, {"dateRange": {"start": start, "end": "2025-12-26"}}]}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (times("24:00"), 'spec.rules[0].timeRange.start: "24:00" is no time from 00:00 to 23:59'),
        (
            times("06:00", "9:00"),
            'spec.rules[0].timeRange.end: "9:00" is no time from 00:00 to 23:59',
        ),
        (times("06:60"), 'spec.rules[0].timeRange.start: "06:60" is no time'),
        (times("06:00\n"), r'spec.rules[0].timeRange.start: "06:00\n" is no time'),
        (times("0٦:00"), 'spec.rules[0].timeRange.start: "0٦:00" is no time'),
        (times(6), "spec.rules[0].timeRange.start: expected `str`, got `int`"),
        (
            dates("2025-02-29"),
            'spec.rules[1].dateRange.start: no calendar has "2025-02-29"',
        ),
        (dates("0000-01-01"), 'spec.rules[1].dateRange.start: no calendar has "0000-01-01"'),
        (dates("2025-W01-1"), 'spec.rules[1].dateRange.start: "2025-W01-1" is no date such as'),
        (dates("20251224"), 'spec.rules[1].dateRange.start: "20251224" is no date such as'),
        (
            dates("2025-12-27"),
            "spec.rules[1].dateRange.end: 2025-12-26 is before the start, 2025-12-27",
        ),
        (
            {"rules": [{"daysOfWeek": ["Monday", "monday"]}]},
            'spec.rules[0].daysOfWeek[1]: "monday" is none of Monday, Tuesday, Wednesday,',
        ),
        (
            {"rules": [{"timeRange": {"start": "06:00"}}]},
            "spec.rules[0].timeRange: object missing required field `end`",
        ),
        ({"rules": []}, "spec.rules: expected `array` of length >= 1"),
        ({"rules": [{}] * (MOST_RULES + 1)}, "spec.rules: expected `array` of length <= 256"),
        ({}, "spec: object missing required field `rules`"),
        (None, "spec: expected `object`, got `null`"),
    ],
)
def test_a_spec_that_cannot_be_obeyed_is_refused_with_its_place(spec: object, text: str) -> None:
    """REL-96, RELB-31 (f) and (g)."""
    with pytest.raises(InvalidInput) as error:
        decode(spec)

    assert str(error.value).startswith(text)


def test_what_is_no_json_is_refused() -> None:
    for raw in (b"", b"{", b'{"rules": [{"name": "\xff"}]}', b"[" * 100_000):
        with pytest.raises(InvalidInput, match=r"^spec: "):
            decode_release_schedule(raw)


SPEC: dict[str, Any] = {"rolloutSelector": {"matchLabels": {"app": "a"}}, "rules": [{"name": "r"}]}


def test_all_that_a_schedule_says() -> None:
    """REL-18: whom it concerns, how its gates are shown, and what its status was."""
    status = {
        "observedGeneration": 3,
        "active": True,
        "activeRules": ["r"],
        "nextTransition": "2025-01-01T00:00:00Z",
        "managedGates": ["g"],
        "matchingRollouts": 1,
    }
    found = decode_schedule(
        CLUSTER_SCHEDULE,
        as_json(
            {**SPEC, "namespaceSelector": {"matchLabels": {"env": "prod"}}},
            namespace="",
            annotations={
                "gate.kuberik.com/pretty-name": "Nights",
                "gate.kuberik.com/description": "at night",
            },
            status=status,
        ),
    )

    assert found.head.key == "app"
    assert found.schedule == ReleaseSchedule(rules=(ScheduleRule(name="r"),))
    assert found.rollouts == LabelSelector(labels={"app": "a"})
    assert found.namespaces == LabelSelector(labels={"env": "prod"})
    assert (found.pretty_name, found.description) == ("Nights", "at night")
    assert msgspec.json.decode(msgspec.json.encode(found.status)) == status
    assert found.problem == ""


def test_no_selector_of_namespaces_is_not_an_empty_one() -> None:
    """RELB-31, RT-115: whom it concerns is decided by the flag."""
    spec = {**SPEC, "namespaceSelector": {}}

    assert decode_schedule(CLUSTER_SCHEDULE, as_json(SPEC, namespace="")).namespaces is None
    found = decode_schedule(CLUSTER_SCHEDULE, as_json(spec, namespace=""))
    assert found.namespaces == LabelSelector()


def test_an_invalid_schedule_still_says_what_it_concerns() -> None:
    """RELB-31: its new gates do not pass."""
    found = decode_schedule(SCHEDULE, as_json({**SPEC, "rules": [{"daysOfWeek": ["Day"]}]}))

    assert found.schedule is None
    assert found.rollouts == LabelSelector(labels={"app": "a"})
    assert found.problem.startswith(
        'RolloutSchedule prod/app: spec.rules[0].daysOfWeek[0]: "Day" is none of Monday'
    )


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (None, "object missing required field spec"),
        ({"rules": [{}]}, "spec: object missing required field rolloutSelector"),
        (
            {**SPEC, "rolloutSelector": {"matchLabels": {"a": "b c"}}},
            'spec.rolloutSelector.matchLabels[a]: "b c" is no value of a label',
        ),
    ],
)
def test_a_schedule_without_a_selector_concerns_no_rollout(spec: Any, problem: str) -> None:
    """RELB-31."""
    found = decode_schedule(CLUSTER_SCHEDULE, as_json(spec, namespace="", status=7))

    assert found.rollouts is None
    assert found.problem == f"ClusterRolloutSchedule app: {problem}"
