"""What gates and health say, as it stands in the status.

A pin may be held as well: where the registry does not have its tag.
"""

from rollout_operator.planning.conditions import ConditionFinding
from rollout_operator.planning.releases import conditions
from rollout_operator.planning.releases.bounds import bound_gates
from rollout_operator.planning.releases.gates import GatesVerdict, assess_gates, list_gates
from rollout_operator.planning.releases.health import (
    BlockedCode,
    HealthVerdict,
    assess_health,
)
from rollout_operator.planning.releases.intents import (
    is_unblocked,
)
from rollout_operator.planning.releases.selection import (
    list_excluded,
)
from rollout_operator.planning.releases.state import ReleasePass


def assess_all_gates(state: ReleasePass) -> GatesVerdict:
    newer = state.choose_newer()
    gates = list_gates(state.rollout.head, state.snapshot.gates)
    verdict = assess_gates(
        newer.releases, gates, state.intents.bypass_gates, state.snapshot.schedule_holds
    )
    state.replace(
        release_candidates=newer.releases,
        gated_release_candidates=verdict.passed,
        gates=bound_gates(verdict.summaries),
        excluded_releases=list_excluded(
            newer.releases, state.status.history, state.intents, state.snapshot.compat
        ),
    )
    state.findings.append(
        ConditionFinding(conditions.GATES_PASSING, verdict.is_passing, verdict.code, verdict.text)
    )
    text = f"no release can be compared with {state.current_tag}" if newer.is_path_unknown else ""
    state.ready_note = text
    if text or state.status.has_condition(conditions.PATH_UNKNOWN):
        reason = conditions.PATH_UNKNOWN if text else "Comparable"
        found_path = ConditionFinding(conditions.PATH_UNKNOWN, bool(text), reason, text)
        state.findings.append(found_path)
    return verdict


def assess_blockers(state: ReleasePass) -> HealthVerdict:
    """Return what holds deployments back apart from gates (REL-56)."""
    failed = state.current if state.current and state.current.has_failed else None
    forgiven = failed.failed_health_checks if failed and is_unblocked(state.intents) else ()
    if state.spec.is_suspended:
        verdict = HealthVerdict(code=BlockedCode.SUSPENDED, text="spec.suspend is true")
    elif state.manual is not None:
        verdict = _assess_wanted(state)
    else:
        verdict = assess_health(state.checks, forgiven)
    state.findings.append(
        ConditionFinding(
            conditions.DEPLOYMENT_BLOCKED, verdict.is_blocking, verdict.code, verdict.text
        )
    )
    return verdict


def _assess_wanted(state: ReleasePass) -> HealthVerdict:
    """Return whether a pin is held because the registry does not have its tag (RELB-23).

    Where that is to be verified, a registry that has not answered yet holds it as well.
    """
    wanted, metadata = state.spec.wanted_version, state.snapshot.metadata
    is_known = wanted in {release.tag for release in state.status.available_releases}
    is_answered = is_known or wanted in metadata
    is_done = wanted is None or wanted == state.current_tag
    if state.snapshot.verifies_wanted and not is_answered and not is_done:
        text = f"no registry has said yet whether it has the tag {wanted}"
        finding = ConditionFinding(conditions.WANTED_FOUND, False, "NotVerified", text)
        state.findings.append(finding)
        return HealthVerdict(code=BlockedCode.WANTED_NOT_VERIFIED, text=text)
    if wanted is not None and is_answered:
        is_found = is_known or metadata[wanted] is not None
        text = "" if is_found else f"the registry has no tag {wanted}"
        reason = "Found" if is_found else "NotFound"
        finding = ConditionFinding(conditions.WANTED_FOUND, is_found, reason, text)
        state.findings.append(finding)
        if not is_found and state.snapshot.verifies_wanted:
            return HealthVerdict(code=BlockedCode.WANTED_NOT_FOUND, text=text)
    return HealthVerdict(code=BlockedCode.MANUAL, text="the release is requested by name")
