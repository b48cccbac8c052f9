"""Pytest plugin: tests marked `prove` are for `make prove`, and run with `--prove` alone.

They show with more cases, seeds or kills what a test beside them shows in the gate, too.
`conftest.py` loads this.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--prove", action="store_true", help="run tests marked `prove`, and no other")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of the other kind."""
    is_proving = config.getoption("prove")
    chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        chosen[(item.get_closest_marker("prove") is not None) == is_proving].append(item)
    items[:] = chosen[True]
    if chosen[False]:
        config.hook.pytest_deselected(items=chosen[False])
