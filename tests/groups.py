"""Pytest plugin: which worker gets which test next.

Tests that share what one of them has recorded run in one worker. Every second worker begins with
the tests on the control plane, which wait for most of their time, and the others with those that
compute: so the processors never wait, and no worker is left with one long test at the end.

A marker of pytest-xdist groups tests as well, by a suffix of the node id, which pytest takes no
more since 9.2. `conftest.py` loads this.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

# By file: what is checked of a story is checked of the same playing. What is built or parsed is so
# once.
TOGETHER: Final = (
    "tests/simulation/test_golden.py",
    "tests/test_layers.py",
    "tests/test_image.py",
    "tests/release/test_distributions.py",
)
# What waits for the control plane.
WAITING: Final = "tests/system/"
# Forty seconds and more: begun last, they would run while nothing else is left.
LONGEST: Final = (
    "tests/simulation/test_schedules.py",
    "tests/system/test_replicas.py",
    "tests/system/test_stories.py",
    "tests/system/test_rollouts.py",
    "tests/system/test_pages.py",
    "tests/system/test_releases.py",
)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives tests to the worker that is free, and those of a group to one and the same."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._lines: dict[bool, deque[str]] = {}

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Assign the first group of the line that the worker prefers, else of the other."""
        if not self._lines:
            self._lines = order_groups(self.workqueue)
        prefers_waiting = self.nodes.index(node) % 2 == 0
        line = self._lines[prefers_waiting] or self._lines[not prefers_waiting]
        if line:  # else a group whose worker died is left
            self.workqueue.move_to_end(line.popleft(), last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """Give a worker one more group, unless it has one to go on with after the present test.

        The library has two wait for each worker: at the end, minutes of tests on the control plane
        stood in one line while the other workers were done.
        """
        if not self.workqueue or self._pending_of(self.assigned_work[node]) <= 1:
            super()._reschedule(node)

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


def order_groups(groups: Iterable[str]) -> dict[bool, deque[str]]:
    """Return those that wait for the control plane and those that do not, the longest first."""
    lines: dict[bool, deque[str]] = {True: deque(), False: deque()}
    for group in sorted(groups, key=lambda one: not one.startswith(LONGEST)):
        lines[group.startswith(WAITING)].append(group)
    return lines


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    return GroupScheduling(config, log)
