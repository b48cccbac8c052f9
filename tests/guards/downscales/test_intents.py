"""What this process knows of marks: which may still be acted upon, and which are to be removed."""

import pytest
from msgspec.structs import replace

from rollout_operator.guards.downscales import REFUSED_LIMIT, Intents
from rollout_operator.model.names import DOWNSCALE_INTENT
from rollout_operator.model.objects import StatefulSet
from tests.builders import sts
from tests.virtual_time import VirtualClock, in_virtual_time

ZONE = sts("a", replicas=3)


def marked(text: str | None, version: str = "5") -> StatefulSet:
    """Return a view of the set."""
    annotations = {} if text is None else {DOWNSCALE_INTENT: text}
    return replace(ZONE, annotations=annotations, resource_version=version)


@pytest.mark.parametrize(
    ("known", "seen", "may_happen", "is_left"),
    [
        pytest.param("", marked(None), False, False, id="no mark"),
        pytest.param("", marked("a"), True, True, id="of another process"),
        pytest.param("begun", marked("a"), True, True, id="ours, without an answer"),
        pytest.param("begun", marked("b"), True, True, id="another than ours"),
        pytest.param("void", marked("a"), False, True, id="ours, and refused"),
        pytest.param("void", marked("b"), True, True, id="another than the refused one"),
        pytest.param("gone", marked("a"), False, False, id="removed, in a view of before"),
        pytest.param("gone", marked("a", "7"), True, True, id="removed, and back again"),
        pytest.param("gone", marked("b"), True, True, id="another than the removed one"),
    ],
)
def test_what_a_mark_means(known: str, seen: StatefulSet, may_happen: bool, is_left: bool) -> None:
    """SI-02: whatever is not known to be over may happen."""
    intents = Intents(VirtualClock())
    if known:
        intents.begin(ZONE.uid, "a")
    if known == "void":
        intents.record_void(ZONE.uid, "a")
        intents.record_void(ZONE.uid, "b")
    if known == "gone":
        intents.record_gone(ZONE.uid, "a", "7")
    assert (intents.find([seen]) is not None) is may_happen
    assert intents.find([seen], but=ZONE.uid) is None
    assert (intents.list_left([seen]) == [seen]) is is_left
    assert intents.is_idle(seen) is (is_left and not may_happen)


def test_marks_of_ours_wake_no_group() -> None:
    """They come and go with each attempt: one that is refused for ever is logged once."""
    intents = Intents(VirtualClock())
    assert not intents.concerns_us_only(marked(None), marked("a"))
    intents.begin(ZONE.uid, "a")
    assert intents.concerns_us_only(marked(None), marked("a"))
    assert intents.concerns_us_only(marked("a"), marked(None))
    assert not intents.concerns_us_only(marked("a"), marked("b"))
    assert not intents.concerns_us_only(marked("a"), replace(marked(None), replicas=2))
    assert not intents.concerns_us_only(marked(None), marked(None))
    intents.forget(ZONE.uid)
    assert not intents.concerns_us_only(marked(None), marked("a"))


@in_virtual_time
async def test_li15_a_mark_that_may_not_be_removed_counts_for_a_time_from_its_first_refusal() -> (
    None
):
    """LI-15: another text is another mark, and so is one that was gone in between."""
    clock, early = VirtualClock(), REFUSED_LIMIT * 0.8
    intents = Intents(clock)
    assert intents.record_refused(ZONE.uid, "a")
    await clock.sleep(early)
    assert not intents.record_refused(ZONE.uid, "a")
    found = intents.find([marked("a")])
    assert found is not None
    assert found.left == REFUSED_LIMIT - early
    await clock.sleep(REFUSED_LIMIT - early)
    assert intents.find([marked("a")]) is None
    assert intents.list_left([marked("a")]) == [marked("a")]

    assert intents.find([marked("b")]) is not None
    assert intents.record_refused(ZONE.uid, "b")
    await clock.sleep(early)
    intents.record_gone(ZONE.uid, "b", "7")
    assert intents.record_refused(ZONE.uid, "b")
    await clock.sleep(early)
    assert intents.find([marked("b", "8")]) is not None


@in_virtual_time
async def test_si18_a_mark_of_ours_that_got_no_answer_counts_until_it_is_removed() -> None:
    """SI-18, LI-15: this process lives on, and may send by it again."""
    clock = VirtualClock()
    intents = Intents(clock)
    intents.begin(ZONE.uid, "a")
    assert not intents.record_refused(ZONE.uid, "a")
    await clock.sleep(2 * REFUSED_LIMIT)
    found = intents.find([marked("a")])
    assert found is not None
    assert found.left is None


@in_virtual_time
async def test_si18_a_refusal_before_a_mark_is_used_again_shortens_nothing() -> None:
    clock = VirtualClock()
    intents = Intents(clock)
    intents.record_refused(ZONE.uid, "a")
    intents.begin(ZONE.uid, "a")
    await clock.sleep(2 * REFUSED_LIMIT)
    assert intents.find([marked("a")]) is not None
