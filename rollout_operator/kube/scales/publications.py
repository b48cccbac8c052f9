"""Know when a status is written that does not stay, and refuse to write it once more too soon."""

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.rewrites import Rewrites
from rollout_operator.model.errors import Throttled
from rollout_operator.model.scaling import Reference


class Publications:
    """What was written to the status of references, and how often in a row."""

    def __init__(self, clock: Clock) -> None:
        self._rewrites: Rewrites[Reference, int] = Rewrites(clock)

    def check(self, reference: Reference, replicas: int) -> None:
        """Raise Throttled where this was written often, and lately."""
        wait = self._rewrites.wait_before(reference, replicas)
        if wait:
            times = self._rewrites.count(reference, replicas)
            raise Throttled(
                f"status.replicas of {reference} was set to {replicas} {times} times and did"
                f" not stay, something else writes it: set again in {wait.total_seconds():.0f}s"
            )

    def note(self, reference: Reference, replicas: int) -> None:
        """Take note that it was written."""
        self._rewrites.note(reference, replicas)

    def forget(self, reference: Reference) -> None:
        """Begin anew with a reference."""
        self._rewrites.forget(reference)
