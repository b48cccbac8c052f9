"""What the condition `Ready` says of the current release."""

import pytest

from rollout_operator.model.releases import BakeStatus, HistoryEntry
from rollout_operator.planning.bake import BakeContext, advance_bake
from rollout_operator.planning.candidates import describe_ready
from tests.planning.releases.builders import MINUTE, START, entry, rollout

BAKING = BakeContext(spec=rollout(bake_time=5 * MINUTE).spec, checks=(), now=START)
ENTRIES: list[HistoryEntry | None] = [
    None,
    entry("1", None),
    advance_bake(entry("1", BakeStatus.DEPLOYING), BAKING).entry,
    entry("1", BakeStatus.DEPLOYING),
    entry("1", BakeStatus.SUCCEEDED),
    entry("1", BakeStatus.FAILED),
    entry("1", BakeStatus.FAILED, bake_status_message="a HealthCheck failed"),
    entry("1", BakeStatus.CANCELLED),
    entry("1", BakeStatus.CANCELLED, bake_status_message="superseded by 2"),
    entry("1", "Strange"),
]


def test_each_state_of_a_bake_has_its_text() -> None:
    """RT-92: an unknown one as well, by its name."""
    texts = [describe_ready(one, is_writing=False, note="").text for one in ENTRIES]

    assert len({*texts}) == len(texts)
    assert all(texts)
    assert texts[2] == (
        "version 1 InProgress; every HealthCheck is healthy; the bake has started, 5m0s until"
        " 2025-01-01T00:05:00Z"
    )
    assert texts[-1] == "version 1 Strange"


@pytest.mark.parametrize("minutes", [0, 2])
def test_a_text_stays_while_time_passes(minutes: float) -> None:
    """RELB-21: what is left of a bake would be news each second."""
    context = BakeContext(
        spec=rollout(bake_time=5 * MINUTE).spec, checks=(), now=START + minutes * MINUTE
    )
    baking = advance_bake(entry("1", BakeStatus.DEPLOYING), BAKING).entry

    assert advance_bake(baking, context).entry == baking
