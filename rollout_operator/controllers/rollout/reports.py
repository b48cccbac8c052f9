"""The outcome of carrying out one action: for the controller, and for the executor itself."""

from enum import Enum, auto

import msgspec

from rollout_operator.model.errors import ApiError, Conflict, DeadlinePassed, NotFound, Throttled
from rollout_operator.model.objects import Pod
from rollout_operator.model.outcome import Code, Reason, ReplacePods, Severity
from rollout_operator.planning.budgets.rule import Refusal


class Report(msgspec.Struct, kw_only=True):
    """The outcome of carrying out one action."""

    deleted: int = 0
    reasons: list[Reason] = []
    """Why a planned step was not done."""
    held: list[Refusal] = []
    """Why budgets hold pods, in the order in which these were tried."""
    error: ApiError | None = None
    is_contradicted: bool = False
    """The store holds something else than the cache shows."""
    cut_short: str = ""
    """Why a live read was too old before all was done, if it was: there is more to do."""

    @property
    def is_cut_short(self) -> bool:
        """Return whether a live read was too old before all was done."""
        return self.cut_short != ""


class DeleteOutcome(Enum):
    """The outcome of one delete."""

    WENT = auto()
    REFUSED = auto()
    SHARED = auto()
    """Refused for a reason that holds for the other pods as well."""
    CHANGED = auto()
    LATE = auto()


def explain_changed(action: ReplacePods) -> Reason:
    """Return the reason for a zone that a live read shows otherwise than the cache."""
    zone = action.zone.name
    text = f"the API server does not confirm what the cache shows of {zone}; looking again"
    return Reason(code=Code.SNAPSHOT_CHANGED, text=text, zone=zone, severity=Severity.DEBUG)


def cut_short_by(report: Report, why: str) -> DeleteOutcome:
    """Record why the rest has to wait for another live read."""
    report.cut_short = why
    return DeleteOutcome.LATE


def record_held(report: Report, answer: Refusal) -> DeleteOutcome:
    """Record that a pod may not go. Raises the error that kept the arbiter from deciding."""
    match answer.error:
        case None:
            report.held.append(answer)
            return DeleteOutcome.SHARED if answer.is_shared else DeleteOutcome.REFUSED
        case NotFound() | Conflict():
            report.held.append(answer)
            report.is_contradicted = True  # the pod has changed: the live read is old
            return DeleteOutcome.CHANGED
        case DeadlinePassed() | Throttled():
            return cut_short_by(report, answer.reason.text)
        case error:
            raise error


def explain_pod(
    code: Code, pod: Pod, error: ApiError, severity: Severity = Severity.DEBUG
) -> Reason:
    """Return why one pod was not deleted."""
    zone = pod.name.rpartition("-")[0]
    return Reason(
        code=code, text=f"{pod.name} was not deleted: {error}", zone=zone, severity=severity
    )
