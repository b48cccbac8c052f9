"""The commands of stories of calls to pods by a `PodCaller`, and what it remembers of them.

`b4` is a pod of zone b. What is remembered stands in seconds since the start.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from rollout_operator.controllers.scaling import PodCaller
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Endpoint
from rollout_operator.model.scaling import CallPods, PodAnswer, PodCalls
from rollout_operator.pods import PodError
from tests import stories
from tests.builders import sts
from tests.virtual_time import EPOCH, VirtualClock, elapsed

SECOND = timedelta(seconds=1)


class CallerStage(stories.Steps):
    """Pods that take a second for each kind of call, and confirm it."""

    def __init__(self, lines: list[str]) -> None:
        self.clock = VirtualClock()
        self.told: list[str] = []
        self.pods: dict[str, str] = {}
        self.bugs = 0
        self.takes = 1.0
        self.caller = PodCaller(
            self, now=self.clock.now, late_calls=10 * SECOND,
            on_answers=lambda uid: self.told.append(f"{elapsed() / SECOND:g} heard {uid[-1]}"),
        )  # fmt: skip

    def look(self) -> list[str]:
        told, self.told = self.told, []
        return told

    async def cancel_all(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodError]:
        await self._take("DELETE", endpoints)
        return {
            one.uid: PodError("HTTP status 500", may_arrive=self.pods[one.uid] == "silent")
            for one in endpoints
            if one.uid in self.pods
        }

    async def fetch_answers(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodAnswer]:
        begun = self.clock.now()
        await self._take("POST", endpoints)
        return {
            one.uid: PodAnswer(
                called_at=begun,
                since=EPOCH if one.uid not in self.pods else None,
                problem=self.pods.get(one.uid, ""),
                is_lost=self.pods.get(one.uid) == "silent",
            )
            for one in endpoints
        }

    async def _take(self, method: str, endpoints: Sequence[Endpoint]) -> None:
        pods = " ".join(one.uid for one in endpoints)
        self.told.append(f"{elapsed() / SECOND:g} {method} {pods}")
        if self.bugs:
            self.bugs -= 1
            raise ZeroDivisionError
        await asyncio.sleep(self.takes)

    async def do_work(self) -> None:
        tasks = await self.stack.enter_async_context(asyncio.TaskGroup())
        tasks.create_task(self.caller.controller.run())
        self.stack.callback(self.caller.controller.close)

    async def do_call(self, letter: str, *words: str) -> None:
        """Call pods of a zone by their ordinals: `stay=01 prepare=43`."""
        pods = {
            key: tuple(_endpoint(letter, one) for one in ordinals)
            for key, _, ordinals in (word.partition("=") for word in words)
        }
        cancel, post = pods.get("stay", ()), pods.get("prepare", ())
        self.caller.begin(CallPods(zone=sts(letter), cancel=cancel, post=post))

    async def do_pods(self, how: str, *pods: str) -> None:
        """Have pods be `refusing` or `silent`, or `well` again."""
        for pod in pods:
            self.pods.pop(pod, None)
            if how != "well":
                self.pods[pod] = how

    async def do_bug(self) -> None:
        """Have the next round fail by a fault of ours."""
        self.bugs = 1

    async def do_slow(self, seconds: str) -> None:
        self.takes = float(seconds)

    async def do_keep(self, letter: str, *pods: str) -> None:
        """These are the present pods of a zone; `b4-` is not ready."""
        ready = {Uid(pod.removesuffix("-")): not pod.endswith("-") for pod in pods}
        self.caller.keep(sts(letter).uid, ready)

    async def do_forget(self, letter: str) -> None:
        self.caller.forget(sts(letter).uid)

    async def do_close(self) -> None:
        self.caller.controller.close()

    async def do_known(self, letter: str) -> str:
        """Show what is remembered of the pods of a zone."""
        known = self.caller.known([sts(letter).uid])
        return ", ".join(f"{uid}:{_show(calls)}" for uid, calls in known.items()) or "none"


def _endpoint(letter: str, ordinal: str) -> Endpoint:
    name = f"zone-{letter}-{ordinal}"
    return Endpoint(
        pod=name, uid=Uid(f"{letter}{ordinal}"), ip="10.0.0.1", host=name, port=80, path="delayed"
    )


def _show(calls: PodCalls) -> str:
    text = ""
    if answer := calls.answer:
        text += f" said {_at(answer.since) or answer.problem} at {_at(answer.called_at)}"
        text += "" if answer.lasts is None else f" lasts {answer.lasts / SECOND:g}s"
    for name in ("cancelled_at", "tried_at", "unanswered_at"):
        if at := _at(getattr(calls, name)):
            text += f" {name.removesuffix('_at')} {at}"
    text += f" failures {calls.failures}" * bool(calls.failures)
    return text + f" tries {calls.tries}" * bool(calls.tries)


def _at(time: datetime | None) -> str:
    return "" if time is None else f"{(time - EPOCH) / SECOND:g}"
