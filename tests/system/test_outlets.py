"""One scenario, shown by every outlet in the same words: page, JSON, command, Events, log, metric.

On the real control plane, under the shipped Role. Of each fact it is checked where it is shown, and
where it is not: what concerns one request, as a refused downscale, is no state of the group.
"""

import asyncio
import html
import json
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Set
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace
from rollout_lab.trace.log_lines import read_log_line

from rollout_operator.model.outcome import Code
from rollout_operator.planning.events import ROLLOUT_FINISHED, ZONE_ROLLED_OUT
from rollout_operator.planning.wording import camel_case
from tests.system.budgeted import Budgeted, hold
from tests.system.guarded import NO_DOWNSCALE
from tests.system.starts import run_words
from tests.system.waits import read_metric, wait_line, wait_true
from tests.world.api import Json, Resource
from tests.world.budgets import ZONE_BUDGETS, grouped_zones, zone_budget
from tests.world.clients import Route, Workload
from tests.world.hooks import BUDGET_HOOKS
from tests.world.hooks import NO_DOWNSCALE as NO_DOWNSCALE_HOOK
from tests.world.operatorproc import OperatorProcess
from tests.world.plane import ADMIN
from tests.world.world import World

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

# What `kubectl describe` requests.
CORE_EVENTS: Final = Resource("v1", "events")
A, B, C = (f"ingester-zone-{letter}" for letter in "abc")
BROKEN: Final = f"{C}-0"
# Codes by their names in Events and conditions. The end of a rollout has names of its own.
CODES: Final = {
    **{camel_case(code): code for code in Code},
    ROLLOUT_FINISHED: Code.UP_TO_DATE,
    ZONE_ROLLED_OUT: Code.ROLLED_OUT,
}
# What is added to a sentence: what concerns this one request or rollout.
ADDED: Final = re.compile(r"; (requested by \S+|the rollout took \S+|the next eviction in line)$")
DENIED: Final = " denied the request: "
PAGES: Final = frozenset({"page", "text", "json", "command", "command json"})
REVIEWS: Final = "rollout_operator_reviews_total"


class Reported(msgspec.Struct, frozen=True):
    """A fact as it is shown: its code, and its sentence."""

    code: str
    text: str


NOT_READY: Final = Reported(
    Code.ZONE_NOT_READY,
    f"{C} has 1 of 2 pods ready ({BROKEN}: container app not ready); {A} and {B} wait",
)
USED: Final = Reported(
    Code.DISRUPTION_BUDGET_USED,
    f"1 pod not ready in {C} ({BROKEN}: container app not ready); budget ingester: max"
    " unavailable 1",
)
DONE: Final = Reported(Code.UP_TO_DATE, "6 pods of 3 zones: all ready at the update revision")


async def test_d75_one_story_in_the_same_words_everywhere(world: World) -> None:
    """D-40, D-75: a zone not ready, a budget used, a refused downscale, a rollout that is done."""
    held = await show_blockers(world)
    operator = held.operator
    outlets = Outlets(world, operator)
    no_downscale = Reported(
        Code.NO_DOWNSCALE,
        f"downscale of statefulsets/{A} in {world.namespace} from 2 to 1 replicas is not allowed"
        f" because it has the label '{NO_DOWNSCALE}=true'",
    )

    await world.kubelet.make_unready(BROKEN)
    await world.set_image([A, B], "v2")
    await wait_line(operator, NOT_READY.text)
    refused = await held.assert_refuses(f"{B}-0", 429)
    assert ADDED.sub("", refused.message.partition(DENIED)[2]) == USED.text
    workload = Workload(api=world.api, namespace=world.namespace, name=A, label="")
    refused = await workload.scale(1, Route.MERGE)
    assert refused.message.partition(DENIED)[2] == no_downscale.text

    await outlets.wait("budget", USED)
    await outlets.wait("text", NOT_READY)
    await outlets.wait("events", NOT_READY)
    seen = await outlets.read()
    assert collect_outlets(seen, NOT_READY) == {*PAGES, "events", "log"}
    assert collect_outlets(seen, USED) == {*PAGES, "events", "log", "budget"}
    assert collect_outlets(seen, no_downscale) == {"events", "log"}
    named = await read_events(world)
    assert (named[NOT_READY], named[USED], named[no_downscale]) == ({C}, {f"{B}-0"}, {A})
    assert await read_waiting(operator) == {NOT_READY.code}
    for one in (USED, no_downscale):
        assert await read_metric(operator, REVIEWS, verdict="refused", reason=one.code) == 1

    before = len(operator.log_lines())
    await world.kubelet.make_ready(BROKEN)
    await world.wait_adopted(held.names)
    await outlets.wait("text", DONE)
    await wait_true("the end at both zones", partial(has_ended, world))
    seen = {**await outlets.read(), "log": read_log(operator, before)}
    assert collect_outlets(seen, DONE) == {*PAGES, "events", "log"}
    assert not collect_outlets(seen, NOT_READY) - {"events"}, "the pages are about now"
    assert await read_waiting(operator) == {DONE.code}
    zones = {one for one in seen["events"] if one.code == Code.ROLLED_OUT}
    assert len(zones) == 2
    assert zones <= seen["log"]
    await world.judge.assert_clean()


async def show_blockers(world: World) -> Budgeted:
    """Return three zones under a budget, the first of which may not be scaled down."""
    first, *others = grouped_zones(replicas=2)
    return await hold(
        world,
        replace(first, labels={NO_DOWNSCALE: "true"}),
        *others,
        budgets=[zone_budget("ingester", {"rollout-group": "ingester"}, maxUnavailable=1)],
        registration={"hooks": (NO_DOWNSCALE_HOOK, *BUDGET_HOOKS)},
    )


def collect_outlets(seen: Mapping[str, Set[Reported]], what: Reported) -> set[str]:
    """Return the outlets that show this."""
    return {name for name, reported in seen.items() if what in reported}


async def has_ended(world: World) -> bool:
    """Return whether both zones that were rolled out have an Event that says that all is done."""
    return (await read_events(world))[DONE] == {A, B}


class Outlets:
    """All that a person or a program can read, by name; each returns what it shows."""

    def __init__(self, world: World, operator: OperatorProcess) -> None:
        self._operator = operator
        token = world.plane.tokens[ADMIN]
        self._kubeconfig = world.plane.kubeconfig(
            Path(world.folder, "person.conf"), token, namespace=world.namespace
        )
        self._readers: Mapping[str, Callable[[], Awaitable[Set[Reported]]]] = {
            "page": partial(self._fetch, "/status", "text/html", read_page),
            "text": partial(self._fetch, "/status", "*/*", read_text),
            "json": partial(self._fetch, "/status.json", "*/*", read_json),
            "command": partial(self._request, "wide", read_text),
            "command json": partial(self._request, "json", read_json),
            "events": partial(collect_reported, world),
            "budget": partial(read_budget, world),
        }

    async def read(self) -> Mapping[str, Set[Reported]]:
        """Return what each of them shows now."""
        reported = await asyncio.gather(*(read() for read in self._readers.values()))
        return {**dict(zip(self._readers, reported, strict=True)), "log": read_log(self._operator)}

    async def wait(self, name: str, what: Reported) -> None:
        """Wait until one of them shows this. Raises TimeoutError with what it shows."""
        seen: Set[Reported] = set()

        async def is_reported() -> bool:
            nonlocal seen
            seen = await self._readers[name]()
            return what in seen

        await wait_true(lambda: f"{what} by {name}, but {seen}", is_reported)

    async def _fetch(
        self, path: str, accept: str, read: Callable[[str], Set[Reported]]
    ) -> Set[Reported]:
        url = f"http://127.0.0.1:{self._operator.port}{path}"
        async with (
            aiohttp.ClientSession(headers={"Accept": accept}) as client,
            client.get(url) as answer,
        ):
            return read(await answer.text())

    async def _request(self, format: str, read: Callable[[str], Set[Reported]]) -> Set[Reported]:
        words, env = ("status", f"-o={format}"), {"KUBECONFIG": str(self._kubeconfig)}
        ended = await asyncio.to_thread(run_words, *words, env=env)
        assert ended.code == 0, ended.err
        return read(ended.out)


def read_page(page: str) -> Set[Reported]:
    """Return what is shown in HTML: a sentence, and the code as a link to its explanation."""
    found = re.findall(r'>([^<>]+) <a class="code" href="reasons#(\w+)">\2</a>', page)
    return {Reported(code, html.unescape(text)) for text, code in found}


def read_text(text: str) -> Set[Reported]:
    """Return what is shown in lines that end in a code."""
    found = re.findall(r'^ *(?:budget "\w+": )?(.+) \[(\w+)\]$', text, re.MULTILINE)
    return {Reported(code, sentence) for sentence, code in found}


def read_json(text: str) -> Set[Reported]:
    """Return what is shown by objects that have a code, wherever they are."""
    return set(_list_reported(json.loads(text)))


def _list_reported(node: object) -> Iterator[Reported]:
    if isinstance(node, list):
        for each in node:
            yield from _list_reported(each)
    elif isinstance(node, dict):
        if node.get("code"):
            yield Reported(node["code"], node.get("headline") or node["text"])
        yield from _list_reported(list(node.values()))


def read_log(operator: OperatorProcess, start: int = 0) -> Set[Reported]:
    """Return what the log shows from a line on."""
    lines = filter(None, map(read_log_line, operator.log_lines()[start:]))
    keys = [line.keys for line in lines if {"reason", "why"} <= line.keys.keys()]
    return {Reported(one["reason"], ADDED.sub("", one["why"])) for one in keys}


async def collect_reported(world: World) -> Set[Reported]:
    """Return what Events show."""
    return set(await read_events(world))


async def read_events(world: World) -> Mapping[Reported, Set[str]]:
    """Return what Events show, and of which objects."""
    found: dict[Reported, set[str]] = defaultdict(set)
    for event in (await world.api.list(CORE_EVENTS, world.namespace))["items"]:
        if event["reportingComponent"] == "rollout-operator":
            reported = Reported(
                CODES.get(event["reason"], event["reason"]), ADDED.sub("", event["message"])
            )
            found[reported].add(event["involvedObject"]["name"])
    return found


async def read_budget(world: World) -> Set[Reported]:
    """Return what the status of the budget shows."""
    found: Json = await world.get(ZONE_BUDGETS, "ingester")
    conditions = found.get("status", {}).get("conditions", [])
    return {Reported(CODES[one["reason"]], one["message"]) for one in conditions}


async def read_waiting(operator: OperatorProcess) -> Set[str]:
    """Return the codes that hold the group by the metric."""
    series = r'^rollout_operator_group_waiting\{rollout_group="ingester",reason="(\w+)"\} 1$'
    return set(re.findall(series, await operator.metrics(), re.MULTILINE))
