"""The time between downscales of two zones: PREP-11 to 16, 19, D-22, SEED-091, SEED-115, SEC-25."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.model.names import LAST_DOWNSCALE, MIN_TIME_BETWEEN_DOWNSCALES, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code
from rollout_operator.model.units import format_next_second, parse_duration, parse_rfc3339
from rollout_operator.planning.downscales import Blocker, find_recent_downscale
from tests.builders import NOW, sts, sts_uid
from tests.examples import repeatable
from tests.planning.tables import read_arguments, read_table, shorten

REPEATABLE: Final = repeatable(200)
HOUR: Final = timedelta(hours=1)
SPAN: Final = MIN_TIME_BETWEEN_DOWNSCALES
# What tenants may write to make a wait go away: none of it may.
HOSTILE: Final = (
    "9998-12-31T23:59:59Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "0000-01-01T00:00:00Z",
    "-0001-01-01T00:00:00Z",
    "2026-01-01T11:00:00-99:99",
    "2026-01-01T11:00:00." + "9" * 10_000 + "Z",
    "2026-01-01T11:00:00.Z",
    "2026-01-01T24:00:00Z",
    "2026-02-30T00:00:00Z",
    "2026-01-01 11:00:00Z",
    "2026-01-01t11:00:00z",
    "2026-01-01T11:00:00",
    "\u0662026-01-01T11:00:00Z",
    "",
    " ",
    "0",
    "-12h",
    "12h",
    "1e9h",
    "-9223372036854775808ns",
    "9223372036854775807ns",
    "1" * 10_240,
    "now",
    "\x1b[31m",
)


def zone_set(
    letter: str,
    *,
    ago: timedelta | None = None,
    last: str | None = None,
    label: str | None = None,
    span: str | None = None,
) -> StatefulSet:
    """Return a set; `ago` or `last` say when it was scaled down, `label` and `span` how to wait."""
    if ago is not None:
        last = format_next_second(NOW - ago)
    labels = {} if label is None else {SPAN: label}
    annotations = {LAST_DOWNSCALE: last, SPAN: span}
    known = {key: text for key, text in annotations.items() if text is not None}
    return sts(letter, labels=labels, annotations=known)


def read_sets(text: str) -> list[StatefulSet]:
    """Return sets such as `a; b ago=1h label=12h; c last=x`."""
    sets: list[StatefulSet] = []
    for statement in text.split("; "):
        (letter,), named = read_arguments(statement)
        annotations = {key: str(value) for key, value in named.items()}
        if "ago" in annotations:
            annotations["last"] = format_next_second(NOW - parse_duration(annotations.pop("ago")))
        sets.append(zone_set(letter, **annotations))  # type: ignore[arg-type]  # texts only
    return sets


def post(*sets: StatefulSet, seen: Mapping[str, timedelta] | None = None) -> Blocker | None:
    """Assess the first of the sets; `seen` is how long ago we saw zones go, by letter."""
    remembered = {sts_uid(letter): NOW - ago for letter, ago in (seen or {}).items()}
    return find_recent_downscale(sets[0], sets[1:], remembered, NOW)


def waiting(letter: str, at: str, span: str, more: str = "") -> Blocker:
    text = (
        f"statefulset zone-{letter} was downscaled at {at} and is labelled to wait {span} between"
        f" zone downscales{more}"
    )
    return Blocker(Code.ZONE_DOWNSCALED_LATELY, text)


def broken(letter: str, why: str) -> Blocker:
    text = f"parsing downscale annotations failed. statefulset zone-{letter}: {why}"
    return Blocker(Code.BAD_DOWNSCALE_TIME, text)


AT_11: Final = "2026-01-01 11:00:00 +0000 UTC"
A: Final = zone_set("a")
A_SECOND: Final = timedelta(seconds=1)
KEY_LAST: Final = "annotation grafana.com/last-downscale"


SENTENCES: Final = {
    r"^zone_downscaled_lately statefulset zone-(\w) was downscaled at (.*) and is labelled to wait"
    r" (\S+) between zone downscales": r"lately \1 at \2, to wait \3",
    "^bad_downscale_time parsing downscale annotations failed. statefulset zone-": "bad ",
    r"\+0000 UTC": "UTC",
}
WAITS = """
alone in the group
  a | allowed
PREP-11 never scaled down
  a; b label=12h | allowed
PREP-15 no zone wants a wait
  a; b ago=1h0m0s | allowed
PREP-16 SEED-091 an hour ago, to wait twelve
  a; b ago=1h0m0s label=12h | lately b at 2026-01-01 11:00:00 UTC, to wait 12h0m0s
PREP-16 just over
  a; b ago=12h0m0s label=12h | allowed
PREP-16 a second is missing
  a; b ago=11h59m59s label=12h | lately b at 2026-01-01 00:00:01 UTC, to wait 12h0m0s
D-22 W-18 what the set itself wants counts as well
  a label=90m; b ago=1h0m0s | lately b at 2026-01-01 11:00:00 UTC, to wait 1h30m0s
D-22 each long enough
  a label=1h; b ago=2h0m0s label=1h; c | allowed
D-22 the longest wait counts, whichever zone has it
  a label=1h; b ago=2h0m0s label=1h; c label=3h
  | lately b at 2026-01-01 10:00:00 UTC, to wait 3h0m0s
SEED-115 D-22 the annotation wins over the label
  a; b ago=2h0m0s label=12h span=1h | allowed
SEED-115 the annotation wins where it is longer, too
  a; b ago=2h0m0s label=1h span=12h | lately b at 2026-01-01 10:00:00 UTC, to wait 12h0m0s
SEED-115 annotation only
  a; b ago=1h0m0s span=12h | lately b at 2026-01-01 11:00:00 UTC, to wait 12h0m0s
SEED-115 a broken annotation does not fall back to the label
  a; b ago=1h0m0s label=12h span=x
  | bad b: annotation grafana.com/min-time-between-zones-downscale: time: invalid duration "x"
PREP-15 a wait of no time
  a; b ago=1h0m0s label=0 | allowed
SEC-25 a negative wait takes nothing off another one
  a label=-12h; b ago=1h0m0s label=2h | lately b at 2026-01-01 11:00:00 UTC, to wait 2h0m0s
SEC-25 a negative wait is none
  a; b ago=-20h0m0s label=-12h | allowed
PREP-12 a broken time refuses, also where no zone wants a wait
  a; b last=yesterday
  | bad b: annotation grafana.com/last-downscale: "yesterday" is no RFC 3339 time
PREP-12 an empty time is a broken one
  a; b last= | bad b: annotation grafana.com/last-downscale: "" is no RFC 3339 time
PREP-15 a broken wait refuses
  a; b ago=1h0m0s label=1d
  | bad b: label grafana.com/min-time-between-zones-downscale: time: unknown unit "d" in duration
    "1d"
W-50 a broken wait names its set, also of a zone never scaled down
  a; b label=1d
  | bad b: label grafana.com/min-time-between-zones-downscale: time: unknown unit "d" in duration
    "1d"
D-22 a broken wait of the set itself refuses
  a span=soon; b
  | bad a: annotation grafana.com/min-time-between-zones-downscale: time: invalid duration "soon"
PREP-19 its own time does not matter
  a ago=0s label=12h; b label=12h | allowed
PREP-19 its own time does not matter, even a broken one
  a last=x label=12h; b label=12h | allowed
24 another offset, a fraction
  a; b last=2026-01-01T13:30:00.25+02:00 label=12h
  | lately b at 2026-01-01 13:30:00.25 +0200 +0200, to wait 12h0m0s
a clock a little ahead is not worth a word
  a; b last=2026-01-01T12:00:59Z label=1s | lately b at 2026-01-01 12:00:59 UTC, to wait 1s
SEC-25 W-50 a future time refuses and names its annotation
  a; b last=9998-12-31T23:59:59Z label=1s
  | lately b at 9998-12-31 23:59:59 UTC, to wait 1s; that time lies in the future: see its
    annotation grafana.com/last-downscale
SEC-25 later than any time in UTC
  a; b last=9999-12-31T23:59:59-23:59 label=1s
  | bad b: annotation grafana.com/last-downscale: "9999-12-31T23:59:59-23:59" is no RFC 3339 time:
    not in the years 1 to 9998 of UTC
SEC-25 earlier than any time in UTC
  a; b last=0001-01-01T00:00:00+23:59 label=2562047h
  | bad b: annotation grafana.com/last-downscale: "0001-01-01T00:00:00+23:59" is no RFC 3339 time:
    not in the years 1 to 9998 of UTC
Go's zero time is long ago
  a; b last=0001-01-01T00:00:00Z label=2562047h | allowed
W-50 what a person must mend is reported before what time mends
  a; c ago=1h0m0s label=12h; b last=x
  | bad b: annotation grafana.com/last-downscale: "x" is no RFC 3339 time
"""


@pytest.mark.parametrize(("sets", "expected"), read_table(WAITS, read_sets))
def test_the_wait_between_zones(sets: Sequence[StatefulSet], expected: list[str]) -> None:
    blocker = post(*sets)
    answer = "allowed" if blocker is None else f"{blocker.code} {blocker.why}"
    assert shorten([answer], SENTENCES) == expected


@pytest.mark.parametrize(
    ("other", "seen", "expected"),
    [
        pytest.param(
            zone_set("b", label="12h"), {"b": HOUR}, waiting("b", AT_11, "12h0m0s"),
            id="D-23 no annotation yet",
        ),
        pytest.param(
            zone_set("b", label="12h", ago=20 * HOUR), {"b": HOUR}, waiting("b", AT_11, "12h0m0s"),
            id="D-23 an older annotation",
        ),
        pytest.param(
            zone_set("b", label="12h", ago=HOUR), {"b": 20 * HOUR}, waiting("b", AT_11, "12h0m0s"),
            id="an annotation of another process, newer",
        ),
        pytest.param(zone_set("b", label="12h"), {"b": 20 * HOUR}, None, id="long ago"),
        pytest.param(zone_set("b", label="12h"), {"a": HOUR}, None, id="PREP-19 the set itself"),
        pytest.param(zone_set("b", label="12h"), {"x": HOUR}, None, id="of another group"),
        pytest.param(
            zone_set("b", last="x"), {"b": 20 * HOUR},
            broken("b", f'{KEY_LAST}: "x" is no RFC 3339 time'),
            id="PREP-12 memory does not mend an annotation",
        ),
    ],
)  # fmt: skip
def test_what_was_seen_counts_beside_annotations(
    other: StatefulSet, seen: Mapping[str, timedelta], expected: Blocker | None
) -> None:
    """SI-11: the record of a downscale by `/scale` is written after the fact."""
    assert post(A, other, seen=seen) == expected


@pytest.mark.parametrize("text", ["1" * 10_240, "2026-01-01T11:00:00." + "9" * 10_240])
def test_sec25_ten_kibibytes_are_refused_in_a_short_sentence(text: str) -> None:
    for other in (zone_set("b", last=text), zone_set("b", span=text)):
        refusal = post(A, other)
        assert refusal is not None
        assert refusal.code is Code.BAD_DOWNSCALE_TIME
        assert len(refusal.why) < 500


hostile = st.one_of(
    st.none(),
    st.sampled_from(HOSTILE),
    st.text(max_size=12),
    st.datetimes().map(lambda time: f"{time.isoformat()}Z"),
)


@REPEATABLE
@given(own_span=hostile, own_last=hostile, span=hostile, last=hostile, label=hostile)
def test_sec25_no_annotation_of_another_zone_shortens_a_wait(
    own_span: str | None,
    own_last: str | None,
    span: str | None,
    last: str | None,
    label: str | None,
) -> None:
    """Zone b waits honestly: whatever zones a and c say, a is refused, and nothing crashes."""
    honest = zone_set("b", ago=HOUR, label="12h")
    scaled = zone_set("a", last=own_last, span=own_span)
    other = zone_set("c", last=last, span=span, label=label)

    assert post(scaled, honest, other) is not None
    assert post(scaled, other, honest) is not None


@REPEATABLE
@given(last=hostile, seen=st.integers(0, 11))
def test_sec25_what_we_have_seen_ourselves_is_not_argued_away(last: str | None, seen: int) -> None:
    assert post(A, zone_set("b", last=last, label="12h"), seen={"b": seen * HOUR}) is not None


hours = st.one_of(st.none(), st.integers(0, 30))


@REPEATABLE
@given(
    spans=st.lists(hours, min_size=1, max_size=4),
    ages=st.lists(hours, min_size=4, max_size=4),
    ahead=st.integers(0, 3),
)
def test_an_oracle_agrees_on_times_that_can_be_read(
    spans: list[int | None], ages: list[int | None], ahead: int
) -> None:
    """SI-11: in whole hours; `ahead` of the ages lie in the future."""
    sets = [
        zone_set(
            letter,
            ago=None if age is None else (age - ahead) * HOUR,
            label=None if span is None else f"{span}h",
        )
        for letter, span, age in zip("abcd", spans, ages, strict=False)
    ]
    wait = max([span for span in spans if span is not None], default=0)
    others = [age - ahead for age in ages[1 : len(spans)] if age is not None]

    assert (post(*sets) is not None) == any(wait > 0 and age < wait for age in others)


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (NOW, "2026-01-01T12:00:00Z"),
        (NOW + timedelta(microseconds=1), "2026-01-01T12:00:01Z"),
        (NOW.astimezone(timezone(2 * HOUR)), "2026-01-01T12:00:00Z"),
        (datetime(2025, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "2026-01-01T00:00:00Z"),
    ],
)
def test_prep24_a_downscale_is_recorded_in_whole_seconds_of_utc(time: datetime, text: str) -> None:
    assert format_next_second(time) == text


@REPEATABLE
@given(st.datetimes(max_value=datetime(9998, 12, 30), timezones=st.just(UTC)))  # noqa: DTZ001
def test_si11_a_record_is_never_earlier_than_it_was(time: datetime) -> None:
    """Rounding down would let another zone go a second early."""
    recorded = parse_rfc3339(format_next_second(time))

    assert timedelta(0) <= recorded - time < A_SECOND
    assert find_recent_downscale(A, [zone_set("b", label="1h")], {Uid("uid-b"): time}, time)
