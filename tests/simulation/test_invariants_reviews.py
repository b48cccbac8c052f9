"""The judge of reviews: histories that break a promise, and that nearly do."""

from typing import Any

import pytest

from rollout_operator.kube.api import PODS
from rollout_operator.model.names import DOWNSCALE_NOTE, LAST_DOWNSCALE
from tests.simulation.chronicle import PERSON, Chronicle, s
from tests.simulation.chronicle_downscales import Story, ask, judge, scale


def dry_and_prepared(told: Chronicle) -> None:
    told.prepare(19.2, "zone-a-2")
    told.review(19.5, "zone-a", told.number + 1, dry_run=True)
    ask(told, 20, query={"dryRun": "All"})


def dry_and_noted(told: Chronicle) -> None:
    note = {"metadata": {"annotations": {DOWNSCALE_NOTE: "{}"}}}
    told.call(19.2, "patch", PODS, "zone-a-2", body=note)
    told.review(19.5, "zone-a", told.number + 1, dry_run=True)
    ask(told, 20, query={"dryRun": "All"})


def dry_beside_a_late_note(told: Chronicle) -> None:
    told.fault(1, "late", "call 9: patch pods/zone-a-2: late: 0:00:01")
    note = {"metadata": {"annotations": {DOWNSCALE_NOTE: "{}"}}}
    told.call(32.1, "patch", PODS, "zone-a-2", body=note)
    told.review(32.3, "zone-a", told.number + 1, dry_run=True)
    ask(told, 33, query={"dryRun": "All"})


def dry_beside_a_real_one(told: Chronicle) -> None:
    told.review(19.4, "zone-a", 99)
    dry_and_prepared(told)


def dry_and_written(told: Chronicle) -> None:
    told.zone(20, "zone-a", limit="2", call=told.number + 1)
    ask(told, 20, query={"dryRun": "All"})


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(dry_and_prepared, ["SI-15"], id="a pod was called"),
        pytest.param(dry_and_noted, ["SI-15"], id="a note was written"),
        pytest.param(dry_beside_a_real_one, [], id="for a real one at the same time"),
        pytest.param(dry_beside_a_late_note, [], id="a note that was sent half a minute before"),
        pytest.param(dry_and_written, ["SI-15"], id="it was written"),
    ],
)
def test_dry_runs_leave_no_trace(story: Story, broken: list[str]) -> None:
    """SI-15: a dry run calls nobody and writes nothing."""
    assert judge(story) == broken


def asked_twice(told: Chronicle, **second: Any) -> None:
    told.look(18)
    told.review(19, "zone-a", told.number + 1)
    told.review(19.6, "zone-a", told.number + 1, begun=s(19.1), allowed=False, **second)
    ask(told, 20, status=400)


def asked_after_a_change(told: Chronicle) -> None:
    told.pod(18.8, "zone-b-1", ready=False)
    asked_twice(told, status=429)


def test_the_same_question_gets_the_same_answer() -> None:
    """SI-16: a review that is asked again is not refused where nothing has changed."""
    assert judge(lambda told: asked_twice(told, status=429)) == ["SI-16"]
    assert judge(lambda told: asked_twice(told, status=-1)) == []
    assert judge(asked_after_a_change) == []


def called_twice(told: Chronicle, **between: Any) -> None:
    told.look(18)
    told.prepare(18.8, "zone-a-2")
    if between:
        told.prepare(19.1, "zone-a-2", **between)
    told.prepare(19.3, "zone-a-2")
    told.review(19.6, "zone-a", told.number + 1, begun=s(18.5))
    ask(told, 20, status=400)


def called_by_two_lives(told: Chronicle) -> None:
    told.lived(19.05, "crashed")
    told.lived(19.1, "started")
    called_twice(told)


def called_for_two_writes(told: Chronicle) -> None:
    told.review(19.15, "zone-a", 99)
    called_twice(told)


def called_again_after_a_lost_answer(told: Chronicle) -> None:
    told.fault(19, "pod_failure", "POST zone-a-2: reset_after")
    called_twice(told)


def called_in_two_rounds(told: Chronicle) -> None:
    told.look(18)
    for at in (18.8, 19.3):
        told.prepare(at, "zone-a-2")
        told.review(at + 0.2, "zone-a", told.number + 1, begun=s(at - 0.1))
    ask(told, 20, status=400)


def test_a_pod_that_has_confirmed_is_not_called_again() -> None:
    """SI-16: one write, one call of each pod, however often it is asked about."""
    assert judge(called_twice) == ["SI-16"]
    assert judge(called_in_two_rounds) == ["SI-16"]
    assert judge(lambda told: called_twice(told, method="DELETE")) == []
    assert judge(lambda told: called_twice(told, status=500, acted=False)) == []
    assert judge(called_by_two_lives) == []
    assert judge(called_for_two_writes) == []
    assert judge(called_again_after_a_lost_answer) == []


def recorded(*times: str) -> list[str]:
    """Return what it breaks to record a downscale at these times, one second after the other."""

    def story(told: Chronicle) -> None:
        scale(told, 20)
        for place, text in enumerate(times):
            stamp = {LAST_DOWNSCALE: text}
            told.zone(21 + place, "zone-a", annotations=stamp, actor="operator-1")

    return judge(story)


def test_a_downscale_is_recorded_once() -> None:
    """SI-16: one downscale, one record; the same time again is no other record."""
    assert recorded("2026-01-02T03:04:25Z") == []
    assert recorded("2026-01-02T03:04:25Z", "2026-01-02T03:04:25Z") == []
    assert recorded("2026-01-02T03:04:25Z", "2026-01-02T03:04:26Z") == ["SI-16"]
    assert recorded("2026-01-02T03:04:40Z", "2026-01-02T03:04:25Z") == ["SI-16"]


def test_a_record_may_be_corrected_to_a_later_time() -> None:
    """SI-11, SI-16: it was written later than the answer says, or seen late."""
    assert recorded("2026-01-02T03:04:20Z", "2026-01-02T03:04:26Z") == []
    assert recorded("2026-01-02T03:04:26Z", "2026-01-02T03:04:28Z") == []


def test_a_record_that_was_seen_late_may_be_corrected_by_a_second() -> None:
    """SI-16: how late something was seen shows in no time that is rounded to seconds."""

    def story(told: Chronicle) -> None:
        scale(told, 20, annotations={LAST_DOWNSCALE: "2026-01-02T03:04:26Z"})
        told.fault(20.1, "delay_event", "event 3 of statefulsets: MODIFIED zone-a")
        stamp = {LAST_DOWNSCALE: "2026-01-02T03:04:27Z"}
        told.zone(22, "zone-a", annotations=stamp, actor="operator-1")

    assert judge(story) == []


def test_an_event_of_before_that_is_held_back_has_the_next_one_seen_late() -> None:
    """SI-16: an event of ten seconds ago may be what the downscale waits behind."""

    def story(told: Chronicle, faulted_at: float) -> None:
        told.fault(faulted_at, "delay_event", "event 2 of statefulsets: MODIFIED zone-a")
        scale(told, 20, annotations={LAST_DOWNSCALE: "2026-01-02T03:04:26Z"})
        stamp = {LAST_DOWNSCALE: "2026-01-02T03:04:27Z"}
        told.zone(21.5, "zone-a", annotations=stamp, actor="operator-1")

    assert judge(lambda told: story(told, 11)) == []
    assert judge(lambda told: story(told, 2)) == ["SI-16"]


def stamped_twice(told: Chronicle) -> None:
    scale(told, 20, annotations={LAST_DOWNSCALE: "2026-01-02T03:04:25Z"})
    stamp = {LAST_DOWNSCALE: "2026-01-02T03:04:26Z"}
    told.zone(21, "zone-a", annotations=stamp, actor="operator-1")


def stamped_by_a_person(told: Chronicle) -> None:
    scale(told, 20, annotations={LAST_DOWNSCALE: "2026-01-02T03:04:25Z"})
    told.zone(21, "zone-a", annotations={LAST_DOWNSCALE: "2026-01-02T04:00:00Z"}, actor=PERSON)


def test_the_record_in_the_answer_counts() -> None:
    """SI-16, D-23: what the answer has recorded the controller does not record again."""
    assert judge(stamped_twice) == ["SI-16"]
    assert judge(stamped_by_a_person) == []
