"""By whose rules releases are decided."""

import pytest

from rollout_operator.config.checks import read_config
from rollout_operator.model.releases import KUBERIK, OURS, ReleaseCompat
from rollout_operator.operator.releases import get_compat


@pytest.mark.parametrize(
    ("words", "compat"),
    [
        pytest.param([], OURS, id="ours"),
        pytest.param(["-releases.compat=kuberik"], KUBERIK, id="all of kuberik's"),
        pytest.param(
            ["-releases.order=announced"],
            ReleaseCompat(compares_versions=False),
            id="RELB-03 kuberik's order alone",
        ),
    ],
)
def test_which_rules_flags_choose(words: list[str], compat: ReleaseCompat) -> None:
    """RELB-03, RELB-17, RELB-24, RELB-31."""
    config = read_config(["-kubernetes.namespace=prod", *words])
    assert get_compat(config.release_compat, config.release_order) == compat
