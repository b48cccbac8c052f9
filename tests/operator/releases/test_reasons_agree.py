"""Why a Rollout does not go on is the same code and sentence wherever people look.

`kubectl get` shows the message of `Ready`, `kubectl describe` all conditions and Events. Each code
is brought about by the planner itself: what no planner writes cannot pass here.
"""

from typing import Final, NamedTuple

import pytest

from rollout_operator.model.budget import EventRecord
from rollout_operator.model.objects import WatchedObject
from rollout_operator.planning.cards import build_release, render_card
from rollout_operator.releases.controller import ReleaseReports
from rollout_operator.releases.metrics import ReleaseCounters, show_releases
from rollout_operator.releases.planning.describe import REMEDIES, describe_release
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web import cards
from tests.planning.description.card_stage import read_card
from tests.planning.description.releases.stage import build
from tests.planning.releases.stage import ReleaseStage


class Held(NamedTuple):
    """A Rollout that does not go on, and what differs in some place."""

    name: str
    """Of the commands that bring it about."""
    event: str = ""
    """Reason of the Event that has the sentence, where kuberik's is another word."""
    has_event: bool = True
    is_blocked: bool = False
    """Whether an alert needs a person."""


CASES: Final = {
    "InvalidSpec": Held("refused", is_blocked=True),
    "RolloutFailed": Held("no policy", is_blocked=True),
    "FluxNotInstalled": Held("no Flux", is_blocked=True),
    "GateListFailed": Held("no gates", is_blocked=True),
    "HealthCheckListFailed": Held("no checks", is_blocked=True),
    "NoReleasesAvailable": Held("unannounced"),
    "BakeTimeFailed": Held("failed", is_blocked=True),
    "RecoveryTimeout": Held("overdue", is_blocked=True),
    "TargetConflict": Held("contested", is_blocked=True),
    "Suspended": Held("suspended"),
    "WantedVersionNotFound": Held("pin", is_blocked=True),
    "WantedVersionNotVerified": Held("unanswered pin", is_blocked=True),
    "UnhealthyHealthChecks": Held("unhealthy", event="HealthCheckBlocking"),
    "SomeGatesBlocking": Held("gated"),
    "SchedulesBlocking": Held("scheduled"),
    "NoAllowedVersions": Held("none allowed"),
    "UpgradePathUnknown": Held("incomparable", is_blocked=True),
    "InProgress": Held("baking", event="BakeTimeStarted"),
    # Reported when it failed; Flux and health change too often for an Event each.
    "Excluded": Held("rolled back", has_event=False),
    "Deploying": Held("deploying", has_event=False),
    "WritingTargets": Held("writing", has_event=False),
}
# These stand in no status: no process has written any.
OF_NO_STATUS: Final = {"NotObserved", "NotReconciled", "Terminating"}


def test_each_code_is_brought_about() -> None:
    assert CASES.keys() | OF_NO_STATUS == REMEDIES.keys()


@pytest.mark.parametrize("code", CASES)
def test_d_40_all_places_have_the_code_and_the_sentence(code: str, lines: list[str]) -> None:
    case = CASES[code]
    world = build(case.name)
    described = describe_release(world.rollout)
    first = described.waits[0]
    assert (described.reason, described.headline) == (code, first.text)
    assert (first.reason, first.remedy) == (code, REMEDIES[code])

    said = {condition.type: condition.message for condition in world.status.conditions}
    assert first.text in said["Ready"]
    assert read_blocked(world) == ({code} if case.is_blocked else set())
    card = build_release(described)
    drawn = "\n".join(read_card(card))
    for shown in (render_card(card), drawn):
        assert f"{first.text} [{code}]" in shown
    assert first.remedy in drawn
    page = cards.render_card(card)
    assert cards.escape(first.text) in page
    assert f"<code>{code}</code>" in page

    events = report(world)
    reported = [(event.reason, first.text in event.note) for event in events]
    expected = 1 if case.has_event else 0
    assert reported.count((case.event or code, True)) == expected, reported
    logged = [line for line in lines if f"reason={case.event or code} " in line]
    assert len(logged) == expected


@pytest.mark.parametrize("code", CASES)
def test_relb06_nothing_is_reported_twice(code: str) -> None:
    world = build(CASES[code].name)
    world.write_problem = "the write is refused" if code == "WritingTargets" else ""
    world.step()
    before, written = len(world.reported), world.status
    for _ in range(3):
        world.wait(0.1)
        world.step()
    assert [event.reason for event in world.reported[before:]] == []
    assert world.status == written


def report(world: ReleaseStage) -> list[EventRecord]:
    """Return the Events of all that was reported so far, and have it logged."""
    found: list[EventRecord] = []
    counters = ReleaseCounters(Metrics().registry, "prod", ())
    head = world.rollout.head
    watched = WatchedObject(
        namespace=head.namespace,
        name=head.name,
        uid=head.uid,
        resource_version=head.resource_version,
        decoded=world.rollout,
    )
    ReleaseReports(found.append, counters).on_plan(watched, world.reported)
    return found


def read_blocked(world: ReleaseStage) -> set[str]:
    metrics = Metrics()
    show_releases(metrics.registry, lambda: [world.rollout], list)
    return {
        sample.labels["reason"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "rollout_operator_release_blocked"
    }
