"""One pass over a Rollout: what is found and decided so far."""

from datetime import timedelta

import msgspec

from rollout_operator.model.releases.plan import (
    FluxTarget,
    ReleaseAction,
    ReleaseEvent,
    ReleaseSnapshot,
)
from rollout_operator.model.releases.release import AnnouncedReleases, ReleaseCandidates
from rollout_operator.model.releases.rollout import ReleaseRollout
from rollout_operator.model.releases.status import HistoryEntry
from rollout_operator.planning.conditions import ConditionFinding
from rollout_operator.planning.releases.bake import BakeContext, describe_flux_wait, next_clear_time
from rollout_operator.planning.releases.deployment import RECOVERING, DeployRequest
from rollout_operator.planning.releases.health import list_checks
from rollout_operator.planning.releases.intents import (
    consume,
    drop_intents,
    list_left_over,
    without_left_over,
)
from rollout_operator.planning.releases.selection import ManualRequest, choose_candidates


class ReleasePass:
    """The snapshot, and the status, events and actions that come of it."""

    def __init__(self, snapshot: ReleaseSnapshot, rollout: ReleaseRollout) -> None:
        self.snapshot = snapshot
        self.now = snapshot.now
        self.rollout = rollout
        self.spec = rollout.spec
        self.status = rollout.status
        self.intents = without_left_over(rollout)
        self.consumed = list_left_over(rollout)
        self.checks = list_checks(
            rollout.head, self.spec.checks, snapshot.checks, snapshot.namespaces
        )
        self.clear_after: timedelta | None = None
        """After what time what had to wait may begin."""
        self.findings: list[ConditionFinding] = []
        self.events: list[ReleaseEvent] = []
        self.actions: list[ReleaseAction] = []
        self.problem = ""
        self.ready_note = ""
        self.request: DeployRequest | None = None
        self.manual: ManualRequest | None = None

    @property
    def current(self) -> HistoryEntry | None:
        """Return the deployment that is in place, as this pass leaves it."""
        return self.status.current

    @property
    def current_tag(self) -> str | None:
        """Return its tag."""
        return None if self.current is None else self.current.version.tag

    def replace(self, **fields: object) -> None:
        """Set fields of the status."""
        self.status = msgspec.structs.replace(self.status, **fields)

    def consume(self, *annotations: str) -> None:
        """Record that annotations had their effect."""
        self.consumed += consume(self.intents, annotations)
        self.intents = drop_intents(self.intents, annotations)

    def list_unwritten(self) -> list[FluxTarget]:
        """Return the targets that do not have the tag of the current deployment."""
        if self.current is None:
            return []
        return [target for target in self.snapshot.targets if target.tag != self.current_tag]

    def is_unwritable(self) -> bool:
        """Return whether objects of Flux refuse the tag of the current deployment."""
        return bool(self.snapshot.write_problem and self.list_unwritten())

    def must_wait(self) -> bool:
        """Return whether a deployment or retry cannot begin now, and note until when."""
        self.clear_after = next_clear_time(self.checks, self.now)
        return self.clear_after is not None

    def bake_context(self) -> BakeContext:
        """Return what a bake depends on."""
        return BakeContext(
            spec=self.spec,
            checks=self.checks,
            now=self.now,
            is_recovering=self.is_recovering(),
            blocker=self.explain_blocker(),
        )

    def is_recovering(self) -> bool:
        """Return whether failures do not count for the current deployment."""
        # A deployment of this pass decided anew.
        now = next(
            (finding.is_true for finding in self.findings if finding.type == RECOVERING), None
        )
        return self.status.has_condition(RECOVERING) if now is None else now

    def explain_blocker(self) -> str:
        """Return what Flux has yet to do (RELB-16). Without a bake its writes are enough."""
        snapshot = self.snapshot
        return describe_flux_wait(self.rollout, self.current_tag, snapshot.targets, snapshot.compat)

    def choose_newer(self) -> ReleaseCandidates:
        """Return the releases that are newer than the current release."""
        return choose_candidates(self.announced(), self.snapshot.compat)

    def announced(self) -> AnnouncedReleases:
        """Return what is known of releases, as this pass leaves it."""
        return AnnouncedReleases(
            available=self.status.available_releases,
            current=self.current_tag,
            latest=self.snapshot.policy.latest,
            order=self.snapshot.policy.order,
        )
