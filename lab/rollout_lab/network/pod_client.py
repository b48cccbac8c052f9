"""The client of one process to its pods: HTTP requests without a network.

Decides whether a request gets to a pod and its answer back. What the pod does with it is left to
the pod, how long to wait and what counts as a success to the caller.
"""

import asyncio
from datetime import timedelta
from typing import Final, Protocol

from rollout_lab.network.faults import CrashPoint, PodCallOutcome, PodFailure
from rollout_lab.network.link import Link, wait_for_ever
from rollout_operator.model.objects import Endpoint

_INSTEAD: Final = {PodFailure.REDIRECT: 307, PodFailure.ERROR: 500}


class Endpoints(Protocol):
    """The pods that listen; see `lab.nodes.pods.PodEndpoints`."""

    async def serve(
        self, method: str, endpoint: Endpoint, actor: str, takes: timedelta
    ) -> tuple[int, bytes]: ...


class SimulatedPodClient:
    """Sends requests to pods, for one process."""

    def __init__(self, link: Link, endpoints: Endpoints) -> None:
        self._link = link
        self._endpoints = endpoints
        self._is_closed = False

    async def send(self, method: str, endpoint: Endpoint) -> int:
        """Return the status that a pod answers, of a redirect its own; it is not followed.

        Raises OSError where the connection is refused or breaks. Never returns where pods are out
        of reach, where no server answers, and once the link is dead: the caller sets a limit.
        """
        status, _ = await self._send(method, endpoint)
        return status

    async def post(self, endpoint: Endpoint) -> tuple[int, bytes]:
        """POST, and return the status and the body that a pod answers; see `send`."""
        return await self._send("POST", endpoint)

    async def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True

    async def _send(self, method: str, endpoint: Endpoint) -> tuple[int, bytes]:
        if self._is_closed:
            raise ConnectionAbortedError("this client is closed")
        link = self._link
        outcome = link.faults.on_pod_call(link.actor, method, endpoint.pod)
        if outcome.crash is CrashPoint.BEFORE_SEND:
            link.crash()
        await link.stay_alive()
        await asyncio.sleep(outcome.before.total_seconds() + link.latency())
        await self._cross()
        answer = await self._post(method, endpoint, outcome)
        if outcome.crash is CrashPoint.AFTER_COMMIT:
            link.crash()
        await asyncio.sleep(outcome.after.total_seconds() + link.latency())
        await self._cross()
        if outcome.crash is CrashPoint.AFTER_REPLY:
            asyncio.get_running_loop().call_soon(link.crash)
        return answer

    async def _cross(self) -> None:
        """Go on where there is a way, else never."""
        if self._link.cut_pods or self._link.is_dead:
            await wait_for_ever()

    async def _post(
        self, method: str, endpoint: Endpoint, outcome: PodCallOutcome
    ) -> tuple[int, bytes]:
        fails = outcome.fails
        if fails is PodFailure.REFUSED:
            raise ConnectionRefusedError("Connect call failed")
        if fails is PodFailure.RESET_BEFORE:
            raise ConnectionResetError("Connection reset by peer")
        if fails is PodFailure.LOST:
            await wait_for_ever()
        if fails in _INSTEAD:
            return _INSTEAD[fails], b""
        answer = await self._endpoints.serve(method, endpoint, self._link.actor, outcome.takes)
        if fails is PodFailure.RESET_AFTER:
            raise ConnectionResetError("Connection reset by peer")
        if fails is PodFailure.SILENT:
            await wait_for_ever()
        return (500, b"") if fails is PodFailure.ERROR_AFTER else answer
