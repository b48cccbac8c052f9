"""Marks of our own downscales: late ones fail once their mark is gone, whatever took it (SI-02)."""

import copy

import pytest
from rollout_lab.schemas.patches import patched

from rollout_operator.guards.downscales import REFUSED_LIMIT
from rollout_operator.model.names import DOWNSCALE_INTENT, ApiError, Denied, Unreachable
from rollout_operator.model.outcome import Code, Severity
from tests.controllers.fake_client import Json
from tests.controllers.scaling_bench import GROUP, SECOND, Bench, pass_time
from tests.controllers.scaling_objects import NO_ANSWER, REFUSAL, guarded, old, zone
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import part

MARK = "mark statefulsets/zone-b"
HELD = f"{Code.DOWNSCALE_UNDERWAY} zone-b"


def follower() -> Bench:
    """Return zone-b that follows zone-a downwards, and zone-c that is to be rolled out."""
    return Bench([zone("a", 2), zone("b", 5, follows="a"), old("c", 3)])


def mark_of(bench: Bench, letter: str = "b") -> str | None:
    """Return the mark of a zone, as the store has it."""
    meta = part(bench.client.objects["statefulsets", f"zone-{letter}"], "metadata")
    text = part({"": meta.get("annotations", {})}, "").get(DOWNSCALE_INTENT)
    return None if text is None else f"{text}"


def restart(bench: Bench) -> None:
    """Let another process take over, whose caches show the store."""
    bench.client.before = lambda call: None
    bench.memory = bench.build()
    bench.show_store()


def comes_late(bench: Bench, number: int = 0) -> bool:
    """Return whether a patch of a count that was sent would be stored now."""
    stored = copy.deepcopy(bench.client.objects["statefulsets", "zone-b"])
    try:
        patched(stored, bench.client.sent[number])
    except ValueError:
        return False
    return True


def write_mark(bench: Bench, text: str | None) -> None:
    """Write a mark as any client may."""

    def change(one: Json) -> None:
        annotations = part(part(one, "metadata"), "annotations")
        annotations.pop(DOWNSCALE_INTENT, None)
        if text is not None:
            annotations[DOWNSCALE_INTENT] = text

    bench.client.change("zone-b", change)


@in_virtual_time
async def test_si02_a_downscale_takes_its_mark_along() -> None:
    """One patch before it, and no other: what is stored carries none."""
    bench = follower()
    await bench.reconcile()
    assert [call for call in bench.client.calls if not call.startswith("list")] == [
        MARK,
        "patch statefulsets/zone-b",
    ]
    assert bench.client.patched == ["zone-b 2"]
    assert mark_of(bench) is None


@in_virtual_time
async def test_a_downscale_that_a_review_announces_needs_no_mark() -> None:
    bench = Bench([zone("a", 2), guarded("b", 5, follows="a")])
    await bench.reconcile()
    assert bench.client.patched == ["zone-b 2"]
    assert MARK not in bench.client.calls


@in_virtual_time
async def test_si02_another_process_revokes_what_got_no_answer() -> None:
    """FP-06, FP-14: until then it rolls out nothing; from then on the late patch is refused."""
    bench = follower()
    bench.client.refuse("zone-b", NO_ANSWER)
    await bench.reconcile()
    assert comes_late(bench)
    restart(bench)
    await bench.roll()
    assert (bench.waits(), bench.client.deleted) == ([HELD], [])

    bench.scale("a", 5)
    await bench.reconcile()
    assert mark_of(bench) is None
    assert not comes_late(bench)
    await bench.roll()
    assert bench.client.deleted == ["zone-c-0", "zone-c-1"]


@in_virtual_time
async def test_si18_this_process_revokes_it_at_its_next_reconcile() -> None:
    """SI-02, SI-18: its group waits no longer than until then."""
    bench = follower()
    bench.client.refuse("zone-b", NO_ANSWER)
    await bench.reconcile()
    assert bench.memory.downscales.find_underway(GROUP) is not None
    bench.client.before = lambda call: None
    bench.scale("a", 5)
    await bench.reconcile()
    assert bench.memory.downscales.find_underway(GROUP) is None
    assert not comes_late(bench)


@pytest.mark.parametrize("error", [REFUSAL, NO_ANSWER, Unreachable("no route")])
@in_virtual_time
async def test_a_mark_that_cannot_be_removed_holds_the_group(error: ApiError) -> None:
    """SI-02: no zone is scaled down or rolled out meanwhile, and the reason says what is tried."""
    bench = follower()
    bench.client.refuse("zone-b", NO_ANSWER)
    await bench.reconcile()
    restart(bench)
    bench.scale("a", 5)

    def refuse(call: str) -> None:
        if call == MARK:
            raise error

    bench.client.before = refuse
    async with bench.living():
        await pass_time(60 * SECOND)
        assert f"{Code.SCALE_REFUSED} zone-b" in bench.waits()
        await bench.roll()
        assert HELD in bench.waits()
        assert bench.client.deleted == []
        bench.client.before = lambda call: None
        await pass_time(31 * SECOND)
        assert mark_of(bench) is None


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [
        pytest.param(REFUSAL, True, id="refused"),
        pytest.param(Denied("patch statefulsets is forbidden"), True, id="denied"),
        pytest.param(NO_ANSWER, False, id="no answer"),
        pytest.param(Unreachable("no route"), False, id="not sent"),
    ],
)
@in_virtual_time
async def test_li15_a_group_goes_on_where_the_removal_of_a_mark_is_refused(
    error: ApiError, goes_on: bool
) -> None:
    """LI-15: five minutes after the first refusal; the warning stays, and says so."""
    bench = follower()
    write_mark(bench, '{"id":"9-1","replicasFrom":5,"replicasTo":2}')
    bench.scale("a", 5)

    def refuse(call: str) -> None:
        if call == MARK:
            raise error

    bench.client.before = refuse
    async with bench.living():
        await pass_time(REFUSED_LIMIT - SECOND)
        (warning,) = [one for one in bench.reasons() if one.code is Code.SCALE_REFUSED]
        assert warning.severity is Severity.WARN
        assert ("; its group goes on nevertheless in " in warning.text) is goes_on
        result = await bench.roll()
        assert HELD in bench.waits()
        # To the moment, not at the next routine reconcile.
        assert result.again is not None
        assert (result.again <= SECOND) is goes_on
        await pass_time(2 * SECOND)
        await bench.roll()
        (warning,) = [one for one in bench.reasons() if one.code is Code.SCALE_REFUSED]
        assert warning.severity is Severity.WARN
        assert warning.text.endswith("; its group goes on nevertheless") is goes_on
        assert (HELD not in bench.waits()) is goes_on
        assert (bench.client.deleted != []) is goes_on


@pytest.mark.parametrize("error", [REFUSAL, NO_ANSWER])
@in_virtual_time
async def test_no_count_is_sent_where_its_mark_got_no_answer(error: ApiError) -> None:
    """SI-18: a mark that may be stored late holds nothing back: nothing holds by it."""
    bench = follower()

    def refuse(call: str) -> None:
        if call == MARK:
            raise error

    bench.client.before = refuse
    await bench.reconcile()
    assert bench.client.sent == []
    assert bench.memory.downscales.find_underway(GROUP) is None


def slow_down(bench: Bench, seconds: float, prefix: str) -> None:
    """Let calls that begin so take long, on their way to the API server."""

    async def take_long(call: str) -> None:
        if call.startswith(prefix):
            await pass_time(seconds * SECOND)

    bench.client.pause = take_long


def list_calls(bench: Bench) -> list[str]:
    """Return the calls of a bench, with the lists of sets and without those of pods."""
    calls = (call.partition(" rollout-group")[0] for call in bench.client.calls)
    return [call for call in calls if not call.startswith("list pods")]


@pytest.mark.parametrize("prefix", ["mark", "patch", ""])
@in_virtual_time
async def test_si09_a_slow_api_server_keeps_no_zone_from_being_scaled_down(prefix: str) -> None:
    """LI-01: the read comes after the mark, and must only be young when the count is sent."""
    bench = follower()
    slow_down(bench, 4.5 if prefix == "" else 7, prefix)
    await bench.reconcile()
    assert list_calls(bench) == [MARK, "list statefulsets", "patch statefulsets/zone-b"]
    assert bench.client.patched == ["zone-b 2"]


@in_virtual_time
async def test_si09_waiting_for_our_own_limiter_makes_no_live_read_old() -> None:
    bench, turns = follower(), []

    async def wait(what: str) -> None:
        turns.append(what)
        await pass_time(20 * SECOND)

    bench.client.turn = wait
    await bench.reconcile()
    assert bench.client.patched == ["zone-b 2"]
    assert turns[0] == "patch statefulsets"


@in_virtual_time
async def test_si09_a_live_read_too_old_sends_nothing_and_is_reported_from_the_third_on() -> None:
    """Its mark stands and serves the next attempt; the sentence says which call was slow."""
    bench = follower()
    slow_down(bench, 6, "list")
    with bench.listening() as lines:
        for number in (1, 2, 3):
            await bench.reconcile()
            bench.show_store()
            (reason,) = [one for one in bench.reasons() if one.zone == "zone-b"]
            is_reported = reason.severity is Severity.WARN
            assert (reason.code, is_reported) == (Code.LIVE_READ_EXPIRED, number == 3)
            await pass_time(5 * SECOND)
    assert "5 s, and the lists of its group took 6.0 s" in reason.text
    assert (bench.failures("live_read_expired"), bench.failures("scale_refused")) == (1, 0)
    assert not any("Scaling zone" in line for line in lines)
    assert (bench.client.calls.count(MARK), bench.client.sent) == (1, [])

    slow_down(bench, 0, "list")
    with bench.listening() as lines:
        await bench.reconcile()
    assert any("Scaling zone" in line for line in lines)
    assert bench.client.calls.count(MARK) == 1
    assert (bench.client.patched, mark_of(bench)) == (["zone-b 2"], None)


@in_virtual_time
async def test_a_mark_that_is_over_and_that_no_downscale_needs_is_removed() -> None:
    """SI-02: the leader is back where it was."""
    bench = follower()
    slow_down(bench, 6, "list")
    await bench.reconcile()
    bench.scale("a", 5)
    assert mark_of(bench) is not None
    await bench.reconcile()
    assert (mark_of(bench), bench.client.sent) == (None, [])


@in_virtual_time
async def test_si02_no_count_is_sent_whose_mark_the_live_read_does_not_show() -> None:
    """Another process has removed it, and from then on reckons with no downscale."""
    bench = follower()

    def remove(call: str) -> None:
        if call.startswith("list statefulsets"):
            write_mark(bench, None)

    bench.client.before = remove
    await bench.reconcile()
    assert (MARK in bench.client.calls, bench.client.sent) == (True, [])
    bench.client.before = lambda call: None
    bench.show_store()
    await pass_time(5 * SECOND)
    await bench.reconcile()
    assert (bench.client.calls.count(MARK), bench.client.patched) == (2, ["zone-b 2"])


@in_virtual_time
async def test_si02_a_mark_whose_count_got_no_answer_is_not_used_again() -> None:
    """It is revoked: from then on the first patch fails, and the second holds by another mark."""
    bench = follower()
    bench.client.refuse("zone-b", NO_ANSWER)
    await bench.reconcile()
    bench.client.before = lambda call: None
    bench.show_store()
    await pass_time(5 * SECOND)
    await bench.reconcile()
    first, second = ({str(step.get("value")) for step in sent} for sent in bench.client.sent)
    assert not any("replicasFrom" in value for value in first & second)
    assert not comes_late(bench)
    assert bench.client.patched == ["zone-b 2"]


@in_virtual_time
async def test_si02_nothing_is_rolled_out_from_the_mark_on() -> None:
    bench, waits = follower(), list[str]()

    async def roll(call: str) -> None:
        if call == MARK:
            await bench.roll()
            waits.extend(bench.waits())

    bench.client.pause = roll
    await bench.reconcile()
    assert (waits, bench.client.deleted) == ([HELD], [])
    assert bench.client.patched == ["zone-b 2"]


@in_virtual_time
async def test_a_rollout_that_waits_for_a_mark_says_how_to_remove_it() -> None:
    """Where the role forbids to patch: it waits for minutes."""
    bench = follower()
    write_mark(bench, '{"id":"9-1","replicasFrom":5,"replicasTo":2}')
    bench.show_store()
    await bench.roll()
    (reason,) = bench.reasons()
    assert reason.text.endswith(
        ": kubectl annotate statefulset zone-b grafana.com/rollout-operator-downscale-intent-"
    )


@in_virtual_time
async def test_si22_a_process_that_stops_sends_no_count_after_its_mark() -> None:
    bench = follower()

    def stop(call: str) -> None:
        bench.is_stopping = bench.is_stopping or call == MARK

    bench.client.before = stop
    await bench.reconcile()
    assert (MARK in bench.client.calls, bench.client.sent) == (True, [])


@pytest.mark.parametrize("text", [None, "another"])
@in_virtual_time
async def test_a_mark_that_is_another_by_now_is_read_live(text: str | None) -> None:
    """FP-11: the cache still shows it, and nothing waits for that; another mark is revoked, too."""
    bench = follower()
    write_mark(bench, "of another client")
    bench.scale("a", 5)
    bench.show_store()
    write_mark(bench, text)
    await bench.reconcile()
    await bench.roll()
    assert (bench.client.deleted == []) is (text is not None)
    bench.follow()
    await bench.reconcile()
    await bench.roll()
    assert mark_of(bench) is None
    assert bench.client.deleted == ["zone-c-0", "zone-c-1"]


@in_virtual_time
async def test_si02_a_live_read_finds_the_mark_that_the_cache_does_not_show() -> None:
    bench = follower()
    bench.scale("a", 5)
    write_mark(bench, '{"id":"9-1","replicasFrom":5,"replicasTo":2}')
    await bench.roll()
    assert bench.client.deleted == []


@in_virtual_time
async def test_li11_a_mark_that_comes_back_is_removed_ever_more_seldom() -> None:
    """As GitOps writes it from a copy of the set; the reason says what to do."""
    bench = follower()
    bench.scale("a", 5)
    with bench.listening() as lines:
        async with bench.living():
            for _ in range(300):
                if mark_of(bench) is None:
                    write_mark(bench, "of a copy")
                    bench.follow()
                await pass_time(SECOND)
            assert 3 < bench.client.calls.count(MARK) <= 3 + 6
            assert f"{Code.COUNT_CONTESTED} zone-b" in bench.waits()
    revoked = [line.partition('msg="')[2].split('"')[0] for line in lines if "mark" in line.lower()]
    assert sum("without an answer" in line for line in lines) == 1
    assert any("was removed before and is back" in line for line in revoked)
