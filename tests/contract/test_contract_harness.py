"""The harness itself: what it takes for equal, what it does not, and that it breaks nothing off."""

import pytest

from rollout_operator.kube.api import JsonObject
from tests.contract.plays import Needs, Sequence, list_sequences
from tests.contract.simulated import play_simulated
from tests.contract.transcript import Transcript
from tests.contract.world import World

UIDS = ("0a0a0a0a-1111-2222-3333-444444444444", "0b0b0b0b-1111-2222-3333-444444444444")


def obj(version: int, *, uid: str = UIDS[0], **fields: object) -> JsonObject:
    metadata = {"name": "a", "uid": uid, "resourceVersion": str(version)}
    return {"kind": "ConfigMap", "metadata": {**metadata, **fields}}


def rendered(*bodies: JsonObject, namespace: str = "ns", has_texts: bool = True) -> list[str]:
    transcript = Transcript(namespace)
    for body in bodies:
        transcript.add({"did": "get", "status": 200, "body": body})
    return transcript.render(has_texts=has_texts)


def test_versions_are_shown_by_their_order_and_uids_by_their_appearance() -> None:
    assert rendered(obj(7), obj(9), obj(7)) == rendered(obj(100), obj(300), obj(100))
    assert rendered(obj(7), obj(9)) != rendered(obj(9), obj(7))
    assert rendered(obj(7), obj(7)) != rendered(obj(7), obj(8))

    first, second = UIDS
    said: JsonObject = {"kind": "Status", "message": f"not {second} but {first}"}
    swapped: JsonObject = {"kind": "Status", "message": f"not {first} but {second}"}
    assert rendered(obj(1), said) == rendered(obj(1, uid=second), swapped)
    assert rendered(obj(1), said) != rendered(obj(1), swapped)
    assert rendered(obj(1), obj(2)) != rendered(obj(1), obj(2, uid=second))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            obj(1, creationTimestamp="2026-01-02T03:04:05Z"),
            obj(1, creationTimestamp="2031-01-02T03:04:05Z"),
            id="times",
        ),
        pytest.param(obj(1, managedFields=[{"manager": "x"}]), obj(1), id="managed fields"),
        pytest.param(
            {"kind": "Status", "details": {"name": "a", "kind": "pods"}},
            {"kind": "Status", "reason": ""},
            id="details that repeat the question",
        ),
        pytest.param(
            {"kind": "Status", "details": {"causes": [{"field": "a"}, {"field": "a"}]}},
            {"kind": "Status", "details": {"causes": [{"field": "a"}]}},
            id="a cause named twice",
        ),
        pytest.param(
            {"kind": "Pod", "spec": {"serviceAccountName": "default"}},
            {"kind": "Pod", "spec": {}},
            id="what other plugins add",
        ),
        pytest.param(
            {"kind": "Status", "message": 'Post "https://localhost:4711/x"'},
            {"kind": "Status", "message": 'Post "https://localhost:1/x"'},
            id="ports",
        ),
        pytest.param(
            {"metadata": {"generateName": "a-", "name": "a-x7k2p"}},
            {"metadata": {"generateName": "a-", "name": "a-b9s4q"}},
            id="generated names",
        ),
        pytest.param(
            {"metadata": {}, "status": {"updateRevision": "a-5d6f"}},
            {"metadata": {}, "status": {"updateRevision": "a-77bb"}},
            id="hashes of revisions",
        ),
    ],
)
def test_what_differs_from_run_to_run_is_equal(one: JsonObject, other: JsonObject) -> None:
    assert rendered(one) == rendered(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(obj(1, creationTimestamp="2026-01-02T03:04:05Z"), obj(1), id="no time"),
        pytest.param(obj(1, generation=1), obj(1, generation=2), id="generation"),
        pytest.param({"kind": "Status", "code": 404}, {"kind": "Status", "code": 409}, id="code"),
        pytest.param(
            {"kind": "Status", "reason": "Conflict"}, {"kind": "Status"}, id="reason of a refusal"
        ),
        pytest.param(
            {"kind": "Status", "message": "a"}, {"kind": "Status", "message": "b"}, id="message"
        ),
        pytest.param(
            {"kind": "Status", "details": {"causes": [{"field": "a"}]}},
            {"kind": "Status", "details": {"causes": [{"field": "b"}]}},
            id="cause",
        ),
        pytest.param(
            {"kind": "Status", "details": {"retryAfterSeconds": 1}},
            {"kind": "Status"},
            id="seconds to wait",
        ),
        pytest.param(
            {"metadata": {"deletionGracePeriodSeconds": 30}},
            {"metadata": {"deletionGracePeriodSeconds": 0}},
            id="grace",
        ),
        pytest.param({"data": {}}, {}, id="an empty map and none"),
    ],
)
def test_what_a_client_could_see_is_not(one: JsonObject, other: JsonObject) -> None:
    """Only messages may be left out on demand."""
    assert rendered(one) != rendered(other)
    is_text = "message" in one
    assert (rendered(one, has_texts=False) == rendered(other, has_texts=False)) is is_text


def test_a_list_s_version_is_held_against_what_was_seen() -> None:
    def listed(version: str) -> JsonObject:
        return {"kind": "ConfigMapList", "metadata": {"resourceVersion": version}, "items": []}

    assert rendered(obj(5), listed("5")) == rendered(obj(5), listed("99"))
    assert rendered(obj(5), listed("5")) != rendered(obj(5), listed("4"))


def test_a_sequence_that_breaks_off_says_why() -> None:
    async def play(_world: World) -> None:
        raise KeyError("lost")

    found = play_simulated(Sequence(topic="x", name="y", play=play, needs=Needs.API))

    assert isinstance(found, KeyError)


def test_sequences_have_names_of_their_own() -> None:
    names = [str(each) for each in list_sequences()]

    assert len(names) == len(set(names))
    assert len(names) >= 150
