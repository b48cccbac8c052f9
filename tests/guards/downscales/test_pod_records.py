"""Records on pods, and which pods carry them: D-23, D-24, SEC-25."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout_operator.guards.prepared_pods import COPIES, choose_annotated, read_downscale_record
from rollout_operator.model.names import DOWNSCALE_RECORD, InvalidInput
from rollout_operator.model.objects import DownscaleRecord, Pod, Target
from tests.builders import NOW, pod
from tests.examples import repeatable
from tests.goldens import Golden
from tests.stories import Story, read_stories

REPEATABLE: Final = repeatable(300)
WHERE: Final = {"port": 8080, "path": "ingester/prepare", "service": "ingester"}
BEGINNING: Final = f"Pod zone-a-4: annotation {DOWNSCALE_RECORD}: "


def story(
    start: object = 5, end: object = 3, at: object = "2026-01-01T12:00:00Z", **more: object
) -> str:
    return json.dumps({"replicasFrom": start, "replicasTo": end, "at": at, **more})


def carrier(text: str) -> Pod:
    return replace(pod("a", 4, "l"), downscale_record=text)


def write(changes: str) -> str:
    """Return the text of a record with some fields changed."""
    if changes.startswith("text="):
        return changes.removeprefix("text=").replace("\\x1b", "\x1b")
    fields: dict[str, object] = {}
    for change in changes.split():
        name, _, text = change.partition("=")
        name, _, part = name.partition(".")
        fields[name] = {**WHERE, part: json.loads(text)} if part else json.loads(text)
    if "earlier" in fields:
        fields["earlier"] = [fields["earlier"]]
    return json.dumps({**json.loads(story()), **fields})


def render(record: DownscaleRecord | None) -> str:
    if record is None:
        return "none"
    shown = [
        f"{record.replicas_from} to {record.replicas_to} at {record.at.astimezone(UTC):%H:%M:%S.%f}"
    ]
    places = [("at", record.target), *(("and", one) for one in record.earlier)]
    return " ".join([*shown, *(f"{word} {_spell(one)}" for word, one in places if one)])


def _spell(target: Target) -> str:
    return f"{target.scheme}://{target.service}:{target.port}/{target.path}"


@pytest.mark.parametrize("story", read_stories(Path(__file__).with_name("records.txt")))
def test_record(story: Story, golden: Golden) -> None:
    [changes] = story.commands
    try:
        found = render(read_downscale_record(carrier(write(changes)), NOW))
    except InvalidInput as error:
        found = str(error).removeprefix(BEGINNING)
    story.check(found, golden)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(" ", id="blank"),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param("{" * 100_000, id="deep objects"),
        pytest.param(story().replace("5", "9" * 5000, 1), id="a number of 5000 digits"),
        pytest.param("x" * 10_240, id="10 KiB"),
        pytest.param(story(earlier=[WHERE] * 9), id="D-27: very many earlier places"),
        pytest.param("\u202e\x9b31m", id="control characters"),
    ],
)
def test_sec25_hostile_records_are_refused_in_a_short_printable_line(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_downscale_record(carrier(text), NOW)

    message = str(caught.value)
    assert message.startswith(BEGINNING)
    assert message.isprintable()
    assert len(message) < 300


@pytest.mark.parametrize("number", range(1, 40))
def test_first_and_last_always_carry_it_and_no_pod_twice(number: int) -> None:
    all_of_them = [pod("a", ordinal, "l") for ordinal in range(number)]
    chosen = choose_annotated(all_of_them)

    assert len(chosen) == len({one.uid for one in chosen}) == min(number, COPIES)
    assert chosen[0] == all_of_them[0]
    assert chosen[-1] == all_of_them[-1]
    assert [one for one in all_of_them if one in chosen] == chosen


instants = st.datetimes(
    min_value=datetime(1, 1, 2),  # noqa: DTZ001
    max_value=datetime(2026, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))]),
)


@REPEATABLE
@given(st.one_of(st.text(max_size=30), st.builds(story, st.integers(), st.integers())))
@example(story(10**30, 10**29))
@example(story(10**400, 0))
@example(story(at="9999-12-31T23:59:59.999999-12:00"))
@example(story(at="0001-01-01T00:00:00+14:00"))
def test_sec25_any_text_is_a_sound_story_or_none(text: str) -> None:
    try:
        record = read_downscale_record(carrier(text), NOW)
    except InvalidInput:
        return
    assert record is None or 0 <= record.replicas_to < record.replicas_from
    assert (record is None) == (text == "")


@REPEATABLE
@given(st.integers(1, 2**31 - 1), st.data(), instants)
def test_what_is_written_is_read(start: int, data: st.DataObject, at: datetime) -> None:
    record = DownscaleRecord(
        replicas_from=start, replicas_to=data.draw(st.integers(0, start - 1)), at=at
    )
    text = story(record.replicas_from, record.replicas_to, at.isoformat())

    assert read_downscale_record(carrier(text), NOW) == record
