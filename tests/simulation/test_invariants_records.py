"""The judge of records, of dry runs and of drains that come to no end."""

from functools import partial
from typing import Any

import msgspec
import pytest

from tests.judge.book import read_book
from tests.judge.budgets import EVICTION_PATH
from tests.judge.downscales import FORGED, tell_asked
from tests.judge.invariants_reviews import list_spans
from tests.judge.promises import Promises, Verdict
from tests.judge.verdict import find_violations
from tests.simulation.chronicle import NAMESPACE, PERSON, Chronicle, s
from tests.simulation.chronicle_drains import (
    Story,
    ask,
    budget,
    evict,
    judge,
    mark,
    unmark,
)


def in_a_dry_run(told: Chronicle, dry: str, *, marked: bool, at: float = 10) -> None:
    evict(told, at, "zone-a-0", dry=dry, marked=marked)


def in_earnest_beside_a_dry_run(told: Chronicle) -> None:
    in_a_dry_run(told, "query", marked=False)
    evict(told, 10.5, "zone-a-0")


def for_nobody(told: Chronicle) -> None:
    mark(told, 10, "zone-a-0")


def by_a_rollout(told: Chronicle) -> None:
    mark(told, 10, "zone-a-0", engine="rollout")


def for_another_pod(told: Chronicle) -> None:
    told.number += 1
    told.review(10, "zone-a-1", told.number, path="/admission/pod-eviction")
    mark(told, 9.9, "zone-a-0")


def forged(told: Chronicle, what: str, *, at: float = 19.7, path: str = EVICTION_PATH) -> None:
    told.fault(at, FORGED, f"at {path}?timeout=5s: {what}", actor="api-server")
    in_a_dry_run(told, "query", marked=True, at=20)


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(partial(in_a_dry_run, dry="query", marked=True), ["SI-15"], id="by query"),
        pytest.param(partial(in_a_dry_run, dry="body", marked=True), ["SI-15"], id="by options"),
        pytest.param(partial(in_a_dry_run, dry="body", marked=False), [], id="no trace"),
        pytest.param(in_earnest_beside_a_dry_run, [], id="another one in earnest"),
        pytest.param(for_nobody, ["SI-15"], id="nobody has asked"),
        pytest.param(for_another_pod, ["SI-15"], id="somebody has asked for another pod"),
        pytest.param(by_a_rollout, [], id="a rollout asks nobody"),
    ],
)
def test_a_dry_run_marks_nothing(story: Story, broken: list[str]) -> None:
    """SI-15, W-09: a dry run leaves no trace, whichever way it says that it is one."""
    assert judge(story) == broken


def review(**parts: Any) -> bytes:
    request = {"namespace": NAMESPACE, "name": "zone-a-0", "dryRun": False}
    about = {"metadata": {"name": "zone-a-0"}, "deleteOptions": {}}
    return msgspec.json.encode({"request": {**request, "object": about, **parts}})


@pytest.mark.parametrize(
    ("parts", "broken"),
    [
        pytest.param({}, [], id="in earnest"),
        pytest.param({"name": ""}, [], id="named by its object"),
        pytest.param({"object": None}, [], id="without an object"),
        pytest.param({"dryRun": True}, ["SI-15"], id="a dry run by query"),
        pytest.param(
            {"object": {"deleteOptions": {"dryRun": ["All"]}}}, ["SI-15"], id="a dry run by options"
        ),
        pytest.param({"name": "zone-a-1"}, ["SI-15"], id="another pod"),
        pytest.param({"namespace": "another"}, ["SI-15"], id="another namespace"),
    ],
)
def test_a_forgery_answers_for_what_it_asks(parts: dict[str, Any], broken: list[str]) -> None:
    """SI-15, SEC-09: who forges a review may ask in earnest for what the genuine one only tries."""
    assert judge(partial(forged, what=tell_asked(review(**parts)))) == broken


def test_a_forgery_answers_for_nothing_else() -> None:
    """SI-15: not for what was sent before it or long after, nor where it asked another webhook."""
    asked = tell_asked(review())

    assert judge(partial(forged, what=asked, at=19.9)) == ["SI-15"]
    assert judge(partial(forged, what=asked, at=10)) == []
    assert judge(partial(forged, what=asked, at=1)) == ["SI-15"]
    assert judge(partial(forged, what=asked, path="/admission/prepare-downscale")) == ["SI-15"]


def conclude(story: Story, healed_at: float, ended_at: float) -> Verdict:
    """Return what is to be said of a world at rest, in which all was well from a time on."""
    told = Chronicle()
    told.zones(update_revision="old")
    budget(told, 0)
    story(told)
    promises = Promises(healed_at=s(healed_at), ended_at=s(ended_at), quiet=s(0))
    return find_violations(told.history, promises)


def marked_for(told: Chronicle, seconds: float, at: float = 20) -> None:
    mark(told, at, "zone-a-0", engine="rollout")
    unmark(told, at + seconds, "zone-a-0")


def after_fault(told: Chronicle, seconds: float) -> None:
    told.fault(4, "slow", "call 9: list pods: 0:00:01")
    marked_for(told, seconds, 5)


def broken_after(story: Story, healed_at: float = 10) -> list[str]:
    return [one.invariant for one in conclude(story, healed_at, 5000).violations]


def test_a_record_on_an_untouched_pod_goes() -> None:
    """LI-07: within ten seconds once all is well, and never only when the run ends."""
    assert broken_after(partial(marked_for, seconds=9)) == []
    assert broken_after(partial(marked_for, seconds=14)) == ["LI-07"]
    assert broken_after(partial(marked_for, seconds=25, at=5), healed_at=20) == ["LI-07"]
    assert broken_after(partial(after_fault, seconds=25), healed_at=20) == []
    assert broken_after(partial(after_fault, seconds=40), healed_at=20) == ["LI-07"]
    assert "LI-07" in broken_after(by_a_rollout)


def test_lost_events_excuse_only_what_is_older() -> None:
    """LI-07: a record of after that is seen by everybody."""

    def story(told: Chronicle, at: float) -> None:
        told.fault(3, "drop_event", "event 3 of pods: MODIFIED zone-a-0")
        marked_for(told, 40, at)

    assert broken_after(partial(story, at=5)) == []
    assert broken_after(partial(story, at=20)) == ["LI-07"]


def test_a_record_counts_until_the_pod_is_touched() -> None:
    told = Chronicle()
    told.zones()
    evict(told, 10, "zone-a-0")
    mark(told, 20, "zone-b-0")
    mark(told, 25, "zone-b-0")

    spans = [(one.pod, end) for one, end in list_spans(read_book(told.history, Promises()))]
    assert spans == [("zone-a-0", s(10)), ("zone-b-0", s(25)), ("zone-b-0", s(25))]


def asking(told: Chronicle, until: int, *, status: int = 429) -> None:
    for at in range(20, until, 5):
        told.number += 1
        ask(told, at, "zone-a-0", told.number, status=status)


def test_a_drain_that_never_ends_is_told() -> None:
    """LI-01: nine pods of at least two seconds each may go before; then it is this one's turn."""
    assert broken_after(partial(asking, until=200)) == []
    assert broken_after(partial(asking, until=500)) == ["LI-01"]
    assert broken_after(partial(asking, until=500, status=403)) == []
    assert broken_after(partial(asking, until=500), healed_at=400) == []


def test_whoever_is_refused_is_named() -> None:
    (found,) = conclude(partial(asking, until=500), 10, 5000).violations

    assert f"zone-a-0 is refused to {PERSON} since" in found.text
