"""Schedules of a namespace, and specs that are no JSON; others are in schedule.txt."""

import pytest

from rollout_operator.model.decode.releases import decode_release_schedule, decode_schedule
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.releases import SCHEDULE
from tests.model.decode.releases.trees import as_json


def test_what_is_no_json_is_refused() -> None:
    for raw in (b"", b"{", b'{"rules": [{"name": "\xff"}]}', b"[" * 100_000):
        with pytest.raises(InvalidInput, match=r"^spec: "):
            decode_release_schedule(raw)


def test_a_schedule_of_a_namespace_is_named_by_it() -> None:
    """RELB-31."""
    spec = {"rolloutSelector": {}, "rules": [{"daysOfWeek": ["Day"]}]}

    problem = decode_schedule(SCHEDULE, as_json(spec)).problem
    assert problem.startswith('RolloutSchedule prod/app: spec.rules[0].daysOfWeek[0]: "Day" is')
