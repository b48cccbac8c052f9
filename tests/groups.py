"""Pytest plugin: tests that share what one of them has recorded run in one worker.

A marker of pytest-xdist says the same, by a suffix of the node id, which pytest takes no more since
9.2. `conftest.py` loads this.
"""

from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

# By file: the control plane's answers to all sequences take two minutes to record, and what is
# asked of a story is asked of one and the same playing. What is built is built once.
TOGETHER: Final = (
    "tests/contract/test_contract_worlds.py",
    "tests/simulation/test_golden.py",
    "tests/test_image.py",
    "tests/release/test_distributions.py",
)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives tests to the worker that is free, and those of a group to one and the same."""

    def _split_scope(self, nodeid: str) -> str:
        """Return the group of a test, which is its own id for most of them."""
        file = nodeid.partition("::")[0]
        return file if file in TOGETHER else nodeid

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        """Forget a group that has run: after each test, all that a worker was given is counted."""
        super().mark_test_complete(node, item_index, duration)
        group = self._split_scope(self.registered_collections[node][item_index])
        if all(self.assigned_work[node][group].values()):
            del self.assigned_work[node][group]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    """Return what gives the tests to the workers."""
    return GroupScheduling(config, log)
