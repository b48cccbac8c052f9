"""What is made of the operator's log during a run: a story for readers, and the bugs that it tells.

Errors of the API are the operator's daily bread; what it logs with a stack is none of them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from rollout_operator.lab.model.history import History, Said
from rollout_operator.telemetry import logs
from tests.judge.promises import Violation
from tests.simulation.virtual import now

DEFECT: Final = "BUG"
_STACK: Final = b" stack="


@dataclass(slots=True)
class Ears:
    """Hears all lines of a run."""

    listens: bool
    """Whether the lines from level info on go into the history."""
    history: History | None = None
    defects: list[Violation] = field(default_factory=list)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the log instead of stderr."""
        logs.configure(level="info" if self.listens else "error", write=self._take)
        try:
            yield
        finally:
            logs.configure()

    def _take(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        if _STACK in line:
            self.defects.append(Violation(invariant=DEFECT, at=now(), text=text))
        if self.listens and self.history is not None:
            # Its own time is the machine's, not that of the world.
            level, _, told = text.partition(" ")
            said = f"{level} {told.partition(' ')[2]}"
            self.history.add(Said(at=now(), actor="operator-1", text=said))
