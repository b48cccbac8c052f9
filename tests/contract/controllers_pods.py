"""How pods of sequences with controllers behave, chosen by their image, in both worlds alike.

`held` pods do nothing by themselves once they run: a sequence writes their status and ends them,
so that each of its steps is one change which the controller sees alone.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from rollout_lab.nodes import behaviour as simulated

from tests.world import kubelet as real

HELD: Final = "held"
QUICK: Final = "quick"
"""Ready and gone within moments."""
NEVER_READY: Final = "never-ready"
CRASHING: Final = "crashing"
GATED: Final = "gated"
CLAIMING: Final = "claiming"
"""Says that it is ready, without any container status."""
FAILING: Final = "failing"
PENDING: Final = "pending"
"""Never gets a node."""

_MOMENT: Final = timedelta(milliseconds=20)
_NEVER: Final = timedelta(hours=1)

_TROUBLES: Final[Mapping[str, tuple[real.Kind, simulated.StartKind]]] = {
    NEVER_READY: (real.Kind.NEVER_READY, simulated.StartKind.NEVER_READY),
    CRASHING: (real.Kind.CRASH_LOOP, simulated.StartKind.CRASH_LOOP),
    GATED: (real.Kind.GATE_CLOSED, simulated.StartKind.GATE_CLOSED),
    CLAIMING: (real.Kind.NO_STATUSES, simulated.StartKind.NO_STATUSES),
    FAILING: (real.Kind.FAILED, simulated.StartKind.FAILED),
    PENDING: (real.Kind.PENDING, simulated.StartKind.PENDING),
    QUICK: (real.Kind.NORMAL, simulated.StartKind.NORMAL),
}


def _real() -> dict[str, real.Behaviour]:
    table = {
        image: real.Behaviour(
            kind=kind, ready_after=_MOMENT, terminates_after=_MOMENT, period=_NEVER
        )
        for image, (kind, _) in _TROUBLES.items()
    }
    held = real.Behaviour(
        kind=real.Kind.NEVER_READY, ready_after=timedelta(0), terminates_after=_NEVER
    )
    return {**table, HELD: held}


def _simulated() -> dict[str, simulated.Behaviour]:
    table = {
        image: simulated.Behaviour(
            kind=kind,
            starts_after=_MOMENT,
            ready_after=_MOMENT,
            terminates_after=_MOMENT,
            period=_NEVER,
            # The kubelet of the real side writes no last status.
            shows_its_end=False,
        )
        for image, (_, kind) in _TROUBLES.items()
    }
    held = simulated.Behaviour(
        kind=simulated.StartKind.NEVER_READY,
        starts_after=timedelta(0),
        ready_after=timedelta(0),
        terminates_after=_NEVER,
        shows_its_end=False,
    )
    return {**table, HELD: held}


# Images that are named nowhere are as the kubelets of both sides play them by default.
REAL_CHOICE: Final = real.by_image(_real())
SIMULATED_CHOICE: Final = simulated.by_image(_simulated())
