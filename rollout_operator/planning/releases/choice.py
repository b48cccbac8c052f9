"""Whether a release is deployed now, and which.

The newest that gates let through and that did not fail before, while nothing bakes, nothing failed
and health is not against it; or the release that is requested by name, whatever else there is.
"""

from rollout_operator.model import names
from rollout_operator.model.releases.release import Release
from rollout_operator.planning.releases import conditions
from rollout_operator.planning.releases.bake import (
    is_overdue,
)
from rollout_operator.planning.releases.deployment import (
    DeployRequest,
    render_failure,
)
from rollout_operator.planning.releases.discovery import make_release
from rollout_operator.planning.releases.gates import GatesVerdict
from rollout_operator.planning.releases.health import HOLDING, HealthVerdict
from rollout_operator.planning.releases.intents import (
    drop_intents,
    is_unblocked,
)
from rollout_operator.planning.releases.selection import (
    list_excluded,
)
from rollout_operator.planning.releases.state import ReleasePass


def choose_request(state: ReleasePass, verdict: GatesVerdict, health: HealthVerdict) -> None:
    """Request the release that is to be deployed now, if there is one."""
    if health.code in HOLDING:
        return
    if state.manual is not None:
        if state.manual.tag and state.manual.tag != state.current_tag:
            _make_request(state, state.manual.tag)
        return
    choice = _choose_next(state, verdict)
    if choice is None:
        return
    if state.current is not None and health.is_blocking:
        _report_blocked(state, health, choice)
    elif state.current is None or not state.current.has_failed or is_unblocked(state.intents):
        _make_request(state, choice.tag, verdict)


def _choose_next(state: ReleasePass, verdict: GatesVerdict) -> Release | None:
    """Return the newest release that gates and its own past let through."""
    pool = verdict.passed
    if state.current is None:
        # Gates do not hold a first deployment back (REL-53).
        pool = pool or verdict.allowed or state.status.release_candidates
    elif state.current.is_active and not is_overdue(state.current, state.bake_context()):
        return None
    excluded = {release.tag for release in state.status.excluded_releases}
    return next((release for release in pool if release.tag not in excluded), None)


def _report_blocked(state: ReleasePass, health: HealthVerdict, candidate: Release) -> None:
    condition = state.rollout.status.find_condition(conditions.DEPLOYMENT_BLOCKED)
    is_same = condition is not None and condition.message == health.text
    if not is_same or state.rollout.status.gated_release_candidates[:1] != (candidate,):
        state.events.append(
            render_failure("HealthCheckBlocking", f"{candidate.tag}: {health.text}")
        )


def _make_request(state: ReleasePass, tag: str, verdict: GatesVerdict | None = None) -> None:
    """Request a deployment; `verdict` is that of gates where these have a say."""
    stored = next(
        (release for release in state.status.available_releases if release.tag == tag), None
    )
    failed = state.current is not None and state.current.has_failed
    blocked = drop_intents(state.intents, [names.UNBLOCK_FAILED])
    excluded = list_excluded(
        state.status.release_candidates, state.status.history, blocked, state.snapshot.compat
    )
    would_not = failed or tag in {release.tag for release in excluded}
    state.request = DeployRequest(
        release=stored or make_release(tag, state.snapshot.metadata.get(tag)),
        is_manual=verdict is None,
        is_forced=state.intents.force_deploy == tag,
        is_bypassing=(
            verdict is not None and verdict.is_bypass_needed and state.intents.bypass_gates == tag
        ),
        is_unblocking=verdict is not None and is_unblocked(state.intents) and would_not,
        is_written=all(target.tag == tag for target in state.snapshot.targets),
    )
