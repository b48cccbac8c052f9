"""Releases are not there unless they are requested."""

import subprocess
import sys
from typing import Final

import pytest

from rollout_operator.config.checks import read_config

# What only releases need, by the beginnings of names.
OF_RELEASES: Final = (
    "rollout_operator.oci",
    "rollout_operator.operator.releases",
    "rollout_operator.controllers.releases",
    "rollout_operator.planning.releases",
    "rollout_operator.model.releases",
    "rollout_operator.model.decode.releases",
)
PROGRAM: Final = f"""
import sys
import rollout_operator.operator.main
import rollout_operator.operator.fleet
import rollout_operator.cli.run
print([one for one in sys.modules if one.startswith({OF_RELEASES!r})])
"""


def test_nothing_of_releases_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("flags", "is_on"),
    [([], False), (["-releases.enabled"], True), (["-releases.enabled", "-mode=shadow"], False)],
)
def test_releases_are_switched_on_by_a_flag(flags: list[str], is_on: bool) -> None:
    """A shadow writes nothing."""
    assert read_config(["-kubernetes.namespace=prod", *flags]).drives_releases is is_on
