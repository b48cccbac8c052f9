"""How a MultiAZRollout is read with its status: what people broke there is as if it were lost."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rollout_operator.kube.store import PolicyStore, decides
from rollout_operator.model.budget import StatusCondition
from rollout_operator.model.decode.custom import decode_watched_policy
from rollout_operator.model.names import DecodeError, Revision, Uid
from rollout_operator.model.policy import (
    Batch,
    BatchPod,
    Policy,
    PolicySetStatus,
    PolicyStatus,
    PolicyZoneStatus,
    RecordedBatch,
    RecordedPod,
    RefusedPolicy,
    WatchedPolicy,
)
from rollout_operator.planning.policy_status import find_batch, render_batch
from tests.model.policy_trees import policy_tree

TIME = "2026-01-02T03:04:05.25Z"
BATCH = RecordedBatch(
    number=3,
    zone="a",
    stateful_set="db-a",
    update_revision="db-a-2",
    pods=(RecordedPod(name="db-a-2", uid="u2"),),
    start_time=TIME,
    completion_time=TIME,
)
STATUS = PolicyStatus(
    observed_generation=2,
    phase="Waiting",
    current_zone="a",
    current_stateful_set="db-a",
    updated_pods=1,
    total_pods=3,
    ready_pods=2,
    start_time=TIME,
    next_batch_time=TIME,
    unknown_zones=("c",),
    zones=(
        PolicyZoneStatus(
            name="a",
            order=1,
            state="Updating",
            stateful_sets=(PolicySetStatus(name="db-a", source="Label", replicas=3),),
        ),
    ),
    last_batch=BATCH,
    conditions=(StatusCondition(type="Ready", status="False", last_transition_time=TIME),),
)


def read(status: Any, **spec: Any) -> WatchedPolicy:
    tree = {**policy_tree(**spec), "status": status}
    return decode_watched_policy(msgspec.json.encode(tree))


def bent(field: str, value: Any) -> dict[str, Any]:
    """Return the status as JSON with another value at a path such as `lastBatch.number`."""
    tree: dict[str, Any] = msgspec.to_builtins(STATUS)
    *path, last = field.split(".")
    place: Any = tree
    for step in path:
        place = place[int(step) if step.isdecimal() else step]
    place[last] = value
    return tree


def test_a_status_is_read_as_it_was_written() -> None:
    """MAZ-43, MAZ-50: through the JSON of the API, whatever else stands in it."""
    found = read({**msgspec.to_builtins(STATUS), "theirs": {"x": 1}})

    assert found.status == STATUS
    assert found.problems == ()
    assert isinstance(found.policy, Policy)
    assert (found.namespace, found.name, found.uid) == ("prod", "db", Uid("uid-db"))
    assert found.resource_version == "7"


@pytest.mark.parametrize("status", [None, {}, {"zones": None, "lastBatch": None}])
def test_no_status_is_an_empty_one(status: Any) -> None:
    assert read(status).status == PolicyStatus()
    assert read(status).problems == ()


def test_a_policy_that_is_refused_keeps_its_status() -> None:
    found = read(msgspec.to_builtins(STATUS), paused="yes")

    assert isinstance(found.policy, RefusedPolicy)
    assert found.status == STATUS


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        pytest.param("lastBatch", "none", "expected", id="a batch that is a text"),
        pytest.param("lastBatch.number", "3", "$.lastBatch.number", id="a number in quotes"),
        pytest.param("lastBatch.number", 0, "number: 0", id="numbers begin with 1"),
        pytest.param("lastBatch.number", 2**63 - 1, "number: 92", id="no room for the next batch"),
        pytest.param("lastBatch.pods", {}, "$.lastBatch.pods", id="pods that are no list"),
        pytest.param("lastBatch.pods", [{"name": "db-a-2"}], "uid", id="a pod without UID"),
        pytest.param("lastBatch.startTime", "noon", "noon", id="a time that is none"),
        pytest.param("lastBatch.startTime", 12, "$.lastBatch.startTime", id="a time as a number"),
        pytest.param("lastBatch.completionTime", "", '""', id="an empty time"),
        pytest.param("lastBatch.completionTime", None, "null", id="null is no time"),
        pytest.param("startTime", "yesterday", "yesterday", id="the rollout began at no time"),
        pytest.param("completionTime", 7, "completionTime", id="it ended at a number"),
        pytest.param("nextBatchTime", "9999-12-31T23:59:59Z", "9999", id="a time without room"),
        pytest.param("observedGeneration", "2", "observedGeneration", id="a generation as text"),
        pytest.param("updatedPods", 1.5, "updatedPods", id="half a pod"),
        pytest.param("phase", ["Idle"], "phase", id="a phase in a list"),
        pytest.param("zones", {"a": 1}, "zones", id="zones that are no list"),
        pytest.param("zones.0.statefulSets", "db-a", "statefulSets", id="sets as a text"),
        pytest.param("unknownZones", [7], "unknownZones", id="a zone without a name"),
        pytest.param("conditions", [{"type": "Ready"}], "status", id="half a condition"),
        pytest.param("conditions.0.lastTransitionTime", "", '""', id="a condition without time"),
    ],
)
def test_a_field_of_another_form_is_lost_and_the_others_count(
    field: str, value: Any, problem: str
) -> None:
    """A person edited the status by hand: it is neither believed nor in the way."""
    found = read(bent(field, value))
    name = field.partition(".")[0]
    attribute = next(
        one.name for one in msgspec.structs.fields(PolicyStatus) if one.encode_name == name
    )

    assert found.status == replace(STATUS, **{attribute: getattr(PolicyStatus(), attribute)})
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"status.{name}: ")
    assert problem.lower() in found.problems[0].lower()


@pytest.mark.parametrize(
    "status",
    [
        pytest.param("Idle", id="text"),
        pytest.param(7, id="number"),
        pytest.param([{"phase": "Idle"}], id="list"),
        pytest.param({"lastBatch": {"a": [[[[[]]]]]}}, id="nested"),
        pytest.param({"updatedPods": "x" * 100_000}, id="a long text"),
        pytest.param({"zones": ["x" * 1_000] * 2_000}, id="more than is read"),
    ],
)
def test_what_is_no_status_of_ours_is_reported(status: Any) -> None:
    found = read(status)

    assert found.status == PolicyStatus()
    assert len(found.problems) == 1
    assert len(found.problems[0]) < 500


def test_all_zones_that_a_policy_may_list_are_read_back() -> None:
    """None of them may be there: else each pass would write the same status again."""
    zones = [f"{number:0253}" for number in range(64)]

    assert read({"unknownZones": zones}).status.unknown_zones == tuple(zones)


def test_deep_json_does_not_end_the_process() -> None:
    tree = msgspec.json.encode({**policy_tree(), "status": {"zones": 0}})
    deep = tree.replace(b'"zones":0', b'"zones":' + b"[" * 100_000 + b"]" * 100_000)

    assert decode_watched_policy(deep).status == PolicyStatus()


def test_a_batch_comes_back_as_it_was_recorded() -> None:
    """MAZ-43: a restart neither shortens nor repeats a pause."""
    start = datetime(2026, 1, 2, 3, 4, 5, 250_000, tzinfo=UTC)
    last = Batch(
        number=3,
        zone="a",
        set_name="db-a",
        revision=Revision("db-a-2"),
        pods=(BatchPod(name="db-a-2", uid=Uid("u2")),),
        start=start,
        completion=start + timedelta(seconds=9),
    )
    status = PolicyStatus(last_batch=render_batch(last))

    assert find_batch(read(msgspec.to_builtins(status)).status) == last


def test_a_write_of_the_same_decides_nothing_and_an_edited_status_does() -> None:
    old = read(msgspec.to_builtins(STATUS))

    assert not decides(old, replace(old, resource_version="8"))
    assert decides(old, read(bent("lastBatch.number", 4)))


def test_without_metadata_there_is_no_policy() -> None:
    with pytest.raises(DecodeError, match="MultiAZRollout"):
        decode_watched_policy(b'{"kind":"MultiAZRollout","metadata":{}}')


def test_a_store_keeps_policies_by_name() -> None:
    store = PolicyStore()
    first, broken = read(None), bent("lastBatch", 7)

    assert store.upsert(first) == ((None, first),)
    assert store.upsert(replace(read(broken), resource_version="6")) == ()
    assert store.get("prod", "db") is first
