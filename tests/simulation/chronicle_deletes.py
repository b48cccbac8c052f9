"""Judge hand-made histories of deletes in a group of three zones."""

from collections.abc import Callable
from typing import Any

from tests.judge.promises import Promises
from tests.judge.verdict import find_violations
from tests.simulation.chronicle import Chronicle

Story = Callable[[Chronicle], None]


def judge(story: Story, promises: Promises | None = None, **zones: Any) -> list[str]:
    """Return the ids of what a story breaks, in order."""
    chronicle = Chronicle()
    chronicle.zones(**zones)
    story(chronicle)
    verdict = find_violations(chronicle.history, promises or Promises())
    return [one.invariant for one in verdict.violations]
