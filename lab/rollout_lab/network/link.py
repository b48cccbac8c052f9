"""What connects one life of a process with the world, and what can cut it off.

Decides how long the ways take, and that a process which has died neither does nor learns anything
more. What is sent over the link is left to `client` and `pod_client`, what goes wrong to `faults`.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn, TypeVar

from rollout_lab.model.request import NotModelled
from rollout_lab.network.faults import Faults, SentCall, Way
from rollout_operator.aio.clock import LoopClock, ServerClock
from rollout_operator.kube.api import Call

# How long one way takes: a millisecond at least, and up to so much more, in seconds.
LEAST: Final = 0.001
SPREAD: Final = 0.009
# Bytes that a process has sent before it died may arrive all the same.
ARRIVES_AFTER_DEATH: Final = 0.5

_T = TypeVar("_T")


class Link:
    """The network of one life of a process. Needs a running loop."""

    def __init__(self, actor: str, *, faults: Faults, rng: random.Random) -> None:
        """Connect `actor`, a process such as `operator-1`, under these faults."""
        self.actor = actor
        self.faults = faults
        self.rng = rng
        self.on_crash: Callable[[], None] | None = None
        """Called where a fault ends the process: once the link is dead, to end all the rest."""
        self.on_heal: list[Callable[[], None]] = []
        """Called by `heal`, for what is held back elsewhere."""
        self.clock = ServerClock(LoopClock())
        self._listeners: list[Callable[[], None]] = []
        self._dead = asyncio.Event()
        self._is_cut = False
        self._are_pods_cut = False
        self._calls = 0
        self._rounds: Counter[tuple[str, str, str, str]] = Counter()
        self._events: Counter[str] = Counter()
        self._flights: dict[asyncio.Task[Any], None] = {}

    @property
    def is_dead(self) -> bool:
        """Return whether the process has died."""
        return self._dead.is_set()

    @property
    def is_cut(self) -> bool:
        """Return whether nothing comes through, to the API server or back, to pods or back."""
        return self._is_cut

    @is_cut.setter
    def is_cut(self, is_cut: bool) -> None:
        self._is_cut = is_cut
        self._notify()

    @property
    def cut_pods(self) -> bool:
        """Return whether pods are out of reach."""
        return self._are_pods_cut or self._is_cut

    @cut_pods.setter
    def cut_pods(self, is_cut: bool) -> None:
        self._are_pods_cut = is_cut

    def kill(self) -> None:
        """Let nothing of what the process does have an effect from now on, and no wait of it end.

        What has arrived at the API server is carried out; what is on its way, by chance.
        """
        self._dead.set()
        self._notify()

    def crash(self) -> None:
        """End the process, as a fault wants it."""
        if not self.is_dead:
            self.kill()
            if self.on_crash is not None:
                self.on_crash()

    def heal(self) -> None:
        """Let everything through again; watches that are frozen or lag catch up."""
        self._are_pods_cut = False
        for listener in self.on_heal:
            listener()
        self.is_cut = False

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when the link is cut, healed or dead; call what is returned to end that."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    async def stay_alive(self) -> None:
        """Return at once; where the process has died, never."""
        if self.is_dead:
            await wait_for_ever()

    async def wait_dead(self) -> None:
        """Wait until the process has died."""
        await self._dead.wait()

    async def let_in(self) -> None:
        """Wait for the way to the process. Raises OSError where it is gone; cut, never returns."""
        await self._carry("question")

    async def let_out(self) -> None:
        """Wait for the way from the process; see `let_in`."""
        await self._carry("answer")

    def latency(self) -> float:
        """Return the seconds that one way takes."""
        return LEAST + SPREAD * self.rng.random()

    def may_arrive(self) -> bool:
        """Return whether what was sent a moment ago arrives."""
        if self._is_cut:
            return False
        return not self.is_dead or self.rng.random() < ARRIVES_AFTER_DEATH

    def number_call(self, call: Call, client: str) -> SentCall:
        """Count a call that is about to be made, and return it as faults know it."""
        self._calls += 1
        key = (call.verb, call.resource.plural, call.subresource, call.name)
        self._rounds[key] += 1
        return SentCall(
            number=self._calls,
            actor=self.actor,
            client=client,
            verb=call.verb,
            plural=call.resource.plural,
            subresource=call.subresource,
            name=call.name,
            round=self._rounds[key],
        )

    def number_event(self, plural: str, type: str) -> int:
        """Count an event of a watch and return its number; a bookmark has the number before it."""
        if type != "BOOKMARK":
            self._events[plural] += 1
        return self._events[plural]

    def run_to_end(self, work: Coroutine[Any, Any, _T]) -> asyncio.Future[_T]:
        """Run `work` to its end, whether or not a task still waits for it; return its result."""
        return asyncio.shield(self._run(work))

    async def ground(self) -> None:
        """End what is still on its way, for the end of a world."""
        flights = list(self._flights)
        for flight in flights:
            flight.cancel()
        if flights:
            await asyncio.wait(flights)

    async def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        task = asyncio.current_task()
        assert task is not None, "run by launch"
        self._flights[task] = None
        try:
            return await work
        except NotModelled as error:
            # The operator may take this for an error of its own and go on.
            problem = {"message": f"the sandbox has a gap: {error}", "exception": error}
            asyncio.get_running_loop().call_exception_handler(problem)
            raise
        finally:
            del self._flights[task]

    async def _carry(self, way: Way) -> None:
        outcome = self.faults.on_review(self.actor, way)
        await asyncio.sleep(self.latency() + outcome.delay.total_seconds())
        if outcome.crash:
            self.crash()
        if self.is_dead:
            raise ConnectionRefusedError(f"{self.actor} has gone")
        if outcome.reset:
            raise ConnectionResetError(f"the connection to {self.actor} broke")
        if outcome.lost or self._is_cut:
            await wait_for_ever()

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener()


async def wait_for_ever() -> NoReturn:
    """Wait until cancelled."""
    while True:
        await asyncio.get_running_loop().create_future()
