"""Mutating webhooks at the simulated API server: patches, order and second rounds."""

import pytest

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.request import ApiRefusal
from rollout_operator.lab.schemas.tidy import copy_json
from tests.lab.hook_world import Respond, World, annotate, attempt, deny, hook, patch, rule
from tests.lab.manifests import part, workload
from tests.virtual_time import in_virtual_time

FAILED = 'Internal error occurred: failed calling webhook "a.example.com": '


def mutating(*hooks: JsonObject, **responses: Respond) -> World:
    world = World()
    world.register(mutating=hooks or (hook("a"),))
    world.responses = {f"/{name}": respond for name, respond in responses.items()}
    return world


async def refused(world: World, **fields: object) -> ApiRefusal:
    with pytest.raises(ApiRefusal) as caught:
        await world.admission.mutate(attempt(**fields))
    return caught.value


@in_virtual_time
async def test_each_sees_what_the_ones_before_it_changed() -> None:
    """They are called by the names of their configurations, whatever order they came in."""
    world = mutating(hook("b"), hook("a"), a=annotate("a", "1"), b=annotate("b", "2"))
    mutated = await world.admission.mutate(attempt())
    assert mutated is not None
    assert world.paths == ["/a", "/b"]
    assert part(world.questions[1], "object", "metadata")["annotations"] == {"a": "1"}
    assert part(mutated, "metadata")["annotations"] == {"a": "1", "b": "2"}
    assert part(mutated, "spec")["replicas"] == 2


@in_virtual_time
async def test_defaults_are_filled_in_before_and_between() -> None:
    step: JsonObject = {"op": "remove", "path": "/spec/replicas"}
    world = mutating(hook("a"), hook("b"), a=patch(step))
    world.configurations = dict(world.configurations)
    new = workload(replicas=2)
    mutated = await world.admission.mutate(attempt(new=new))
    assert part(world.questions[0], "object", "spec")["revisionHistoryLimit"] == 10
    assert part(world.questions[1], "object", "spec")["replicas"] == 1
    assert mutated is not None
    assert part(mutated, "spec")["replicas"] == 1


@in_virtual_time
async def test_a_scale_is_shown_as_it_is() -> None:
    scale: JsonObject = {"kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 2}}
    world = mutating(a=patch({"op": "replace", "path": "/spec/replicas", "value": 5}))
    mutated = await world.admission.mutate(attempt(subresource="scale", new=scale, old=scale))
    assert world.questions[0]["object"] == scale
    assert mutated == {**scale, "spec": {"replicas": 5}}


def again(name: str) -> JsonObject:
    return hook(name, reinvocationPolicy="IfNeeded")


@pytest.mark.parametrize(
    ("hooks", "responses", "paths"),
    [
        ([again("a"), hook("b")], {"b": annotate("b", "1")}, ["/a", "/b", "/a"]),
        ([hook("a"), hook("b")], {"b": annotate("b", "1")}, ["/a", "/b"]),
        ([again("a"), again("b")], {"b": annotate("b", "1")}, ["/a", "/b", "/a"]),
        (
            [again("a"), again("b"), hook("c")],
            {"a": annotate("a", "1"), "c": annotate("c", "1")},
            ["/a", "/b", "/c", "/a", "/b"],
        ),
        ([again("a"), hook("b")], {}, ["/a", "/b"]),
        ([again("a")], {"a": annotate("a", "1")}, ["/a"]),
    ],
    ids=[
        "who was overtaken",
        "never by default",
        "not who changed it last",
        "all who were overtaken",
        "nothing changed",
        "not by its own change",
    ],
)
def test_a_second_round(
    hooks: list[JsonObject], responses: dict[str, Respond], paths: list[str]
) -> None:
    @in_virtual_time
    async def run() -> None:
        world = mutating(*hooks, **responses)
        await world.admission.mutate(attempt())
        assert world.paths == paths

    run()


@in_virtual_time
async def test_there_is_no_third_round() -> None:
    world = mutating(again("a"), again("b"))
    count = iter(range(100))
    for path in ("/a", "/b"):
        world.responses[path] = lambda request: annotate("n", str(next(count)))(request)
    await world.admission.mutate(attempt())
    assert world.paths == ["/a", "/b", "/a", "/b"]
    assert len({str(one["uid"]) for one in world.questions}) == 4


@in_virtual_time
async def test_a_patch_without_an_effect_changes_nothing() -> None:
    step: JsonObject = {"op": "replace", "path": "/spec/replicas", "value": 2}
    world = mutating(again("a"), hook("b"), b=patch(step))
    await world.admission.mutate(attempt())
    assert world.paths == ["/a", "/b"]


@in_virtual_time
async def test_who_is_matched_by_a_change_is_asked_and_not_only_in_the_second_round() -> None:
    selector = {"matchLabels": {"new": "yes"}}
    label = patch({"op": "add", "path": "/metadata/labels", "value": {"new": "yes"}})
    world = mutating(hook("a"), hook("b", objectSelector=selector), a=label)
    await world.admission.mutate(attempt())
    assert world.paths == ["/a", "/b"]
    world = mutating(hook("a", objectSelector=selector), hook("b"), b=label)
    await world.admission.mutate(attempt())
    assert world.paths == ["/b"]


@in_virtual_time
async def test_a_denial_ends_it() -> None:
    world = mutating(hook("a"), hook("b"), a=deny(message="no", code=403))
    refusal = await refused(world)
    assert refusal.message == 'admission webhook "a.example.com" denied the request: no'
    assert world.paths == ["/a"]


@in_virtual_time
async def test_a_failure_ends_it_unless_it_is_ignored() -> None:
    world = mutating(hook("a"), hook("b"))
    world.failures["/a"] = ConnectionRefusedError("refused")
    assert (await refused(world)).status == 500
    ignoring = mutating(hook("a", failurePolicy="Ignore"), hook("b"), b=annotate("b", "1"))
    ignoring.failures["/a"] = ConnectionRefusedError("refused")
    mutated = await ignoring.admission.mutate(attempt())
    assert mutated is not None
    assert part(mutated, "metadata")["annotations"] == {"b": "1"}


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (
            {"patch": "W10="},
            f"{FAILED}received invalid webhook response: webhook returned response.patch but not "
            "response.patchType",
        ),
        (
            {"patchType": "JSONPatch"},
            f"{FAILED}received invalid webhook response: webhook returned response.patchType but "
            "not response.patch",
        ),
        ({"patch": "W10=", "patchType": "Other"}, f'{FAILED}unsupported patch type "Other"'),
        ({"patch": "%", "patchType": "JSONPatch"}, f"{FAILED}failed to call webhook: illegal base"),
        (
            {"patch": "e30=", "patchType": "JSONPatch"},
            f"{FAILED}received undecodable patch in webhook response: ",
        ),
    ],
    ids=["no type", "no patch", "type", "base64", "object"],
)
def test_a_patch_that_is_none_is_a_failure(response: JsonObject, message: str) -> None:
    @in_virtual_time
    async def run() -> None:
        world = mutating(a=lambda _: {"allowed": True, **response})
        assert (await refused(world)).message.startswith(message)
        assert [one.status for one in world.reviewed] == [-1]

    run()


@in_virtual_time
async def test_a_patch_that_does_not_apply_is_no_matter_of_the_failure_policy() -> None:
    world = mutating(
        hook("a", failurePolicy="Ignore"), a=patch({"op": "remove", "path": "/spec/absent"})
    )
    refusal = await refused(world)
    assert (refusal.status, refusal.message) == (
        500,
        "Internal error occurred: error in remove for path: '/spec/absent': Unable to remove "
        "nonexistent key: absent: missing value",
    )


@in_virtual_time
async def test_a_patch_to_what_cannot_be_read_is_an_error_too() -> None:
    step: JsonObject = {"op": "add", "path": "/spec/replicas", "value": "2"}
    refusal = await refused(mutating(a=patch(step)))
    assert (refusal.status, refusal.reason) == (500, "InternalError")


@in_virtual_time
async def test_a_deletion_has_nothing_to_change() -> None:
    deletions = hook("a", rules=[rule(operations=["DELETE"])])
    world = mutating(deletions)
    gone = attempt(operation="DELETE", new=None)
    assert await world.admission.mutate(gone) is None
    question = world.questions[0]
    assert (question["object"], question["oldObject"]) == (None, gone.old)
    assert part(question, "options")["kind"] == "DeleteOptions"
    refusal = await refused(
        mutating(deletions, a=patch({"op": "add", "path": "/a", "value": 1})),
        operation="DELETE",
        new=None,
    )
    assert refusal.message == (
        'Internal error occurred: admission webhook "a.example.com" attempted to modify the '
        "object, which is not supported for this operation"
    )


@in_virtual_time
async def test_an_empty_patch_is_no_patch() -> None:
    world = mutating(a=patch())
    wanted = attempt()
    assert wanted.new is not None
    assert await world.admission.mutate(wanted) == copy_json(wanted.new)
