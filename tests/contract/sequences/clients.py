"""The operator's own client and the simulated one: the same call, the same error class."""

from datetime import timedelta

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject, Precondition
from rollout_operator.model.names import ApiError, Uid
from tests.contract.bodies import config_map, pod, statefulset, tree, uid_of, version_of
from tests.contract.plays import Needs, sequence
from tests.contract.reviews import deny, silent
from tests.contract.sides import CONFIG_MAPS, Hook
from tests.contract.world import World


def _uid(value: str) -> Uid:
    return Uid(value)


OTHER = "11111111-2222-3333-4444-555555555555"


@sequence()
async def pages(world: World) -> None:
    for name in "abc":
        await world.make(CONFIG_MAPS, config_map(name))
    first = await world.clients.fetch_page(CONFIG_MAPS, world.namespace, limit=2)
    rest = await world.clients.fetch_page(
        CONFIG_MAPS, world.namespace, limit=2, token=first.next_token
    )
    world.record("pages", sizes=[len(first.items), len(rest.items)], is_last=not rest.next_token)


@sequence(needs=Needs.OBLIVION)
async def an_expired_page(world: World) -> None:
    for name in "abc":
        await world.make(CONFIG_MAPS, config_map(name))
    first = await world.clients.fetch_page(CONFIG_MAPS, world.namespace, limit=2)
    await world.make(CONFIG_MAPS, config_map("d"))
    await world.side.forget_past()
    call = world.clients.fetch_page(CONFIG_MAPS, world.namespace, token=first.next_token)
    await world.attempt("the rest", call)


@sequence()
async def a_token_that_is_none(world: World) -> None:
    call = world.clients.fetch_page(CONFIG_MAPS, world.namespace, token="nonsense")
    await world.attempt("the rest", call)


@sequence()
async def reads_and_whole_writes(world: World) -> None:
    clients, namespace = world.clients, world.namespace
    for name in ("a", "a", "b"):
        await world.attempt(f"fetch {name}", clients.fetch(CONFIG_MAPS, namespace, name))
        await world.attempt("create", clients.create(CONFIG_MAPS, namespace, config_map("a")))
    body = tree(await world.get(CONFIG_MAPS, "a"))
    for value in ("other", "third"):
        body["data"] = {"key": value}
        await world.attempt("replace", clients.replace(CONFIG_MAPS, namespace, "a", body))
    absent = clients.replace(CONFIG_MAPS, namespace, "b", config_map("b"))
    await world.attempt("replace", absent)


@sequence()
async def merge_patches(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a"))
    patches: tuple[JsonObject, ...] = (
        {"spec": {"replicas": 2}},
        {"metadata": {"uid": OTHER}, "spec": {"replicas": 1}},
        {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 1}},
    )
    for patch in patches:
        call = world.clients.patch(STATEFULSETS, world.namespace, "a", patch)
        await world.attempt("patch", call)


@sequence()
async def json_patches(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    for path, value in (("/data/key", "other"), ("/data/absent", "x"), ("/data/key", "value")):
        steps: list[JsonObject] = [
            {"op": "test", "path": path, "value": value},
            {"op": "add", "path": "/data/new", "value": "1"},
        ]
        call = world.clients.patch(CONFIG_MAPS, world.namespace, "a", steps)
        await world.attempt("patch", call)


@sequence()
async def deletes(world: World) -> None:
    made = await world.make(PODS, pod("a"))
    uid, version = uid_of(made), version_of(made)
    for wanted in ((OTHER, version), (uid, "1"), (uid, version), (uid, version)):
        precondition = Precondition(uid=_uid(wanted[0]), resource_version=wanted[1])
        call = world.clients.delete(PODS, world.namespace, "a", precondition=precondition)
        await world.attempt("delete", call)


@sequence()
async def statuses(world: World) -> None:
    body = tree(await world.make(STATEFULSETS, statefulset("a")))
    body["status"] = {"replicas": 1, "observedGeneration": 1}
    for _ in range(2):
        call = world.clients.replace_status(STATEFULSETS, world.namespace, "a", body)
        await world.attempt("replace status", call)
        body["status"] = {"replicas": 2}


@sequence()
async def hooks_that_deny_or_do_not_answer(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    for name, decide in (("no", deny(message="not now", code=429)), ("mute", silent())):
        with world.quietly():
            hook = Hook(name=name, decide=decide, fields={"timeoutSeconds": 1})
            await world.register("Mutating", hook, name=name)
        call = world.clients.patch(CONFIG_MAPS, world.namespace, "a", {"data": {"key": "x"}})
        await world.attempt("patch", call)


@sequence()
async def watches(world: World) -> None:
    version = version_of(await world.make(CONFIG_MAPS, config_map("start")))
    await world.make(CONFIG_MAPS, config_map("a"))
    with world.quietly():
        await world.delete(CONFIG_MAPS, "a")
    async with world.clients.watch(
        CONFIG_MAPS, world.namespace, resource_version=version, lasts=timedelta(seconds=1)
    ) as events:
        types = [event.type async for event in events]
    world.record("events", types=[kind for kind in types if kind != "BOOKMARK"])


@sequence(needs=Needs.OBLIVION)
async def a_watch_that_is_too_old(world: World) -> None:
    version = version_of(await world.make(CONFIG_MAPS, config_map("a")))
    await world.make(CONFIG_MAPS, config_map("b"))
    await world.side.forget_past()
    error = ""
    try:
        async with world.clients.watch(
            CONFIG_MAPS, world.namespace, resource_version=version, lasts=timedelta(seconds=1)
        ) as events:
            async for _ in events:
                pass
    except ApiError as raised:
        error = type(raised).__name__
    world.record("the watch", raises=error)
