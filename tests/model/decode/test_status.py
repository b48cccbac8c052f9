"""What comes back of a MultiAZRollout's status; what people break is in policy_status.txt."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from rollout_operator.kube.store import PolicyStore, decides
from rollout_operator.model.decode.custom import decode_watched_policy
from rollout_operator.model.names import Revision, Uid
from rollout_operator.model.policy import Batch, BatchPod, PolicyStatus, WatchedPolicy
from rollout_operator.planning.policy_status import find_batch, render_batch
from tests.model.policy_trees import policy_tree, status_tree


def read(status: Any, **spec: Any) -> WatchedPolicy:
    tree = {**policy_tree(**spec), "status": status}
    return decode_watched_policy(msgspec.json.encode(tree))


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
    old = read(status_tree()["status"])

    assert not decides(old, replace(old, resource_version="8"))
    assert decides(old, read({**status_tree()["status"], "phase": "Idle"}))


def test_a_store_keeps_policies_by_name() -> None:
    store = PolicyStore()
    first, broken = read(None), {"lastBatch": 7}

    assert store.upsert(first) == ((None, first),)
    assert store.upsert(replace(read(broken), resource_version="6")) == ()
    assert store.get("prod", "db") is first
