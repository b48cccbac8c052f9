"""Records on pods: D-23, FP-06, SEC-25, W-38. The API server is a list of patches and of errors."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout_operator.guards.prepared_pods import (
    COPIES,
    PodRecords,
    choose_annotated,
    read_downscale_record,
)
from rollout_operator.kube.api import PODS, JsonObject, Resource
from rollout_operator.model.names import (
    DOWNSCALE_RECORD,
    ApiError,
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    Uid,
    Unreachable,
)
from rollout_operator.model.objects import DownscaleRecord, Pod, Target
from tests.builders import NOW, pod
from tests.examples import repeatable

REPEATABLE: Final = repeatable(300)
TEXT: Final = '{"replicasFrom":5,"replicasTo":3,"at":"2026-01-01T12:00:00Z"}'
RECORD: Final = DownscaleRecord(replicas_from=5, replicas_to=3, at=NOW)
TARGET: Final = Target(port=8080, path="ingester/prepare", service="ingester")
WHERE: Final = {"port": 8080, "path": "ingester/prepare", "service": "ingester"}


def story(
    start: object = 5, end: object = 3, at: object = "2026-01-01T12:00:00Z", **more: object
) -> str:
    return json.dumps({"replicasFrom": start, "replicasTo": end, "at": at, **more})


class RecordingClient:
    """Takes patches; fails for the pods that a test names."""

    def __init__(self) -> None:
        self.errors: dict[str, ApiError] = {}
        self.tried: list[str] = []
        self.patches: dict[str, JsonObject] = {}

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
        *rest: object,
        **how: object,
    ) -> bytes:
        assert (resource, namespace) == (PODS, "test")
        assert isinstance(patch, dict)
        self.tried.append(name)
        if name in self.errors:
            raise self.errors[name]
        self.patches[name] = patch
        return b"{}"


@pytest.fixture
def client() -> RecordingClient:
    return RecordingClient()


def pods(*ordinals: int, record: str = "") -> list[Pod]:
    return [replace(pod("a", ordinal, "l"), downscale_record=record) for ordinal in ordinals]


def patch_of(ordinal: int, text: str | None) -> JsonObject:
    annotations = {DOWNSCALE_RECORD: text}
    return {"metadata": {"uid": Uid(f"uid-a-{ordinal}"), "annotations": annotations}}


async def test_si11_a_record_has_all_of_its_downscale(client: RecordingClient) -> None:
    """D-23: with the UID, so that no other pod of the name is marked. One that stays remembers
    those that go: they may be gone before the time of their downscale is recorded.
    """
    await PodRecords(client).write(RECORD, pods(4, 3), annotated_pod=pods(0)[0])
    assert client.patches == {f"zone-a-{at}": patch_of(at, TEXT) for at in (4, 3, 0)}
    (carrier,) = pods(4, record=TEXT)
    assert read_downscale_record(carrier, NOW) == RECORD
    assert read_downscale_record(pods(4)[0], NOW) is None


async def test_of_many_pods_few_carry_it(client: RecordingClient) -> None:
    """D-53: the default limits let ten requests through at once."""
    await PodRecords(client).write(RECORD, pods(*range(64)))

    assert sorted(client.tried) == ["zone-a-0", "zone-a-21", "zone-a-42", "zone-a-63"]


@pytest.mark.parametrize("number", range(1, 40))
def test_first_and_last_always_carry_it_and_no_pod_twice(number: int) -> None:
    all_of_them = pods(*range(number))
    chosen = choose_annotated(all_of_them)

    assert len(chosen) == len({one.uid for one in chosen}) == min(number, COPIES)
    assert chosen[0] == all_of_them[0]
    assert chosen[-1] == all_of_them[-1]
    assert [one for one in all_of_them if one in chosen] == chosen


async def test_without_pods_there_is_nothing_to_write(client: RecordingClient) -> None:
    await PodRecords(client).write(RECORD, [])
    assert await PodRecords(client).remove([]) is None
    assert client.tried == []


@pytest.mark.parametrize(
    "error",
    [Unreachable("x"), NotFound("x"), Conflict("x"), Denied("x")],
    ids=lambda one: type(one).__name__,
)
async def test_one_copy_is_enough(
    client: RecordingClient, lines: list[str], error: ApiError
) -> None:
    client.errors = dict.fromkeys(("zone-a-4", "zone-a-3", "zone-a-2"), error)
    await PodRecords(client).write(RECORD, pods(4, 3, 2, 1))

    assert list(client.patches) == ["zone-a-1"]
    assert lines == []


@pytest.mark.parametrize(
    ("error", "other"),
    [
        *((error, error) for error in (Unreachable("x"), NotFound("x"), Conflict("x"))),
        pytest.param(Denied("no"), Unreachable("gone"), id="a mixture is no missing right"),
    ],
)
async def test_without_any_copy_no_pod_may_be_called(
    client: RecordingClient, lines: list[str], error: ApiError, other: ApiError
) -> None:
    """FP-06: what no process would know after a crash must not begin."""
    client.errors = {"zone-a-4": error, "zone-a-3": other}
    with pytest.raises(ApiError):
        await PodRecords(client).write(RECORD, pods(4, 3))
    assert lines == []


async def test_w38_without_the_right_it_goes_on_and_says_so_once(
    client: RecordingClient, lines: list[str]
) -> None:
    """The drop-in role of a later release has no `patch` on pods. The right may come later."""
    client.errors = {"zone-a-4": Denied("cannot patch pods"), "zone-a-3": Denied("cannot")}
    records = PodRecords(client)
    for _ in range(3):
        await records.write(RECORD, pods(4, 3))

    (line,) = lines
    assert "level=warn" in line
    assert "Downscales are not recorded on pods: a crash would forget them" in line
    assert "cannot patch pods" in line
    client.errors = {}
    await records.write(RECORD, pods(4))
    assert client.patches == {"zone-a-4": patch_of(4, TEXT)}


async def test_records_are_removed_where_there_are_any(client: RecordingClient) -> None:
    carrying = [*pods(4, record=TEXT), *pods(3), *pods(2, record="x")]

    assert await PodRecords(client).remove(carrying) is None
    assert client.patches == {"zone-a-4": patch_of(4, None), "zone-a-2": patch_of(2, None)}


@pytest.mark.parametrize("error", [Conflict("another pod"), Unreachable("away")])
async def test_a_pod_that_is_gone_needs_nothing_removed(
    client: RecordingClient, error: ApiError
) -> None:
    """All are tried, and the first error of one that is there is returned."""
    client.errors = {"zone-a-4": NotFound("gone"), "zone-a-3": error}
    found = await PodRecords(client).remove(pods(4, 3, 2, record=TEXT))
    assert found is (error if isinstance(error, Unreachable) else None)
    assert sorted(client.tried) == ["zone-a-2", "zone-a-3", "zone-a-4"]
    assert client.patches == {"zone-a-2": patch_of(2, None)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(TEXT.replace("}", ',"more":1}'), RECORD, id="of a later release"),
        pytest.param(
            '{"replicasFrom":1,"replicasTo":0,"at":"2026-01-01T13:00:00.5+01:00"}',
            DownscaleRecord(replicas_from=1, replicas_to=0, at=NOW + timedelta(seconds=0.5)),
            id="another offset",
        ),
        pytest.param(
            story(target=WHERE, earlier=[WHERE | {"scheme": "https"}]),
            replace(RECORD, target=TARGET, earlier=(replace(TARGET, scheme="https"),)),
            id="D-24: where pods are called",
        ),
    ],
)
def test_records_are_read(text: str, expected: DownscaleRecord) -> None:
    (carrier,) = pods(4, record=text)
    assert read_downscale_record(carrier, NOW) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x", id="no JSON"),
        pytest.param(" ", id="blank"),
        pytest.param("null", id="null"),
        pytest.param("[]", id="a list"),
        pytest.param("{}", id="empty"),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param("{" * 100_000, id="deep objects"),
        pytest.param(TEXT[:-1], id="cut off"),
        pytest.param(TEXT + "x", id="trailing text"),
        pytest.param(story(start=3), id="no downscale"),
        pytest.param(story(start=2), id="an upscale"),
        pytest.param(story(end=-1), id="negative"),
        pytest.param(story(start=5.5), id="fraction"),
        pytest.param(story(start=True), id="boolean"),
        pytest.param(story(start="5"), id="text"),
        pytest.param(story(end=None), id="nothing"),
        pytest.param(TEXT.replace("5", "9" * 5000, 1), id="a number of 5000 digits"),
        pytest.param(story(at="2026-01-01T12:00:00"), id="no zone"),
        pytest.param(story(at="2026-01-01"), id="no time"),
        pytest.param(story(at="2026-13-01T12:00:00Z"), id="thirteenth month"),
        pytest.param(story(at="10000-01-01T12:00:00Z"), id="year 10000"),
        pytest.param(story(at="9999-12-31T23:59:59Z"), id="no room after it"),
        pytest.param(story(at="0001-01-01T00:00:00+14:00"), id="before UTC"),
        pytest.param(story(at="2026-01-01T12:05:01Z"), id="not yet"),
        pytest.param(story(at="-0001-01-01T12:00:00Z"), id="negative year"),
        pytest.param(story(at="2026-01-01T12:00:00-99:99"), id="no such zone"),
        pytest.param(story(at=1e300), id="a number for a time"),
        pytest.param("x" * 10_240, id="10 KiB"),
        pytest.param(story(target=WHERE | {"port": 0}), id="D-27: no port"),
        pytest.param(story(target=WHERE | {"port": "80"}), id="D-27: a text for a port"),
        pytest.param(story(target=WHERE | {"path": "../admin"}), id="D-27: dots"),
        pytest.param(story(target=WHERE | {"path": "/a"}), id="D-27: a leading slash"),
        pytest.param(story(target=WHERE | {"path": ""}), id="D-27: no path"),
        pytest.param(story(target=WHERE | {"service": "evil.example"}), id="D-27: dots in a name"),
        pytest.param(story(target=WHERE | {"service": ""}), id="D-27: no service"),
        pytest.param(story(target=WHERE | {"scheme": "file"}), id="D-27: another scheme"),
        pytest.param(story(earlier=[WHERE, WHERE | {"path": "a b"}]), id="D-27: an earlier one"),
        pytest.param(story(earlier=[WHERE] * 9), id="D-27: very many earlier ones"),
        pytest.param('{"at":"\x1b[31m"}', id="control characters"),
        pytest.param("\u202e\x9b31m", id="other control characters"),
    ],
)
def test_sec25_hostile_records_are_refused_in_a_short_printable_line(text: str) -> None:
    (carrier,) = pods(4, record=text)
    with pytest.raises(InvalidInput) as caught:
        read_downscale_record(carrier, NOW)

    message = str(caught.value)
    assert message.startswith(f"Pod zone-a-4: annotation {DOWNSCALE_RECORD}: ")
    assert message.isprintable()
    assert len(message) < 300


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
    (carrier,) = pods(4, record=text)
    try:
        record = read_downscale_record(carrier, NOW)
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
    (carrier,) = pods(4, record=text)

    assert read_downscale_record(carrier, NOW) == record
