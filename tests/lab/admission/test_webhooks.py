"""Admission at the simulated API server: rounds, order, failures and the words of refusals."""

import asyncio
from datetime import timedelta

import pytest

from rollout_operator.kube.api import VALIDATING_WEBHOOKS
from rollout_operator.lab.model.history import Reviewed
from rollout_operator.lab.model.request import ApiRefusal, NotModelled
from rollout_operator.lab.schemas.kinds import find_kind
from rollout_operator.lab.schemas.tidy import copy_json
from tests.lab.hook_world import (
    Respond,
    World,
    annotate,
    attempt,
    deny,
    hook,
    patch,
    review,
    rule,
)
from tests.lab.manifests import part
from tests.virtual_time import in_virtual_time

POST = 'Post "https://hooks.default.svc:443/a?timeout=10s"'
FAILED = 'Internal error occurred: failed calling webhook "a.example.com": '


async def refused(world: World, **fields: object) -> ApiRefusal:
    """Validate what one webhook `a` refuses; return the refusal."""
    with pytest.raises(ApiRefusal) as caught:
        await world.admission.validate(attempt(**fields))
    return caught.value


def validating(**fields: object) -> World:
    world = World()
    world.register(validating=[hook("a", **fields)])
    return world


@in_virtual_time
async def test_no_answer_in_time_is_a_failure() -> None:
    world = validating()
    world.delays["/a"] = timedelta(seconds=11)
    refusal = await refused(world)
    assert asyncio.get_running_loop().time() == 10
    assert (refusal.status, refusal.reason) == (500, "InternalError")
    assert refusal.message == f"{FAILED}failed to call webhook: {POST}: context deadline exceeded"
    assert refusal.causes == ({"message": refusal.message.partition(": ")[2]},)
    assert world.reviewed == [
        Reviewed(
            at=timedelta(seconds=10),
            begun=timedelta(0),
            call=7,
            actor="behind /a",
            path="/a",
            namespace="default",
            name="a",
            resource="statefulsets",
            dry_run=False,
            allowed=False,
            status=-1,
            message=f"failed to call webhook: {POST}: context deadline exceeded",
        )
    ]


@in_virtual_time
async def test_a_webhook_out_of_reach_is_a_failure() -> None:
    world = validating()
    world.failures["/a"] = ConnectionResetError("connection reset by peer")
    text = f"{FAILED}failed to call webhook: {POST}: "
    assert (await refused(world)).message == f"{text}connection reset by peer"
    world.failures["/a"] = OSError()
    assert (await refused(world)).message == f"{text}EOF"
    world.hooks = None
    assert (await refused(world)).message == (
        f"{text}dial tcp default/hooks: connect: connection refused"
    )


@in_virtual_time
async def test_a_dry_run_spares_webhooks_with_side_effects() -> None:
    world = validating(sideEffects="NoneOnDryRun")
    await world.admission.validate(attempt(dry_run=True))
    assert world.questions[0]["dryRun"] is True
    assert world.reviewed[0].dry_run
    world = validating(failurePolicy="Ignore")
    # Older configurations may still say so; new ones are refused by the rules of the kind.
    configuration = next(iter(world.configurations.values()))[0]
    hooks = configuration["webhooks"]
    assert isinstance(hooks, list)
    hooks[0]["sideEffects"] = "Some"
    refusal = await refused(world, dry_run=True)
    assert (refusal.status, refusal.reason) == (400, "BadRequest")
    assert refusal.message == 'admission webhook "a.example.com" does not support dry run'
    assert not world.calls
    await world.admission.validate(attempt())


@in_virtual_time
async def test_validating_webhooks_are_asked_together_and_the_first_refusal_counts() -> None:
    world = World()
    world.register(validating=[hook("a"), hook("b"), hook("c")])
    world.responses.update({"/a": deny(message="late"), "/b": deny(message="first")})
    world.delays.update({"/a": timedelta(seconds=3), "/c": timedelta(seconds=5)})
    refusal = await refused(world)
    assert refusal.message.endswith("first")
    assert asyncio.get_running_loop().time() == 5, "all are waited for"
    assert [one.path for one in world.reviewed] == ["/b", "/a", "/c"]


@in_virtual_time
async def test_a_request_that_is_given_up_stands_in_the_history() -> None:
    world = validating()
    world.delays["/a"] = timedelta(seconds=5)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await world.admission.validate(attempt())
    assert [(one.status, one.message, one.at) for one in world.reviewed] == [
        (-1, "the request was given up", timedelta(seconds=1))
    ]


@in_virtual_time
async def test_what_is_reviewed_is_never_changed() -> None:
    world = World()
    world.register(mutating=[hook("a")])
    world.responses["/a"] = annotate("a", "1")
    wanted = attempt()
    before = copy_json({"old": wanted.old, "new": wanted.new})
    mutated = await world.admission.mutate(wanted)
    assert {"old": wanted.old, "new": wanted.new} == before
    assert mutated is not None
    assert part(mutated, "metadata")["annotations"] == {"a": "1"}


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"\xff",
        b"{}",
        b'{"kind":"AdmissionReview"}',
        review({"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "allowed": True}),
    ],
)
def test_garbage_is_not_modelled(body: bytes) -> None:
    @in_virtual_time
    async def run() -> None:
        world = validating()
        world.raw["/a"] = body
        with pytest.raises(NotModelled):
            await world.admission.validate(attempt())

    run()


def none_of(**response: object) -> Respond:
    return lambda _: {"allowed": True, **response}


@pytest.mark.parametrize(
    "respond",
    [
        none_of(patch="W10="),
        none_of(patchType="JSONPatch"),
        none_of(patchType="MergePatch", patch="e30="),
        none_of(patchType="JSONPatch", patch="?"),
        none_of(patchType="JSONPatch", patch="e30="),
        patch({"op": "test", "path": "/spec/replicas", "value": 9}),
        patch({"op": "replace", "path": "/spec", "value": "text"}),
    ],
)
def test_a_patch_that_is_none_or_does_not_apply_is_not_modelled(respond: Respond) -> None:
    @in_virtual_time
    async def run() -> None:
        world = World()
        world.register(mutating=[hook("a")])
        world.responses["/a"] = respond
        with pytest.raises(NotModelled):
            await world.admission.mutate(attempt())

    run()


@in_virtual_time
async def test_match_conditions_are_not_modelled_where_they_would_count() -> None:
    conditions = [{"name": "x", "expression": "true"}]
    world = validating(matchConditions=conditions, rules=[rule(resources=["pods"])])
    assert not world.admission.matches(attempt())
    with pytest.raises(NotModelled, match="matchConditions, which the webhook a"):
        validating(matchConditions=conditions).admission.matches(attempt())


@in_virtual_time
async def test_configurations_of_webhooks_are_never_reviewed() -> None:
    every = rule(operations=["*"], apiGroups=["*"], resources=["*"])
    world = validating(rules=[every])
    kind = find_kind(VALIDATING_WEBHOOKS)
    assert not world.admission.matches(attempt(kind=kind, namespace=""))
