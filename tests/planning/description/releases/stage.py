"""The commands of stories of descriptions: what every outlet says of Rollouts and schedules.

`why` shows the phase, each reason with its text, and the tag that comes next; a `?` marks a reason
without a remedy, and `said` texts that are those of conditions. `show a b` shows fields.
"""

import asyncio
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from rollout_operator.model.budget import StatusCondition
from rollout_operator.planning.cards import build_release, build_schedule, render_card
from rollout_operator.releases.model.plan import ReleaseObjects
from rollout_operator.releases.model.releases import GateSummary, RefusedRelease, ReleaseRollout
from rollout_operator.releases.planning.describe import (
    choose_next_tag,
    choose_release_phase,
    describe_gates,
    describe_release,
    describe_schedule,
    list_release_waits,
    order_schedules,
)
from tests.planning.description.card_stage import read_card
from tests.planning.releases.builders import head
from tests.planning.releases.schedules.schedule_stage import ScheduleStage
from tests.planning.releases.stage import ReleaseStage
from tests.web.status.descriptions import release

HELD: Final = {
    "idle": "known 1.0.0; pass; pass",
    "gated": "held idle; gate freeze closed; pass 1.1.0",
    "scheduled": (
        'held idle; hold "RolloutSchedule prod/nights is closed, and its gate does not say so yet";'
        " pass 1.1.0"
    ),
    "none allowed": "held idle; gate some allowed=1.2.0; pass 1.1.0",
    "unhealthy": (
        "spec checks=all; known 1.0.0; check Healthy change=0; pass; pass;"
        " check Unhealthy message=503; pass 1.1.0"
    ),
    "deploying": "spec bake=5 checks=all; known 1.0.0; check; pass; pass",
    "waiting for Flux": ('held deploying; waits r=1.0.0 "it has fetched 0.9.0, not 1.0.0"; pass'),
    "baking": "held deploying; check Healthy change=1; 1m; pass",
    "failed": "held baking; 1m; check Unhealthy change=2 error=2 message=503; pass 1.1.0",
    "suspended": "held idle; spec suspended; pass 1.1.0",
    "pin": "held idle; spec pin=9.9.9; registry 9.9.9 none; verify; pass",
    "no policy": 'held idle; policy "ImagePolicy prod/app: there is none"; pass',
    "no write": (
        'held idle; targets r=1.0.0; forbid "cannot write OCIRepository app: forbidden";'
        " pass 1.1.0; pass"
    ),
    # The version that failed is newer than the one in place.
    "rolled back": "known 1.0.0 1.1.0; history 1.0.0 1.1.0:Failed; pass",
    # What is deployed is a tag of a person.
    "incomparable": "known 1.1.0 1.2.0; history mine; pass",
    # A version that follows a failed one does not become healthy.
    "overdue": (
        "spec bake=5 checks=all; known 1.0.0; check; history 0.9.0:Failed;"
        " post unblock_failed=true; pass; pass; 61m; pass"
    ),
    "unanswered pin": "held idle; spec pin=9.9.9; verify; pass",
    # Another writer sets its own tag again and again.
    "contested": "held idle" + "; 1m; targets r=mine; pass" * 6,
    "writing": "held idle; targets r=1.0.0; pass 1.1.0",
    "unannounced": "pass",
    "refused": 'refused "Rollout prod/app: spec.bakeTime: no duration"; pass',
    "no Flux": 'held idle; policy "it may not be listed" FluxNotInstalled; pass',
    "no gates": 'held idle; policy "it may not be listed" GateListFailed; pass',
    "no checks": 'held idle; policy "it may not be listed" HealthCheckListFailed; pass',
}
"""Rollouts that do not go on, each for another reason."""


class DescriptionStage(ReleaseStage):
    """A Rollout as every outlet shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.error = ""

    async def do_held(self, *words: str) -> None:
        await self.act(f"{HELD[' '.join(words)]} > wait")

    async def do_error(self, text: str) -> None:
        """The last pass failed in this process."""
        self.error = text

    async def do_refused(self, problem: str) -> None:
        known = RefusedRelease(head=head(), problem=problem, status=self.status)
        self.rollout = cast(ReleaseRollout, known)

    async def do_head(self, word: str) -> None:
        """It goes, or its spec is newer than what was decided."""
        own = self.rollout.head
        own = replace(own, is_terminating=word == "going", generation=1 + 6 * (word == "newer"))
        self.rollout = replace(self.rollout, head=own)

    async def do_reword(self) -> None:
        """Another writer puts words of its own into the status."""
        conditions = self.status.conditions
        words = tuple(replace(one, reason="WordOfAnother") for one in conditions)
        self.set_status(conditions=words)

    async def do_why(self) -> str:
        waits = tuple(list_release_waits(self.rollout, self.error))
        conditions = {(one.reason, one.message) for one in self.status.conditions}
        is_said = {(wait.reason, wait.text) for wait in waits} <= conditions
        tag = choose_next_tag(self.rollout)
        return "; ".join(
            [
                f"{choose_release_phase(self.status, waits)}{' (said)' * is_said}",
                *[f"{one.reason}{'?' * (not one.remedy)}: {one.text}" for one in waits],
                *[f"next {tag}"] * bool(tag),
            ]
        )

    async def do_show(self, *fields: str) -> str:
        found = msgspec.to_builtins(self._describe())
        return "; ".join(f"{field} {_show(found[field])}" for field in fields)

    async def do_lines(self) -> str:
        return "\n".join(read_card(build_release(self._describe())))

    def _describe(self) -> Any:
        objects = ReleaseObjects(gates=self.gates, checks=self.checks)
        return describe_release(self.rollout, objects, self.targets, error=self.error)


class GateStage(ScheduleStage):
    """Schedules and the gates that they keep, as every outlet shows them."""

    async def do_refuse(self, name: str, message: str) -> None:
        """Gates could not be written."""
        one = self.schedules[name]
        ready = StatusCondition(
            type="Ready", status="False", reason="GatesNotWritten", message=message
        )
        self.schedules[name] = replace(one, status=replace(one.status, conditions=(ready,)))

    async def do_schedules(self) -> str:
        """All of them, those of the cluster last."""
        ordered = order_schedules(self.schedules.values())
        return "\n".join(render_card(build_schedule(describe_schedule(one))) for one in ordered)

    async def do_gates(self, *words: str) -> str:
        """Gates as a status has them, of which there may be objects: `gates a:open:1.0.0`."""
        found = describe_gates(
            head(), map(_read_summary, words), self.gates.values(), self.schedules.values()
        )
        lines = read_card(build_release(replace(release(), gates=tuple(found))))
        return "\n".join(line.split(maxsplit=1)[1] for line in lines if line[:7] == "  gate ")


def _read_summary(word: str) -> GateSummary:
    name, state, *allowed = word.split(":")
    versions = tuple(allowed) or None
    return GateSummary(
        name=name, passing=state == "open", allowed_versions=versions, message="as it was"
    )


def build(name: str) -> ReleaseStage:
    """Return one of the Rollouts that do not go on."""
    stage = DescriptionStage()
    asyncio.run(stage.do_held(name))
    return stage


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_show, value)) or "none"
    if isinstance(value, dict):
        return "(" + " ".join(f"{key}={_show(one)}" for key, one in value.items() if one) + ")"
    return str(value)
