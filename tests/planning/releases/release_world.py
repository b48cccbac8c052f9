"""A Rollout that is planned, and whose plans are carried out: pass by pass, with a clock."""

from datetime import timedelta
from typing import Any, Final

import msgspec

from rollout_operator.releases.model.plan import (
    ApplyTag,
    Correction,
    FluxTarget,
    HealthCheck,
    PolicyReading,
    ReleaseEvent,
    ReleasePlan,
    ReleaseSnapshot,
    RemoveIntents,
)
from rollout_operator.releases.model.releases import (
    OURS,
    HistoryEntry,
    PolicyOrder,
    ReleaseCompat,
    ReleaseGate,
    ReleaseMetadata,
    ReleaseRollout,
    ReleaseStatus,
    TagOrder,
)
from rollout_operator.releases.planning.releases import list_drifted, plan_release, remember
from tests.planning.releases.builders import START, releases, rollout

PREFIX: Final = "rollout.kuberik.com/"


class ReleaseWorld:
    """All that a Rollout depends on."""

    def __init__(self, *, latest: str | None = None, known: str = "", **spec: Any) -> None:
        self.rollout: ReleaseRollout = rollout(
            status=ReleaseStatus(available_releases=releases(known)), **spec
        )
        self.latest = latest or (known.split()[-1] if known else None)
        self.order: TagOrder | None = TagOrder(by=PolicyOrder.SEMVER)
        self.policy_problem = self.policy_reason = ""
        self.digest: str | None = None
        self.metadata: dict[str, ReleaseMetadata | None] = {}
        self.gates: tuple[ReleaseGate, ...] = ()
        self.schedule_holds: tuple[str, ...] = ()
        self.checks: tuple[HealthCheck, ...] = ()
        self.targets: tuple[FluxTarget, ...] = ()
        self.write_problem = ""
        self.may_be_written = False
        self.refused: dict[str, str] = {}
        self.corrections: tuple[Correction, ...] = ()
        self.verifies_wanted = False
        self.compat: ReleaseCompat = OURS
        self.now = START
        self.plan = ReleasePlan(status=self.rollout.status)
        self.reported: list[ReleaseEvent] = []
        """All events so far."""

    @property
    def status(self) -> ReleaseStatus:
        return self.rollout.status

    @property
    def current(self) -> HistoryEntry:
        assert self.status.current is not None
        return self.status.current

    def history(self) -> str:
        """Return `2.0.0 Deploying, 1.0.0 Succeeded`, the newest first."""
        return ", ".join(f"{one.version.tag} {one.bake_status}" for one in self.status.history)

    def tags(self) -> str:
        return " ".join(one.version.tag for one in self.status.history)

    def reason(self, kind: str) -> str:
        """Return status and reason of a condition: `True Normal`."""
        found = self.status.find_condition(kind)
        return "" if found is None else f"{found.status} {found.reason}"

    def set_spec(self, **spec: Any) -> None:
        self._replace(spec=msgspec.structs.replace(self.rollout.spec, **spec))

    def set_status(self, **status: Any) -> None:
        self._replace(status=msgspec.structs.replace(self.rollout.status, **status))

    def post(self, **intents: str | None) -> None:
        """Set annotations by their names, or remove them: `post(force_deploy="1.0.0")`."""
        changed = {f"{PREFIX}{key.replace('_', '-')}": text for key, text in intents.items()}
        found = {**self.rollout.intents, **changed}
        self._replace(intents={key: text for key, text in found.items() if text is not None})

    def wait(self, minutes: float) -> None:
        self.now += timedelta(minutes=minutes)

    def snapshot(self) -> ReleaseSnapshot:
        reading = PolicyReading(
            latest=self.latest,
            digest=self.digest,
            order=self.order,
            problem=self.policy_problem,
            reason=self.policy_reason,
        )
        return ReleaseSnapshot(
            rollout=self.rollout,
            now=self.now,
            policy=reading,
            metadata=self.metadata,
            gates=self.gates,
            schedule_holds=self.schedule_holds,
            checks=self.checks,
            namespaces={"prod": {}},
            targets=self.targets,
            write_problem=self.write_problem,
            may_be_written=self.may_be_written,
            refused=self.refused,
            corrections=self.corrections,
            verifies_wanted=self.verifies_wanted,
            compat=self.compat,
        )

    def step(self, latest: str | None = None, *, acts: bool = True) -> ReleasePlan:
        """Plan, write the status and, unless the process dies before it, act."""
        self.latest = latest or self.latest
        self.plan = plan_release(self.snapshot())
        self.reported += self.plan.events
        self._replace(status=self.plan.status)
        if acts:
            self._act()
        return self.plan

    def _act(self) -> None:
        failed = list_drifted(self.plan) if self.write_problem else ()
        self.corrections = remember(self.corrections, self.plan, self.now, failed)
        for action in self.plan.actions:
            if isinstance(action, ApplyTag) and not self.write_problem:
                known = [one for one in self.targets if one != action.target]
                fresh = msgspec.structs.replace(action.target, tag=action.tag)
                self.targets = (*known, fresh)
            if isinstance(action, RemoveIntents):
                self.post(**{one.annotation.removeprefix(PREFIX): None for one in action.intents})

    def _replace(self, **fields: Any) -> None:
        self.rollout = msgspec.structs.replace(self.rollout, **fields)
