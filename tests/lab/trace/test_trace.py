"""A history as a story that people read, and as a hash that distinguishes two runs."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from rollout_lab.model.history import Called, Commit, History, Said
from rollout_lab.trace.lines import strip_time
from rollout_lab.trace.trace import render_story, render_tail, trace_hash

from rollout_operator.kube.api import PODS, STATEFULSETS
from tests.judge.builder import PERSON, HistoryBuilder, pod_object, s

OPERATOR = "operator-1"


def say(written: HistoryBuilder, at: float, text: str, actor: str = OPERATOR) -> None:
    written.history.add(Said(at=s(at), actor=actor, text=text))


def rollout() -> HistoryBuilder:
    """Return a rollout of one pod, with all that leads to it and comes of it."""
    written = HistoryBuilder()
    written.zones(letters="a", update_revision="")
    written.lived(1, "started")
    written.lived(1.25, "ready")
    say(written, 5, "sets the image of zone-a to v2", PERSON)
    written.zone(5.1, "zone-a", update_revision="zone-a-7d")
    why = 'why="zone-a-0 is at revision zone-a-5f, zone-a wants zone-a-7d"'
    say(written, 6, f'level=info msg="Terminating pod" group=g zone=zone-a pod=zone-a-0 {why}')
    written.delete(6, "zone-a-0")
    written.replace(8, "zone-a-0", revision="zone-a-7d")
    written.zone(9, "zone-a", current_revision="zone-a-7d")
    return written


def lines(story: Callable[[HistoryBuilder], object], **zones: Any) -> list[str]:
    """Return what a story adds to a zone of three pods, without the time and who."""
    written = HistoryBuilder()
    written.zones(letters="a", **zones)
    story(written)
    rows = render_story(written.history, begin=s(1), width=120)
    return [line[11:].split(maxsplit=1)[1] for line in rows]


def delete_unannounced(written: HistoryBuilder) -> None:
    written.lived(2, "started")
    written.delete(3, "zone-a-0")
    written.live_read(4)


def refused(written: HistoryBuilder) -> None:
    say(written, 2, "scales zone-a to 2", PERSON)
    body = {"spec": {"replicas": 2}}
    written.review(2.5, "zone-a", 1, allowed=False, status=429, message=f"{HOOK}too early")
    written.call(3, "patch", STATEFULSETS, "zone-a", actor=PERSON, status=429, body=body)
    last = written.history.records[-1]
    assert isinstance(last, Called)
    written.history.records[-1] = replace(last, message=f"{HOOK}too early")


HOOK = 'admission webhook "x.example.com" denied the request: '


def allowed(written: HistoryBuilder) -> None:
    body = [{"op": "replace", "path": "/spec/replicas", "value": 2}]
    written.review(2, "zone-a", 1, dry_run=True)
    written.review(2.1, "zone-a", 1, dry_run=True, path="/admission/no-downscale?timeout=10s")
    written.review(2.2, "zone-a", 1, allowed=False, status=-1, message="too late")
    written.call(3, "patch", STATEFULSETS, "zone-a", actor=PERSON, body=body)


def unrelated_review(written: HistoryBuilder) -> None:
    written.review(2, "zone-a", 1)
    written.call(3, "patch", STATEFULSETS, "zone-a", actor=PERSON, body={"metadata": {}})


def called(written: HistoryBuilder) -> None:
    written.prepare(2, "zone-a-2")
    written.prepare(2.2, "zone-a-1")
    written.prepare(3, "zone-a-0", status=0)
    written.prepare(4, "zone-a-0", method="DELETE", acted=False, status=0)


def troubles(written: HistoryBuilder) -> None:
    crashed = pod_object("zone-a-1", ready=False)
    status = crashed["status"]
    assert isinstance(status, dict)
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    written.pod(2, "zone-a-1", ready=False)
    status["containerStatuses"] = [{"name": "app", "ready": False, "state": waiting}]
    written.write(3, PODS, "zone-a-1", crashed)
    written.fault(4, "crash", "call 9: list pods: before_send")
    written.lived(4, "crashed")
    written.lived(90, "killed")


def wishes(written: HistoryBuilder) -> None:
    written.zone(2, "zone-a", replicas=2, paused="true", limit="2")
    written.zone(3, "zone-a", observed=2)
    written.write(4, PODS, "zone-a-2", None)
    written.write(5, STATEFULSETS, "zone-a", None)


@pytest.mark.parametrize(
    ("story", "written"),
    [
        pytest.param(
            delete_unannounced,
            ["*** started", "zone-a-0 going down", "deletes zone-a-0"],
            id="a delete that no log has shown",
        ),
        pytest.param(
            refused,
            [
                "scales zone-a to 2",
                "prepare-downscale refused scaling zone-a to 2 replicas: 429: too early",
                'patch of zone-a is refused: 429: admission webhook "x.example.com"',
            ],
            id="a refusal, once",
        ),
        pytest.param(
            allowed,
            [
                "prepare-downscale, no-downscale allowed a dry run of scaling zone-a to 2 replicas",
                "prepare-downscale gave no answer about scaling zone-a to 2 replicas: too late",
            ],
            id="reviews of replicas",
        ),
        pytest.param(unrelated_review, [], id="no reviews of anything else"),
        pytest.param(
            called,
            [
                "zone-a-2, zone-a-1 POST /ingester/prepare: HTTP 200",
                "zone-a-0 POST /ingester/prepare: no answer, though it has acted",
                "zone-a-0 DELETE /ingester/prepare: no answer",
            ],
            id="calls of pods",
        ),
        pytest.param(
            troubles,
            [
                "zone-a-1 not ready any more",
                "zone-a-1 in trouble: CrashLoopBackOff",
                "FAULT 1 crash: call 9: list pods: before_send",
                "*** crashed",
            ],
            id="troubles",
        ),
        pytest.param(
            wishes,
            [
                "wants 2 pods instead of 3",
                "grafana.com/rollout-paused: unset becomes true",
                "rollout-max-unavailable: unset becomes 2",
                "zone-a-2 gone",
                "the set is gone",
            ],
            id="what people want",
        ),
    ],
)
def test_what_matters_is_reported(
    story: Callable[[HistoryBuilder], object], written: list[str]
) -> None:
    """Each kind of event has its line, and what is no event has none."""
    shown = [line.strip() for line in lines(story)]

    assert shown == written


def test_a_story_may_begin_later_and_end_sooner() -> None:
    """`begin` leaves out what was before; a tail ends with what led to a moment."""
    history = rollout().history

    assert [line[:9] for line in render_story(history, begin=s(8))] == [
        "0:00:08.1",
        "0:00:08.2",
        "0:00:09.0",
    ]
    assert render_tail(history, s(6), lines=2) == render_story(history)[6:8]


def test_one_history_has_one_hash() -> None:
    """The same records in the same order, and nothing else: also not the machine's time."""
    first, second = rollout().history, rollout().history
    said = Said(at=s(10), actor=OPERATOR, text="ts=2026-11-21T12:00:00Z msg=Listed objects=3")
    first.add(said)
    second.add(replace(said, text="ts=2027-01-01T00:00:00Z msg=Listed objects=3"))

    assert trace_hash(first) == trace_hash(second)
    assert strip_time("level=info ts=1 msg=its=2") == "level=info msg=its=2"


def changed_time(history: History) -> None:
    history.records[0] = replace(history.records[0], at=s(0.001))


def changed_actor(history: History) -> None:
    history.records[0] = replace(history.records[0], actor="else")


def changed_object(history: History) -> None:
    first = history.records[0]
    assert isinstance(first, Commit)
    history.records[0] = replace(first, after={**(first.after or {}), "more": 1})


def changed_order(history: History) -> None:
    history.records[0], history.records[1] = history.records[1], history.records[0]


def one_less(history: History) -> None:
    history.records.pop()


@pytest.mark.parametrize(
    "change", [changed_time, changed_actor, changed_object, changed_order, one_less]
)
def test_any_difference_changes_the_hash(change: Callable[[History], None]) -> None:
    """Times, actors, objects and order all count."""
    first, second = rollout().history, rollout().history
    change(second)

    assert trace_hash(first) != trace_hash(second)
