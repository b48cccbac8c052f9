"""Pods over HTTP: a text of commands beside this file."""

import asyncio
import json
from datetime import timedelta
from typing import Any, Final

from rollout_lab.model.history import History, PodCalled
from rollout_lab.nodes.behaviour import Behaviour, PodReply, Response
from rollout_lab.nodes.pods import PodEndpoints
from rollout_lab.virtual_loop.pace import Timers

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Endpoint
from tests.stories import Steps, check_stories
from tests.virtual_time import EPOCH, VirtualClock, elapsed, in_virtual_time

IP: Final = "10.0.0.1"


class PodStage(Steps):
    """One pod behind an address, and requests to it; `prepared` are the UIDs that are so."""

    def __init__(self) -> None:
        self.history = History()
        self.timers = Timers()
        self.stack.callback(self.timers.stop)
        self.served = PodEndpoints(
            self.history, elapsed=elapsed, now=VirtualClock().now, timers=self.timers
        )
        self.served.enter(IP, pod="a-0", uid="u", behaviour=Behaviour())
        self.shown = 0
        self.begun: asyncio.Task[str] | None = None

    def look(self) -> list[str]:
        """Return what is recorded of calls, and who is prepared then."""
        calls = self.history.list_all(PodCalled)[self.shown :]
        self.shown += len(calls)
        prepared = [uid for uid in ("u", "u-2") if self.served.prepared(uid)]
        return [
            f"recorded {one.uid} {one.method} from {one.begun.total_seconds():g}s to"
            f" {one.at.total_seconds():g}s: {one.status}{', acted' * one.acted}"
            for one in calls
        ] + [f"prepared {' '.join(prepared)}"] * bool(calls and prepared)

    async def do_answer(self, method: str, *words: str) -> None:
        """Let the pod answer so from now on, as it does by itself without any."""
        fields: dict[str, Any] = {}
        for word in words:
            key, _, value = word.partition("=")
            match key:
                case "after" | "clock_offset":
                    fields[key] = timedelta(seconds=float(value))
                case "reply":
                    fields[key] = PodReply[value]
                case "body":
                    fields[key] = value.encode()
                case _:
                    fields[key] = json.loads(value)
        self.served.answer("a-0", method.strip("*"), Response(**fields) if fields else None)

    async def do_call(self, method: str, path: str = "prepare", within: str = "1e6") -> str:
        """Call the pod; show its answer, and as which second it says to be prepared."""
        endpoint = Endpoint(pod="a-0", uid=Uid("u"), ip=IP, host="a-0.a", port=80, path=path)
        try:
            async with asyncio.timeout(float(within)):
                status, body = await self.served.serve(method, endpoint, "operator-1")
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        said = body.decode()
        if said.startswith('{"timestamp":') and "e" not in said[2:].partition(":")[2]:
            said = f"prepared at {json.loads(said)['timestamp'] - EPOCH.timestamp():g}s"
        return f"{status} {said}".strip()

    async def do_begin(self, method: str) -> None:
        """Begin a call, and do not wait for it."""
        self.begun = asyncio.create_task(self.do_call(method))

    async def do_join(self) -> str:
        assert self.begun is not None
        return await self.begun

    async def do_leave(self) -> None:
        self.served.leave(IP, "u")

    async def do_enter(self, uid: str) -> None:
        self.served.enter(IP, pod="a-0", uid=uid, behaviour=Behaviour())


test_pods = in_virtual_time(check_stories(__file__, pods=PodStage))
