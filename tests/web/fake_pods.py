"""Pods that remember how they were called, and answer as a test says."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

import msgspec

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Endpoint
from rollout_operator.pods import PodError
from tests.virtual_time import VirtualClock


class PodCall(msgspec.Struct, frozen=True):
    """One call that arrived at a pod."""

    method: str
    pod: str
    uid: Uid
    at: timedelta
    path: str = ""
    place: str = ""
    """Service, port and path: the host is that of a Service of the namespace."""


async def confirm(method: str, endpoint: Endpoint) -> None:
    """Answer 200 after a tenth of a second."""
    await asyncio.sleep(0.1)


class FakePods:
    """The pods behind a `PodClient`: they take calls, and `answer` says what becomes of each."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.calls: list[PodCall] = []
        self.confirmed: list[PodCall] = []
        self.answer: Callable[[str, Endpoint], Awaitable[None]] = confirm

    def names(self, method: str) -> list[str]:
        """Return the pods that were called, in order."""
        return [call.pod for call in self.calls if call.method == method]

    def paths(self, method: str) -> set[str]:
        """Return where pods were called."""
        return {call.path for call in self.calls if call.method == method}

    def prepared(self) -> set[Uid]:
        """Return the pods whose last call was a POST, confirmed or not: they may be waiting."""
        last = {call.uid: call.method for call in self.calls}
        return {uid for uid, method in last.items() if method == "POST"}

    async def prepare_all(self, endpoints: Sequence[Endpoint]) -> list[PodError]:
        failures: list[PodError] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                for endpoint in endpoints:
                    tasks.create_task(self._call("POST", endpoint))
        except* PodError as group:
            failures += [error for error in group.exceptions if isinstance(error, PodError)]
        return failures

    async def cancel_all(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodError]:
        failed: dict[Uid, PodError] = {}

        async def call(endpoint: Endpoint) -> None:
            try:
                await self._call("DELETE", endpoint)
            except PodError as error:
                failed[endpoint.uid] = error

        async with asyncio.TaskGroup() as tasks:
            for endpoint in endpoints:
                tasks.create_task(call(endpoint))
        return failed

    async def _call(self, method: str, endpoint: Endpoint) -> None:
        now = self._clock.elapsed()
        service = endpoint.host.removeprefix(f"{endpoint.pod}.").partition(".test.svc")[0]
        place = f"{service}:{endpoint.port}/{endpoint.path}"
        one = PodCall(method, endpoint.pod, endpoint.uid, now, endpoint.path, place)
        self.calls.append(one)
        await self.answer(method, endpoint)
        self.confirmed.append(one)
