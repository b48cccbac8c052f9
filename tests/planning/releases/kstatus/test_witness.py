"""When an object failed."""

from typing import Any

import pytest

from rollout_operator.planning.releases.kstatus.witness import get_failure_time
from tests.planning.releases.builders import at


def condition(kind: str, minutes: float | None, status: str = "True") -> dict[str, Any]:
    since = "never" if minutes is None else at(minutes).isoformat()
    return {"type": kind, "status": status, "lastTransitionTime": since}


@pytest.mark.parametrize(
    ("conditions", "minutes"),
    [
        pytest.param([], None, id="RT-138 none"),
        pytest.param([condition("Ready", 1)], 1, id="RT-138 a single one"),
        pytest.param([condition("Ready", 5), condition("Other", 1)], 5, id="RT-138 the newest"),
        pytest.param([condition("Stalled", 1), condition("Ready", 5)], 1, id="RT-138 it stalled"),
        pytest.param(
            [condition("Stalled", 1, "False"), condition("Ready", 5)], 5, id="RT-138 it did not"
        ),
        pytest.param([condition("Ready", None)], None, id="RT-138 no times"),
    ],
)
def test_the_time_of_a_failure(conditions: list[dict[str, Any]], minutes: float | None) -> None:
    """REL-111."""
    found = get_failure_time({"status": {"conditions": conditions}})

    assert found == (None if minutes is None else at(minutes))
