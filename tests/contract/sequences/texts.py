"""Sequences as text, in the files beside this one.

    # deletes: preconditions, grace, finalizers, repetition
    -- preconditions_of_a_delete
    x = make cm a; delete cm a {preconditions: {uid: OTHER}}
    delete cm a {preconditions: {uid: $x.uid}} ?dryRun=All

    # json_patches: one a line, after what is given
    given make cm a
    -- add: json cm a [{op: add, path: /data/new, value: "1"}]; get cm a

A call is a verb of `World`, kind, target, body and query; `~` sends it unrecorded. The body of an
object is what it has more than the shortest of its kind, or with `= $x` than what was answered to
`x`; `webhook` are fields of the only one of a configuration; null removes a field, NULL says null,
and `spec.replicas` is a path. In topics named `controllers_...` commands are methods of
`ControllerRig`: `rest` says also how it came to be, `found` only what is there. `client` before a
call has it done by the operator's own client, or the lab's. `//` begins a remark.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec.structs import replace
from rollout_lab.model.fields import child
from rollout_lab.model.request import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_lab.schemas.patches import merge

from rollout_operator.kube.api import (
    KUSTOMIZATIONS,
    MUTATING_WEBHOOKS,
    OCI_REPOSITORIES,
    SECRETS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
    JsonObject,
    Precondition,
    Resource,
)
from rollout_operator.model.decode.objects import decode_field_writers
from rollout_operator.model.names import Uid
from tests.contract import bodies
from tests.contract.bodies import OTHER_UID, tree
from tests.contract.controllers_rig import ControllerRig, staged
from tests.contract.controllers_sets import web
from tests.contract.plays import Needs, add_each
from tests.contract.reviews import allow, answering, deny, patching, silent
from tests.contract.sides import (
    BUDGETS,
    CONFIG_MAPS,
    PODS,
    REVISIONS,
    Decide,
    Hook,
    HookKind,
    Verdict,
)
from tests.contract.world import Watch, World

Json = Any
KINDS: Final[Mapping[str, tuple[Resource, Callable[[str], JsonObject]]]] = {
    "cm": (CONFIG_MAPS, bodies.config_map),
    "pod": (PODS, bodies.pod),
    "sts": (STATEFULSETS, bodies.statefulset),
    **{
        kind: (resource, partial(bodies.shortest, kind))
        for kind, resource in (
            ("secret", SECRETS),
            ("pdb", BUDGETS),
            ("zpdb", ZONE_BUDGETS),
            ("template", REPLICA_TEMPLATES),
            ("source", OCI_REPOSITORIES[0]),
            ("ks", KUSTOMIZATIONS[0]),
            ("revision", REVISIONS),
            ("vhook", VALIDATING_WEBHOOKS),
            ("mhook", MUTATING_WEBHOOKS),
        )
    },
}
CONTENT_TYPES: Final = {"patch": MERGE_PATCH, "strategic": STRATEGIC_PATCH, "json": JSON_PATCH}
FORGET: Final = "forget"
OF_CONTROLLERS: Final = "controllers_"
_CALL: Final = re.compile(
    r"(?:(?P<name>\w) = )?(?P<quiet>~?)(?P<client>client )?(?P<verb>\w+)(?: (?P<kind>\w+))?"
    r"(?: (?P<target>[^\s{\[?=]+))?(?: = \$(?P<base>\w))?(?: (?P<body>[{\[].*?[}\]]))?"
    r"(?P<query>(?: \?[^?]+)*)"
)
_REFERENCE: Final = re.compile(r"\$(\w)\.(\w+)")
_PATH: Final = re.compile(r"(?:metadata|spec|status|data|deleteOptions)(?:\.\w+)+")


def read_texts(folder: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield topic, name and commands of each sequence."""
    for path in sorted(folder.glob("*.txt")):
        for text in path.read_text("utf-8").split("\n# ")[1:]:
            head, *blocks = re.split(r"^-- ", text, flags=re.MULTILINE)
            topic, *above = head.splitlines()
            terms = [line.split(maxsplit=2)[1:] for line in above if line.startswith("let ")]
            given, then = (
                [line.removeprefix(word) for line in above if line.startswith(word)]
                for word in ("given ", "then ")
            )
            for block in blocks:
                title, *lines = block.splitlines()
                name, _, first = title.partition(": ")
                said = [line for line in (first, *lines) if line and not line.startswith("//")]
                commands = [one for line in (*given, *said, *then) for one in line.split("; ")]
                for term, meaning in terms:
                    commands = [re.sub(rf"\b{term}\b", meaning, one) for one in commands]
                yield topic.partition(":")[0], name, commands


def tell(commands: list[str]) -> Callable[[World], Any]:
    """Return what plays commands in a world."""

    async def play(world: World) -> None:
        async with AsyncExitStack() as stack:
            teller = _Teller(world, stack)
            for command in commands:
                await teller.act(command)

    return play


def tell_controllers(commands: list[str]) -> Callable[[World], Any]:
    """Return what plays commands where controllers are at work on StatefulSets."""

    async def play(rig: ControllerRig) -> None:
        for command in commands:
            verb, _, rest = command.partition(" ")
            if verb in ("rest", "found"):
                await rig.rest(rest, has_steps=verb == "rest")
                continue
            if verb == "describe":
                rig.describe(rest)
                continue
            if verb == "get":
                kind, target = rest.split()
                await rig.world.get(KINDS[kind][0], target)
                continue
            words = re.match(r"(?:[^\s:]+(?:\s+|$))*", rest)
            assert words is not None, command
            names, fields = words[0].split(), yaml.safe_load(f"{{{rest[words.end() :]}}}")
            if verb == "create":
                also = fields.pop("also", {})
                await rig.create(merge(web(*names, **fields), _spread(also)))
            elif verb == "patch":
                await rig.patch(KINDS[names[0]][0], names[1], fields)
            else:
                await getattr(rig, verb)(*names, **fields)

    return staged(play)


class _Teller:
    """Plays the commands of one sequence, and remembers the answers that have names."""

    def __init__(self, world: World, stack: AsyncExitStack) -> None:
        self._world = world
        self._stack = stack
        self._answers: dict[str, Json] = {}
        self._watch: Watch | None = None

    async def act(self, command: str) -> None:
        found = _CALL.fullmatch(command)
        assert found is not None, command
        if found["client"]:
            await self._do_as_operator(found)
            return
        if found["quiet"]:
            with self._world.quietly():
                answer = await self._do(found)
        else:
            answer = await self._do(found)
        if found["name"]:
            self._answers[found["name"]] = tree(answer)

    def _read(self, found: re.Match[str]) -> tuple[Json, dict[str, str]]:
        """Return the body and the query of a call."""
        query = {
            key: self._fill(value)
            for key, _, value in (one.partition("=") for one in found["query"].split(" ?")[1:])
        }
        body = self._fill(_spread(yaml.safe_load(found["body"]))) if found["body"] else None
        return body, query

    async def _do_as_operator(self, found: re.Match[str]) -> None:
        """Do what a process of the operator does, and record the result or the error."""
        clients, verb = self._world.clients, found["verb"]
        resource, base = KINDS.get(found["kind"], (CONFIG_MAPS, None))
        name, _, subresource = (found["target"] or "").partition("/")
        where = (resource, self._world.namespace)
        body, query = self._read(found)
        call: Awaitable[object]
        match verb:
            case "fetch":
                call = clients.fetch(*where, name, subresource)
            case "page":
                call = self._fetch_page(where, query.get("token", ""), found["name"])
            case "patch":
                call = clients.patch(*where, name, body, subresource)
            case "delete":
                wanted = Precondition(uid=Uid(body["uid"]), resource_version=body["version"])
                call = clients.delete(*where, name, precondition=wanted)
            case "watch":
                call = self._list_types(where, query["version"])
            case "create":
                call = clients.create(*where, self._complete(base, name, found["base"], body or {}))
            case _:
                write = {"replace": clients.replace, "replace_status": clients.replace_status}[verb]
                whole = self._complete(base, name, found["base"], body or {})
                call = write(*where, name, whole)
        await self._world.attempt(f"client {verb} {found['target'] or ''}".rstrip(), call)

    async def _fetch_page(self, where: tuple[Resource, str], token: str, name: str) -> object:
        page = await self._world.clients.fetch_page(*where, limit=2, token=token)
        self._answers[name] = {"metadata": {"continue": page.next_token}}
        return {"items": len(page.items), "is last": not page.next_token}

    async def _list_types(self, where: tuple[Resource, str], version: str) -> object:
        """Return what a watch from a version on brings within a second, but for bookmarks."""
        second = timedelta(seconds=1)
        async with self._world.clients.watch(
            *where, resource_version=version, lasts=second
        ) as events:
            types = [event.type async for event in events]
        return [kind for kind in types if kind != "BOOKMARK"]

    async def _do(self, found: re.Match[str]) -> Json:
        world, verb, target = self._world, found["verb"], found["target"] or ""
        resource, base = KINDS.get(found["kind"], (CONFIG_MAPS, None))
        body, query = self._read(found)
        if target and not resource.is_namespaced:
            target = world.unique(target)
        match verb:
            case "create" | "make" | "update":
                whole = self._complete(base, target, found["base"], body or {})
                if verb == "update":
                    return await world.update(resource, target, whole, **query)
                if verb == "make":
                    return await world.make(resource, whole, **query)
                return await world.create(resource, whole, target if "/" in target else "", **query)
            case "get":
                return await world.get(resource, target, **query)
            case "list":
                return await world.list(resource, **query)
            case "delete":
                options = None if body is None else bodies.delete_options(**body)
                return await world.delete(resource, target, options, **query)
            case "events":
                return await world.events(resource, target, **query)
            case "watch":
                opened = world.watch(resource, **query)
                self._watch = await self._stack.enter_async_context(opened)
            case "see":
                assert self._watch is not None
                await self._watch.until(found["kind"] or "")
            case "bookmarks":
                world.side.send_bookmarks()
            case "forget":
                await world.side.forget_past()
            case "gone":
                await world.until_gone(resource, target)
            case "going":
                await world.until(resource, target, bodies.is_going)
            case "lone":
                await world.until(resource, target, bodies.has_one_owner)
            case "writers":
                await _record_writers(world, resource)
            case "hook":
                hooks = body if isinstance(body, list) else [body]
                kind: HookKind = "Mutating" if found["kind"] == "mutating" else "Validating"
                await world.register(kind, *map(self._hook, hooks), name=target or "hooks")
            case "apply":
                whole = self._complete(base, target, "", body or {})
                return await world.patch(resource, target, whole, APPLY_PATCH, **query)
            case _:
                return await world.patch(resource, target, body, CONTENT_TYPES[verb], **query)
        return None

    def _complete(
        self, base: Callable[[str], JsonObject] | None, target: str, answer: str, more: JsonObject
    ) -> Json:
        if answer:
            whole = self._answers[answer]
        elif target.endswith("/eviction"):
            whole = bodies.eviction(target.partition("/")[0])
        else:
            assert base is not None, target
            whole = base(target)
        more = dict(more)
        first: Json = more.pop("webhook", None)
        merged: Json = merge(whole, more)
        if first:
            merged["webhooks"] = [merge(merged["webhooks"][0], first)]
        return _restore(merged)

    def _fill(self, value: Json) -> Json:
        """Return a value with what answers have said in it."""
        match value:
            case dict():
                return {key: self._fill(each) for key, each in value.items()}
            case list():
                return [self._fill(each) for each in value]
            case "OTHER":
                return OTHER_UID
            case str() if found := _REFERENCE.fullmatch(value):
                answer = self._answers[found[1]]
                if found[2] == "owner":
                    return bodies.owner(answer)
                key = {"version": "resourceVersion", "token": "continue"}.get(found[2], found[2])
                return str(child(answer, "metadata")[key])
            case str():
                return value.replace("NAMESPACE", self._world.namespace)
            case _:
                return value

    def _hook(self, said: dict[str, Json]) -> Hook:
        """Return a webhook: what it decides, what it is called for, and its other fields."""
        [decide] = [_DECIDES[key](said.pop(key)) for key in _DECIDES if key in said] or [
            self._interrupt(said.pop("first"), said.pop("times", 1)) if "first" in said else allow()
        ]
        hook = Hook(name=said.pop("name", "one"), decide=decide)
        lists = {key: tuple(said.pop(key)) for key in _LISTS if key in said}
        return replace(hook, fields=said, **lists)

    def _interrupt(self, command: str, times: int) -> Decide:
        """Return a hook that lets another client act before it answers, so often."""
        left = [times]

        async def decide(_review: JsonObject) -> Verdict:
            if left[0]:
                left[0] -= 1
                await self.act(f"~{command}")
            return {"allowed": True}

        return decide


_LISTS: Final = ("operations", "resources", "groups")
_DECIDES: Final[Mapping[str, Callable[[Json], Decide]]] = {
    "allow": lambda more: allow(**more),
    "deny": lambda status: deny(**status),
    "answer": answering,
    "patch": lambda said: (
        patching(*said["steps"], warnings=said["warnings"])
        if isinstance(said, dict)
        else patching(*said)
    ),
    "silent": lambda _: silent(),
}


async def _record_writers(world: World, resource: Resource) -> None:
    """Record whose fields are whose: managers in any order, as that is one of times."""
    with world.quietly():
        now = await world.get(resource, "a")
    path = (
        ("spec", "ref") if resource is KINDS["source"][0] else ("spec", "postBuild", "substitute")
    )
    found = decode_field_writers(msgspec.Raw(msgspec.json.encode(now.body)), path)
    world.record("writers", fields={key: sorted(found[key]) for key in sorted(found)})


def _spread(value: Json) -> Json:
    """Return a mapping whose paths, such as `spec.replicas`, have become mappings."""
    if not isinstance(value, dict):
        return value
    whole: Json = {}
    for key, each in value.items():
        parts = key.split(".") if _PATH.fullmatch(key) else [key]
        place = whole
        for part in parts[:-1]:
            place = place.setdefault(part, {})
        place[parts[-1]] = each
    return whole


def _restore(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _restore(each) for key, each in value.items()}
    return None if value == "NULL" else value


def _add_texts(folder: Path) -> None:
    for topic, name, commands in read_texts(folder):
        if topic.startswith(OF_CONTROLLERS):
            add_each([(name, tell_controllers(commands))], topic, Needs.CONTROLLERS)
        else:
            needs = Needs.OBLIVION if FORGET in commands else Needs.API
            needs = Needs.CONTROLLERS if topic == "garbage" else needs
            add_each([(name, tell(commands))], topic, needs)


_add_texts(Path(__file__).parent)
