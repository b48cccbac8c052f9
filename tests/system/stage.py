"""A namespace on the real control plane, with operators that are started, killed and forbidden.

Commands about an operator take its name last; without one they mean the one named before. Each
that waits for something fails where it does not come, and says nothing where it does.
"""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Final

from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec, three_zones

from tests.stories import Steps
from tests.system.grants import list_unneeded, reported, shipped_grants, without
from tests.system.hooked import TLS_FLAGS
from tests.system.starts import waiting_at_most
from tests.system.waits import acts, read_metric, wait_line, wait_page, wait_true
from tests.world.budgets import grouped_zones
from tests.world.childproc import free_ports
from tests.world.kubelet import Behaviour, always
from tests.world.manifests import SECRET
from tests.world.operatorproc import OperatorProcess
from tests.world.proxy import (
    Cut,
    Delay,
    Effect,
    FaultProxy,
    Freeze,
    NeverAnswer,
    Rule,
    lists,
    verbs,
    watches,
)
from tests.world.world import World

# A refused watch or write is tried again after 30 s at the latest, and lists before it watches.
LONG: Final = timedelta(seconds=120)
# Enough for several attempts at a list.
SHORT: Final = timedelta(seconds=8)
# Codes of answers: 0 is a watch that goes on, and what is looked for at first may not be there.
OFTEN, FIRST = (0, 200, 409), (201, 404)
ABSENT_AT_FIRST: Final = (
    *("leases", "events", "secrets"),
    # Kinds that no test before may have installed.
    *("zoneawarepoddisruptionbudgets", "multiazrollouts"),
)
SLOW_PODS: Final = Behaviour(ready_after=timedelta(milliseconds=300))
EFFECTS: Final[dict[str, Effect]] = {
    "cut": Cut(),
    "frozen": Freeze(),
    "unanswered": NeverAnswer(),
    "late": Delay(timedelta(seconds=5)),
}


class PlaneStage(Steps):
    """Plays in one world; what it has entered is left by `close`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.running, self.rights, self.late = AsyncExitStack(), AsyncExitStack(), AsyncExitStack()
        self.stack.push_async_callback(lambda: self.close())
        self.operators: dict[str, OperatorProcess] = {}
        self.last = ""
        self.names: list[str] = []
        self.rules: list[Rule] = []
        self.told = 0
        """How many deletes have been told."""
        self.late_port = free_ports(1)[0]
        """Where an API server listens once it has arrived."""

    async def close(self) -> None:
        for stack in (self.rights, self.running, self.late):
            await stack.aclose()

    @property
    def late_address(self) -> str:
        return f"127.0.0.1:{self.late_port}"

    def operator(self, name: str = "") -> OperatorProcess:
        self.last = name or self.last
        return self.operators[self.last]

    # What is there

    async def do_zones(self, group: str = "ingester", *words: str) -> None:
        """`zones ingester replicas=1`: three of them; `budgeted`: with labels for a budget."""
        replicas = next((int(one[9:]) for one in words if one.startswith("replicas=")), 3)
        make = grouped_zones if "budgeted" in words else three_zones
        zones = make(group, replicas=replicas)
        self.names = await self.world.create(*(self.change(zone, words) for zone in zones))

    def change(self, zone: ZoneSpec, words: Sequence[str]) -> ZoneSpec:
        """Return a zone with what else the words say of it."""
        return zone

    # Operators

    async def do_start(self, *words: str) -> None:
        """`start one tls proxied away short -flag`: it may not get ready.

        `watching=a,b` are namespaces in place of its own, without any all of them.
        """
        flags = [self._fill_in(word) for word in words if word.startswith("-")]
        proxied, tls = "proxied" in words, "tls" in words
        if tls:
            await self.world.grant("webhooks")
        self.world.may_be_forbidden |= "-kubernetes.namespace" in str(flags)
        url = f"https://{self.late_address}" if "away" in words else ""
        tls_flags = TLS_FLAGS if tls else ()
        launch = self.world.launch(*tls_flags, *flags, url=url, is_through_proxy=proxied)
        if spaces := [word.removeprefix("watching=") for word in words if "watching=" in word]:
            env = {"WATCH_NAMESPACE": self._fill_in(*spaces), "POD_NAMESPACE": launch.namespace}
            launch = replace(launch, namespace="", env=env)
        if "short" in words:
            launch = replace(launch, command=waiting_at_most(SHORT))
        if "token" in words:
            self.world.plane.kubeconfig(launch.kubeconfig, "not-a-token")
        self.last = words[0]
        process = OperatorProcess(launch)
        self.operators[self.last] = await self.running.enter_async_context(process)

    async def do_operator(self, *words: str) -> None:
        await self.do_start(*words)
        await self.operator().wait_ready()

    async def do_up(self, name: str = "") -> None:
        await self.operator(name).wait_ready(LONG)

    async def do_kill(self, name: str = "") -> None:
        self.operator(name).kill()

    async def do_again(self, name: str = "") -> None:
        self.operator(name).start()

    async def do_pause(self, name: str = "") -> None:
        self.operator(name).pause()

    async def do_resume(self, name: str = "") -> None:
        self.operator(name).resume()

    async def do_signal(self, which: str, name: str = "") -> None:
        self.operator(name).child.send(signal.Signals[f"SIG{which}"])

    async def do_end(self, name: str = "") -> str:
        return f"exit {await self.operator(name).terminate()}"

    async def do_ended(self, seconds: str = "60", name: str = "") -> str:
        return f"exit {await self.operator(name).wait_end(timedelta(seconds=int(seconds)))}"

    async def do_running(self, name: str = "") -> str:
        return "yes" if self.operator(name).is_running else "no"

    async def do_acts(self, name: str, seconds: str = "60") -> None:
        await wait_true("acts", lambda: acts(self.operator(name)), timedelta(seconds=int(seconds)))

    async def do_idle(self, name: str) -> str:
        return "no" if await acts(self.operator(name)) else "yes"

    # Rights and faults

    async def do_without(self, *words: str) -> None:
        """`without list pods watch pods`: take rights away."""
        grants = zip(words[::2], words[1::2], strict=True)
        await self.rights.enter_async_context(without(self.world, *grants))

    async def do_grant(self, component: str, *only: str) -> None:
        """Grant what a component does, or the rules of these verbs only."""
        self.world.may_be_forbidden |= bool(only)
        await self.world.grant(component, verbs=only)

    async def do_unpermitted(self) -> None:
        """For the end: calls may be forbidden, as not all rights are granted."""
        self.world.may_be_forbidden = True

    async def do_restore(self) -> None:
        await self.rights.aclose()

    async def do_fault(self, verb: str, resource: str, effect: str, times: str = "") -> None:
        """`fault delete pods cut 1`: what the proxy does to requests."""
        any_of = {"list": lists, "watch": watches}
        wanted = "" if resource == "all" else resource
        predicate = any_of[verb](wanted) if verb in any_of else verbs(verb, resource)
        rule = self.world.proxy.add(predicate, EFFECTS[effect], times=int(times) if times else None)
        self.rules.append(rule)

    async def do_arrive(self) -> None:
        """Let the API server be where `start one away` looks for it."""
        await self.late.enter_async_context(FaultProxy(self.world.plane, self.late_port))

    async def do_depart(self) -> None:
        await self.late.aclose()

    async def do_met(self) -> None:
        await wait_true("met", lambda: self.rules[-1].hits > 0)

    async def do_mend(self) -> None:
        self.world.proxy.remove(self.rules.pop())

    # What people do

    async def do_image(self, image: str) -> None:
        await self.world.set_image(self.names, image)

    async def do_annotate(self, name: str, key: str, value: str) -> None:
        await self.world.annotate(name, **{key: value})

    async def do_adopted(self) -> None:
        await self.world.wait_adopted(self.names, LONG)

    async def do_roll(self, image: str) -> None:
        await self.world.roll(self.names, image, LONG)

    async def do_whole(self) -> None:
        await self.world.wait_ready(self.names)

    async def do_at(self, pod: str, image: str) -> None:
        await self.world.wait_image(pod, image)

    async def do_unready(self, pod: str) -> None:
        await self.world.kubelet.make_unready(pod)

    async def do_well(self, pod: str) -> None:
        with suppress(LookupError):  # it was replaced
            await self.world.kubelet.make_ready(pod)

    async def do_slow(self) -> None:
        """Let pods take a moment to get ready."""
        self.world.kubelet.choose = always(SLOW_PODS)

    async def do_apiserver(self) -> None:
        """Restart the API server, which forbids everything until it has read the roles."""
        self.world.may_be_forbidden = True
        await self.world.plane.restart_apiserver()

    async def do_within(self, seconds: str, *words: str) -> None:
        """`within 10 201 evict a-0`: what is waited for comes that soon."""
        async with asyncio.timeout(int(seconds)):
            await self.do_until(*words)

    async def do_until(self, outcome: str, *command: str) -> None:
        """`until 201 evict a-0`: again and again."""
        seen: list[str | None] = [None]

        word, *rest = command
        do = self.find_command(word, rest)

        async def holds() -> bool:
            seen[0] = await do(*rest)
            return seen[0] == outcome

        await wait_true(lambda: f"{outcome}, but {seen[0]}", holds, LONG)

    # What shows

    async def do_line(self, *parts: str) -> str:
        """Return the level of the first line with all parts; `right VERB KIND` is one of them."""
        if "right" in parts:
            place = parts.index("right")
            parts = (*parts[:place], reported(*parts[place + 1 : place + 3]))
        line = await wait_line(self.operator(), *map(self._fill_in, parts))
        return line.partition("level=")[2].partition(" ")[0]

    def _fill_in(self, part: str) -> str:
        words = {
            "NAMESPACE": self.world.namespace,
            "SECRET": SECRET,
            "FOLDER": str(self.world.folder),
            "LATE": self.late_address,
        }
        for word, here in words.items():
            part = part.replace(word, here)
        return part

    async def do_lines(self, text: str) -> str:
        return str(sum(text in line for line in self.operator().log_lines()))

    async def do_last(self, *parts: str) -> str:
        line = self.operator().log_lines()[-1]
        return "yes" if all(part in line for part in parts) else line

    async def do_page(self, status: str, path: str, *parts: str) -> str | None:
        """Wait until a page has this status and the first text; a `!` is before what it lacks."""
        wanted = [*map(self._fill_in, parts)]
        lacking = next((part[1:] for part in wanted if part.startswith("!")), "")
        texts = [part for part in wanted if not part.startswith("!")]
        first = texts[0] if texts else ""
        text = await wait_page(self.operator(), path, int(status), first, lacking=lacking)
        missing = [part for part in texts if part not in text]
        return f"not {missing} in {text}" if missing else None

    async def do_metric(self, name: str, *labels: str) -> str:
        pairs = dict(one.split("=") for one in labels)
        found = await read_metric(self.operator(), f"rollout_operator_{name}", **pairs)
        return "none" if found is None else f"{found:g}"

    async def do_reaches(self, least: str, name: str, *labels: str) -> None:
        async def holds() -> bool:
            shown = await self.do_metric(name, *labels)
            return shown != "none" and float(shown) >= float(least)

        await wait_true(f"{name} {least}", holds, LONG)

    async def do_deleted(self) -> str:
        return "yes" if await self.world.judge.deletes() else "no"

    async def do_deletes(self) -> str:
        """Return the pods that were deleted since this was asked before, and how it went."""
        found = await self.world.judge.deletes()
        new, self.told = found[self.told :], len(found)
        return " ".join(one.name if one.is_done else f"{one.name}:{one.code}" for one in new) or "-"

    async def do_calls(self, resource: str) -> str:
        """Return what was requested of a resource, and the codes of the answers.

        The audit log has a watch once it has ended, whenever that is.
        """
        calls = await self.world.judge.calls(with_events=True)
        mine = [one for one in calls if one.resource == resource and one.verb != "watch"]
        found = {f"{one.verb} {one.code}" for one in mine}
        return ", ".join(sorted(found)) or "none"

    async def do_used(self, folder: str) -> str:
        """Say what the Roles of a folder grant and was not used, and what else was.

        409 is the answer to a precondition that no longer holds.
        """
        calls = await self.world.judge.calls(with_events=True)
        wanted = shipped_grants(folder) - await list_unneeded(self.world)
        others = wanted if folder == "base" else shipped_grants()
        used = {(call.verb, call.resource) for call in calls}
        odd = {
            f"{call.verb} {call.resource} in {call.namespace}: {call.code}"
            for call in calls
            if call.code not in (*OFTEN, *(FIRST if call.resource in ABSENT_AT_FIRST else ()))
            or call.namespace not in ("", self.world.namespace)
        }
        return f"{wanted - used or 'all'}; {used - wanted - others | odd or 'no more'}"

    async def do_clean(self) -> None:
        await self.world.judge.assert_clean()
