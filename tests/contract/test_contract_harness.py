"""The harness itself: what it takes for equal, what it does not, and that it breaks nothing off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.request import STRATEGIC_PATCH, ApiAnswer, ApiRequest
from tests.contract.bodies import config_map, version_of
from tests.contract.plays import Needs, Sequence, list_sequences
from tests.contract.reviews import Rounds, allow, answer_review, deny, write_configuration
from tests.contract.sides import CONFIG_MAPS, Clients, Decide, Hook, HookKind
from tests.contract.simulated import play_simulated
from tests.contract.transcript import Transcript, find_difference
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


def test_versions_are_told_by_their_order_only() -> None:
    assert rendered(obj(7), obj(9), obj(7)) == rendered(obj(100), obj(300), obj(100))
    assert rendered(obj(7), obj(9)) != rendered(obj(9), obj(7))
    assert rendered(obj(7), obj(7)) != rendered(obj(7), obj(8))


def test_uids_are_told_by_their_first_appearance_also_in_texts() -> None:
    first, second = UIDS
    said: JsonObject = {"kind": "Status", "message": f"not {second} but {first}"}
    swapped: JsonObject = {"kind": "Status", "message": f"not {first} but {second}"}

    assert rendered(obj(1), said) == rendered(obj(1, uid=second), swapped)
    assert rendered(obj(1), said) != rendered(obj(1), swapped)


def test_a_uid_that_changes_is_seen() -> None:
    assert rendered(obj(1), obj(2)) != rendered(obj(1), obj(2, uid=UIDS[1]))


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
            id="a cause told twice",
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
    assert rendered(one) != rendered(other)


def test_a_list_s_version_is_held_against_what_was_seen() -> None:
    def listed(version: str) -> JsonObject:
        return {"kind": "ConfigMapList", "metadata": {"resourceVersion": version}, "items": []}

    assert rendered(obj(5), listed("5")) == rendered(obj(5), listed("99"))
    assert rendered(obj(5), listed("5")) != rendered(obj(5), listed("4"))


def test_texts_may_be_left_out_and_codes_not() -> None:
    one, other = ({"kind": "Status", "code": 400, "message": text} for text in "ab")

    assert rendered(one, has_texts=False) == rendered(other, has_texts=False)
    assert rendered(one, has_texts=False) != rendered({**other, "code": 500}, has_texts=False)


def test_a_difference_shows_the_lines_around() -> None:
    difference = find_difference(rendered(obj(1, generation=1)), rendered(obj(1, generation=2)))

    assert '-   "generation": 1,' in difference
    assert '+   "generation": 2,' in difference
    assert ' "kind": "ConfigMap"' in difference
    assert find_difference(["same"], ["same"]) == ""


class ScriptedSide:
    """A side that answers what it was told to."""

    name = "scripted"
    namespace = "ns"

    def __init__(self, *answers: ApiAnswer) -> None:
        self.answers = list(answers)
        self.asked: list[ApiRequest] = []
        self.events: list[JsonObject] = []
        self.decisions: dict[str, Decide] = {}

    async def call(self, request: ApiRequest) -> ApiAnswer:
        self.asked.append(request)
        return self.answers.pop(0)

    @asynccontextmanager
    async def watch(
        self, request: ApiRequest
    ) -> AsyncIterator[AsyncIterator[JsonObject] | ApiAnswer]:
        self.asked.append(request)

        async def events() -> AsyncIterator[JsonObject]:
            for event in self.events:
                yield event

        yield events() if self.events else self.answers.pop(0)

    def hook_url(self, path: str) -> tuple[str, str]:
        return f"https://localhost:1{path}", ""

    def attend(self, path: str, decide: Decide) -> None:
        self.decisions[path] = decide

    def clients(self) -> Clients:
        raise NotImplementedError

    async def forget_past(self) -> None:
        raise NotImplementedError

    def send_bookmarks(self) -> None:
        raise NotImplementedError

    async def pause(self, span: timedelta) -> None:
        await asyncio.sleep(0)


def ok(body: JsonObject, status: int = 200) -> ApiAnswer:
    return ApiAnswer(status=status, body=body)


REFUSED = ApiAnswer(status=404, body={"kind": "Status", "message": "not found"}, retry_after=3)


async def test_words_become_requests_and_steps() -> None:
    side = ScriptedSide(ok(obj(1)), REFUSED)
    world = World(side)

    made = await world.patch(CONFIG_MAPS, "a/status", {"x": 1}, STRATEGIC_PATCH, dryRun="All")
    await world.get(CONFIG_MAPS, "b", resourceVersion="0")

    first, second = side.asked
    assert (first.verb, first.name, first.subresource) == ("patch", "a", "status")
    assert (first.namespace, first.content_type, first.query) == (
        "ns", STRATEGIC_PATCH, {"dryRun": "All"})  # fmt: skip
    assert (second.verb, second.name, second.subresource) == ("get", "b", "")
    assert version_of(made) == "1"
    did = [step["did"] for step in world.transcript.steps]
    assert did == [
        "patch configmaps/a/status {'dryRun': 'All'}",
        "get configmaps/b {'resourceVersion': '0'}",
    ]
    assert world.transcript.steps[1]["retry after"] == 3


async def test_what_is_made_must_succeed_and_is_not_recorded() -> None:
    world = World(ScriptedSide(ok(obj(1), 201), REFUSED))

    await world.make(CONFIG_MAPS, config_map("a"))
    with pytest.raises(AssertionError, match="not found"):
        await world.make(CONFIG_MAPS, config_map("b"))

    assert world.transcript.steps == []


async def test_a_wait_looks_until_it_holds() -> None:
    side = ScriptedSide(ok(obj(1)), ok(obj(2)), REFUSED)
    world = World(side)

    await world.until_gone(CONFIG_MAPS, "a")

    assert len(side.asked) == 3
    assert world.transcript.steps == []


async def test_events_end_at_the_one_that_is_waited_for() -> None:
    side = ScriptedSide()
    bookmark: JsonObject = {"type": "BOOKMARK", "object": obj(3)}
    named: JsonObject = {"kind": "ConfigMap", "metadata": {"name": "end", "resourceVersion": "4"}}
    side.events = [
        {"type": "ADDED", "object": obj(2)},
        bookmark,
        bookmark,
        {"type": "ADDED", "object": named},
        {"type": "ADDED", "object": obj(9)},
    ]
    world = World(side)

    await world.events(CONFIG_MAPS, "end", resourceVersion="1")

    (step,) = world.transcript.steps
    assert [event["type"] for event in step["events"]] == ["ADDED", "BOOKMARK", "ADDED"]


async def test_a_watch_that_is_refused_is_a_step() -> None:
    world = World(ScriptedSide(REFUSED))

    await world.events(CONFIG_MAPS)

    assert world.transcript.steps[0]["status"] == 404


async def test_a_configuration_is_written_and_its_probe_waited_for() -> None:
    hook = Hook(name="one", decide=allow())
    side = ScriptedSide(ok({}, 201), ok({}, 201), REFUSED)
    world = World(side)

    await world.register("Mutating", hook)

    configuration: Any = side.asked[0].body
    assert configuration["metadata"]["name"] == "hooks-ns"
    assert [each["name"] for each in configuration["webhooks"]] == [
        "one.contract.example.org", "probe.contract.example.org"]  # fmt: skip
    assert [each.is_dry_run for each in side.asked[1:]] == [True, True]
    assert await side.decisions["/hooks-ns/probe"]({}) == {"allowed": False}


async def test_rounds_are_in_order_and_validating_ones_by_name() -> None:
    rounds = Rounds()
    asked: tuple[tuple[HookKind, str], ...] = (
        ("Validating", "b"),
        ("Mutating", "z"),
        ("Validating", "a"),
    )
    for kind, name in asked:
        hook = Hook(name=name, decide=deny())
        decide = rounds.recording(kind, hook, "c")
        await decide({"uid": "1", "userInfo": {}, "name": "x"})

    assert [each["hook"] for each in rounds.take()] == ["c/z", "c/a", "c/b"]
    assert rounds.take() == []


def test_a_review_is_answered_with_its_own_uid() -> None:
    review = (
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "7"}}'
    )

    assert b'"uid": "7"' in answer_review(review, {"allowed": True})
    assert b'"uid": "other"' in answer_review(review, {"uid": "other"})


def test_fields_of_a_hook_go_over_the_usual_ones() -> None:
    hook = Hook(name="one", decide=allow(), fields={"failurePolicy": "Ignore"})

    written: Any = write_configuration(ScriptedSide(), "Validating", "c", [hook]).object

    assert written["kind"] == "ValidatingWebhookConfiguration"
    assert written["webhooks"][0]["failurePolicy"] == "Ignore"


def test_a_sequence_that_breaks_off_says_why() -> None:
    async def play(_world: World) -> None:
        raise KeyError("lost")

    found = play_simulated(Sequence(topic="x", name="y", play=play, needs=Needs.API))

    assert isinstance(found, KeyError)


def test_sequences_have_names_of_their_own() -> None:
    names = [str(each) for each in list_sequences()]

    assert len(names) == len(set(names))
    assert len(names) >= 150
