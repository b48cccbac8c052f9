"""Why a Rollout does not go on, the reason that decides first, and what a person can do.

Reasons and texts are those of its conditions, of its history and of its gates: nothing is decided
anew, so that every replica, and a command that only reads, says the same.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from rollout_operator.model.described.releases import ReleasePhase, ReleaseWait
from rollout_operator.model.releases.rollout import RefusedRelease, ReleaseRollout
from rollout_operator.model.releases.status import BakeStatus, ReleaseStatus
from rollout_operator.planning.releases import bake, conditions
from rollout_operator.planning.releases.gates import GatesCode
from rollout_operator.planning.releases.health import BlockedCode
from rollout_operator.planning.wording import cut

NOT_OBSERVED: Final = "NotObserved"
NOT_RECONCILED: Final = "NotReconciled"
TERMINATING: Final = "Terminating"
EXCLUDED: Final = "Excluded"

# What makes `Ready` false whatever is deployed. While it lasts, nothing is decided anew.
_PROBLEMS: Final = frozenset(
    {
        *(conditions.FAILED, conditions.NO_RELEASES, conditions.NO_FLUX),
        *(conditions.GATES_UNKNOWN, conditions.CHECKS_UNKNOWN),
    }
)
_ROLE: Final = (
    "give the operator the rights of `releases`, for other namespaces those of `releases-cluster`"
)
_BY_NAME: Final = "`rollout.kuberik.com/force-deploy` with a tag deploys it all the same"
REMEDIES: Final[Mapping[str, str]] = {
    NOT_RECONCILED: "mend what the error names",
    TERMINATING: "when it stays, look at the finalizers of the Rollout",
    NOT_OBSERVED: "when it stays, see that an operator with `-releases.enabled` acts here",
    conditions.INVALID_SPEC: "correct the spec",
    conditions.FAILED: "mend what is named: the image policy, a right of the operator, an object of"
    " Flux, or an annotation",
    conditions.NO_FLUX: "install image-reflector-controller, source-controller and"
    " kustomize-controller of Flux",
    conditions.NO_RELEASES: "see why the image policy selects no tag",
    conditions.GATES_UNKNOWN: _ROLE,
    conditions.CHECKS_UNKNOWN: _ROLE,
    bake.FAILED: "look at the failed HealthChecks. `rollout.kuberik.com/retry` tries it once more,"
    ' `rollout.kuberik.com/unblock-failed: "true"` lets the next version through, and'
    " `spec.wantedVersion` goes back to an older version",
    conditions.RECOVERY_TIMEOUT: "look at the HealthChecks; a newer version may come by itself",
    conditions.TARGET_CONFLICT: "find what writes the object beside this Rollout, such as a"
    " Kustomization that applies it, and have it leave the tag alone",
    BlockedCode.SUSPENDED: "set `spec.suspend` to false",
    BlockedCode.WANTED_NOT_FOUND: "push the tag, or correct `spec.wantedVersion`",
    BlockedCode.WANTED_NOT_VERIFIED: "see in the log why the registry does not answer",
    BlockedCode.UNHEALTHY: f"look at the HealthChecks; {_BY_NAME}",
    GatesCode.BLOCKING: "open the gates that are named, or see what keeps them closed;"
    " `rollout.kuberik.com/bypass-gates` with a tag lets it past them",
    GatesCode.SCHEDULES: "when it stays, mend what is named: the schedule, or what its condition"
    " `Ready` says of its gates, or a right of the operator; `rollout.kuberik.com/bypass-gates`"
    " with a tag lets it past them",
    GatesCode.NONE_ALLOWED: "add the version to `spec.allowedVersions` of the gates;"
    " `rollout.kuberik.com/bypass-gates` with a tag lets it past them",
    EXCLUDED: _BY_NAME,
    conditions.PATH_UNKNOWN: f"set `spec.wantedVersion`; {_BY_NAME}",
    **dict.fromkeys((BakeStatus.DEPLOYING, BakeStatus.IN_PROGRESS, conditions.WRITING), ""),
}
"""What a person can do, by each reason why a Rollout does not go on; empty where time ends it."""
_PHASES: Final[Mapping[str, ReleasePhase]] = {
    bake.FAILED: ReleasePhase.FAILED,
    BakeStatus.IN_PROGRESS: ReleasePhase.BAKING,
    BakeStatus.DEPLOYING: ReleasePhase.DEPLOYING,
    conditions.WRITING: ReleasePhase.DEPLOYING,
    **dict.fromkeys(
        (
            *(NOT_RECONCILED, conditions.INVALID_SPEC, conditions.FAILED, conditions.NO_FLUX),
            *(conditions.GATES_UNKNOWN, conditions.CHECKS_UNKNOWN, conditions.RECOVERY_TIMEOUT),
            *(conditions.TARGET_CONFLICT, BlockedCode.SUSPENDED),
            *(BlockedCode.WANTED_NOT_FOUND, BlockedCode.WANTED_NOT_VERIFIED),
        ),
        ReleasePhase.HELD,
    ),
}


def list_release_waits(
    rollout: ReleaseRollout | RefusedRelease, error: str = "", latest: str = ""
) -> Iterator[ReleaseWait]:
    """Yield all reasons; none where the newest version is in place.

    `error` is why the last pass over it failed, where this process made it. `latest` is the tag
    that its image policy selects, as far as that is known.
    """
    if isinstance(rollout, RefusedRelease):
        yield _wait(conditions.INVALID_SPEC, rollout.problem)
        return
    if rollout.head.is_terminating:
        yield _wait(TERMINATING, "it is being deleted: nothing is deployed")
        return
    if error:
        yield _wait(NOT_RECONCILED, f"the last pass over it failed: {error}")
    status = rollout.status
    if not status.observed_generation:
        yield _wait(NOT_OBSERVED, "no operator has decided on it yet")
    elif status.observed_generation < rollout.head.generation:
        yield _wait(NOT_OBSERVED, "no operator has decided on its newest spec yet")
    yield from _list_problems(status)
    yield from _list_of_current(status)
    yield from _list_of_next(rollout)
    if latest and latest not in {release.tag for release in status.available_releases}:
        yield _wait(NOT_OBSERVED, f"no operator has decided on {latest} yet")


def choose_release_phase(status: ReleaseStatus, waits: tuple[ReleaseWait, ...]) -> ReleasePhase:
    """Return what a Rollout is doing, by what decides first."""
    if not waits:
        return ReleasePhase.WAITING if status.current is None else ReleasePhase.DEPLOYED
    return _PHASES.get(waits[0].reason, ReleasePhase.WAITING)


def choose_next_tag(rollout: ReleaseRollout | RefusedRelease) -> str:
    """Return the tag that is deployed as soon as nothing holds it back, empty for none."""
    status = rollout.status
    current = "" if status.current is None else status.current.version.tag
    wanted = ""
    if isinstance(rollout, ReleaseRollout):
        wanted = rollout.spec.wanted_version or rollout.intents.force_deploy or ""
    if wanted:
        return "" if wanted == current else wanted
    excluded = {release.tag for release in status.excluded_releases}
    pools = (status.gated_release_candidates, status.release_candidates)
    tags = (release.tag for pool in pools for release in pool if release.tag not in excluded)
    return next(tags, "")


def _list_problems(status: ReleaseStatus) -> Iterator[ReleaseWait]:
    ready = status.find_condition(conditions.READY)
    if ready is not None and ready.status != "True" and ready.reason in _PROBLEMS:
        yield _wait(ready.reason, ready.message)


def _list_of_current(status: ReleaseStatus) -> Iterator[ReleaseWait]:
    """Yield what is wrong with the version that is deployed, or what it waits for."""
    current = status.current
    if current is not None and current.has_failed:
        yield _wait(bake.FAILED, current.bake_status_message or "its bake failed")
    stalled = status.find_condition(conditions.STALLED)
    is_overdue = stalled is not None and stalled.reason == conditions.RECOVERY_TIMEOUT
    if stalled is not None and is_overdue and stalled.status == "True":
        yield _wait(conditions.RECOVERY_TIMEOUT, stalled.message)
    conflict = status.find_condition(conditions.TARGET_CONFLICT)
    if conflict is not None and conflict.status == "True":
        yield _wait(conditions.TARGET_CONFLICT, conflict.message)
    if current is not None and current.is_active:
        busy = status.find_condition(conditions.RECONCILING)
        is_writing = busy is not None and busy.reason == conditions.WRITING
        reason = conditions.WRITING if is_writing else str(current.bake_status)
        yield _wait(reason, current.bake_status_message or f"{current.version.tag} is deployed")


def _list_of_next(rollout: ReleaseRollout) -> Iterator[ReleaseWait]:
    """Yield what holds the next version back."""
    status, next_tag = rollout.status, choose_next_tag(rollout)
    blocked = status.find_condition(conditions.DEPLOYMENT_BLOCKED)
    if next_tag and blocked is not None and blocked.status == "True":
        yield _wait(blocked.reason, blocked.message)
    is_manual = rollout.spec.wanted_version is not None or bool(rollout.intents.force_deploy)
    gates = status.find_condition(conditions.GATES_PASSING)
    is_held = gates is not None and gates.status == "False" and bool(status.release_candidates)
    if gates is not None and is_held and not is_manual and status.current is not None:
        yield _wait(gates.reason, gates.message)
    for release in status.excluded_releases if not is_manual else ():
        yield _wait(EXCLUDED, f"{release.tag}: {release.reason}")
    path = status.find_condition(conditions.PATH_UNKNOWN)
    if path is not None and path.status == "True":
        yield _wait(conditions.PATH_UNKNOWN, path.message)


def _wait(reason: str, text: str) -> ReleaseWait:
    # A status may have any reason: people and other controllers write it, too.
    return ReleaseWait(reason=reason, text=cut(text), remedy=REMEDIES.get(reason, ""))
