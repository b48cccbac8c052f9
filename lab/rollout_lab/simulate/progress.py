"""What is said while a simulation takes long: how far it has come, and how long it will take.

Decides when to say something, and what. Pods are the measure: each takes about the same time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TextIO

from rollout_lab.model.history import Commit, Record
from rollout_operator.kube.api import PODS
from rollout_operator.model.units import format_duration
from rollout_operator.planning.wording import count

EVERY_S: Final = 15.0


@dataclass(slots=True)
class SimulationProgress:
    """Says every fifteen seconds of real time how far virtual time has come."""

    stream: TextIO
    pods: int
    clock: Callable[[], float]
    """Real time, in seconds."""
    _begun: float = field(init=False)
    _next: float = field(init=False)
    _created: int = 0

    def __post_init__(self) -> None:
        self._begun = self.clock()
        self._next = self._begun + EVERY_S

    def take(self, record: Record) -> None:
        """Count what has happened, and say something where it is time."""
        if isinstance(record, Commit) and record.resource == PODS and record.before is None:
            self._created += 1
        now = self.clock()
        if now < self._next:
            return
        self._next = now + EVERY_S
        self.stream.write(f"{self._render(record.at, now - self._begun)}\n")
        self.stream.flush()

    def _render(self, at: timedelta, took: float) -> str:
        come = f"{_format(at.total_seconds())} simulated in {_format(took)}"
        done = f"{self._created} of {count(self.pods, 'pod')} created anew"
        left = self.pods - self._created
        if not self._created or left <= 0:
            return f"{come}: {done}"
        return f"{come}: {done}, all of them would take {_format(took * left / self._created)} more"


def _format(seconds: float) -> str:
    return format_duration(timedelta(seconds=round(seconds)))
