"""The distributions of this checkout, built once."""

from pathlib import Path

import pytest

from release.distributions import build_distributions
from release.source import Source, read_source


@pytest.fixture(scope="session")
def source() -> Source:
    return read_source()


@pytest.fixture(scope="session")
def built(source: Source, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheel and the source distribution, then those of the lab."""
    folder, scratch = (tmp_path_factory.mktemp(name) for name in ("dist", "scratch"))
    return build_distributions(source, folder, scratch)
