"""What goes wrong between processes and a simulated cluster, as a story says."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import chain

from rollout_lab.network.faults import (
    AS_USUAL,
    CrashPoint,
    Failure,
    FaultOutcome,
    NoFaults,
    Occasion,
    OccasionKind,
)


class Trouble(NoFaults):
    """The next calls of a kind go as scripted, caches of some kinds lag, and processes may die."""

    def __init__(self) -> None:
        self.lags: dict[str, timedelta] = {}
        self.freezes: dict[str, timedelta] = {}
        self.failed: Counter[str] = Counter()
        self.death: tuple[int, CrashPoint] | None = None
        """At the call of this number for releases, and where in it."""
        self.calls = 0
        self.hidden = ""
        """Events of objects whose names begin so never come; empty where all do."""
        self._scripts: dict[str, Iterator[FaultOutcome]] = {}

    def script(self, call: str, outcomes: Iterable[FaultOutcome]) -> None:
        """Decide what becomes of the next calls of a verb and a plural, as in `patch rollouts`."""
        self._scripts[call] = chain(self._scripts.get(call, ()), outcomes)

    def decide(self, occasion: Occasion) -> FaultOutcome:
        lag = self.lags.get(occasion.plural, timedelta(0))
        match occasion.kind:
            case OccasionKind.EVENT:
                if self.hidden and occasion.name.startswith(self.hidden):
                    return FaultOutcome(fails=Failure.DROP)
                freeze = self.freezes.pop(occasion.plural, timedelta(0))
                return FaultOutcome(before=lag, freeze=freeze)
            case OccasionKind.LIST:
                return FaultOutcome(age=lag)
            case OccasionKind.CALL:
                return self._decide_call(occasion)
        return AS_USUAL

    def _decide_call(self, occasion: Occasion) -> FaultOutcome:
        place = "/".join(filter(None, (occasion.plural, occasion.subresource)))
        call = f"{occasion.verb} {place}"
        outcome = next(self._scripts.get(call, iter(())), None)
        if outcome is not None:
            if outcome.fails is not None:
                self.failed[f"{call} {outcome.fails}"] += 1
            return outcome
        if self.death is not None and occasion.verb in ("get", "patch"):
            self.calls += 1
            if self.calls == self.death[0]:
                return FaultOutcome(crash=self.death[1])
        return AS_USUAL
