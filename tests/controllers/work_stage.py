"""The commands of stories of workers, of attempts that are repeated, and of what wakes a group."""

import asyncio
from collections import Counter, deque
from datetime import timedelta
from typing import Final

from rollout_operator.aio.queue import Backoff
from rollout_operator.controllers.worker import Attempts, Controller, Reconciles, Result, Waker
from rollout_operator.kube.store import StatefulSetStore
from rollout_operator.model.names import (
    GROUP_LABEL,
    GROUP_LABEL_LONG,
    DecodeError,
    OperatorError,
    Uid,
)
from rollout_operator.model.objects import Pod, StatefulSet
from tests.builders import pod, sts
from tests.stories import Steps
from tests.virtual_time import VirtualClock
from tests.web.client_stage import ERRORS

MILLISECOND: Final = timedelta(milliseconds=1)
SETS: Final[dict[str, StatefulSet | None]] = {
    "nothing": None,
    "ingester": sts("a"),
    "groupless": sts("a", labels={}),
    "compactor": sts("a", labels={GROUP_LABEL: "compactor"}),
    "long": sts("a", labels={GROUP_LABEL_LONG: "ingester"}),
    "empty": sts("a", labels={GROUP_LABEL: ""}),
    "fewer": sts("a", ready_replicas=2, available_replicas=2, status_replicas=2),
    "grown": sts("a", ready_replicas=2, available_replicas=2, updated_replicas=2, replicas=4),
}
PODS: Final[dict[str, Pod | None]] = {
    "nothing": None,
    "owned": pod("a", 0),
    "released": pod("a", 0, owner_uid=None),
    "stranger": pod("a", 0, owner_uid=Uid("x")),
    "down": pod("a", 0, "n"),
}


class WorkStage(Steps):
    """Attempts, which wait for up to five seconds, and one worker."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.clock = VirtualClock()
        self.jitter = deque[float]()
        self.error: OperatorError | None = None
        self.warned: list[str] = []
        self.tried: list[str] = []
        self.attempts = Attempts(
            self.clock,
            longest=timedelta(seconds=5),
            rng=lambda: self.jitter.popleft() if self.jitter else 1.0,
        )
        self.reconciles = Reconciles(
            kind="Thing",
            attempts=self.attempts,
            once=self._once,
            name_keys=lambda name: {"thing": name},
            on_failure=lambda name, error: self.warned.append(f"{name} {type(error).__name__}"),
        )
        self.held: dict[str, asyncio.Event] = {}
        self.bugs: Counter[str] = Counter()
        self.cancels: set[str] = set()
        self.busy: set[str] = set()
        self.again: Counter[str] = Counter()

    async def _once(self, name: str) -> timedelta | None:
        self.tried.append(name)
        if self.error is not None:
            raise self.error
        return None

    def look(self) -> list[str]:
        found = [f"tried {' '.join(self.tried)}"] * bool(self.tried)
        found += [f"warned {' '.join(self.warned)}"] * bool(self.warned)
        self.tried.clear()
        self.warned.clear()
        return found

    # Attempts

    async def do_failed(self, attempt: str, error: str = "no", at_least: str = "0") -> str:
        wait = self.attempts.record_failure(
            (attempt,), error, at_least=timedelta(seconds=float(at_least))
        )
        return f"{wait.total_seconds():g}s"

    async def do_insist(self, attempt: str, seconds: str) -> str:
        """Fail whenever it is due, for so long; show how often in the last five minutes."""
        late = 0
        while (now := self.clock.elapsed()) < timedelta(seconds=float(seconds)):
            late += now > timedelta(seconds=float(seconds) - 300)
            await self.clock.sleep(self.attempts.record_failure((attempt,), "no"))
        return f"{late} attempts"

    async def do_worked(self, attempt: str) -> None:
        self.attempts.record_success((attempt,))

    async def do_before(self, attempt: str) -> str:
        wait, error = self.attempts.wait_before((attempt,))
        return f"waits {wait.total_seconds():g}s: {error}" if wait else f"goes {error}".strip()

    async def do_jitter(self, *numbers: str) -> None:
        self.jitter.extend(map(float, numbers))

    async def do_error(self, name: str = "") -> None:
        """Have reconciles of objects fail from now on, or not."""
        self.error = DecodeError("odd") if name == "odd" else ERRORS[name] if name else None

    async def do_thing(self, name: str) -> str:
        """Reconcile an object."""
        again = (await self.reconciles.reconcile(name)).again
        return "done" if again is None else f"again {again.total_seconds():g}s"

    # What wakes which group

    async def do_set(self, old: str, new: str) -> str:
        waker, keys = self._make_waker()
        waker.on_set(SETS[old], SETS[new])
        return " ".join(sorted(keys)) or "no group"

    async def do_pod(self, old: str, new: str) -> str:
        waker, keys = self._make_waker()
        waker.on_pod(PODS[old], PODS[new])
        return " ".join(keys) or "no group"

    def _make_waker(self) -> tuple[Waker, list[str]]:
        keys: list[str] = []
        sets = StatefulSetStore()
        sets.replace_all([sts("a")])
        waker = Waker(
            sets,
            lambda key, after: keys.append(f'"{key}"'),
            lambda key: keys.append(f'"{key}" later'),
        )
        return waker, keys

    # Workers

    async def do_workers(self, count: str = "1") -> None:
        backoff = Backoff(first=MILLISECOND, most=4 * MILLISECOND)
        self.controller = Controller(
            "work", self._reconcile, workers=int(count), backoff=backoff, rng=lambda: 1.0
        )
        self.task = asyncio.create_task(self.controller.run())
        await self.settle()

    async def _reconcile(self, key: str) -> Result:
        assert key not in self.busy, "never two workers on one key"
        self.busy.add(key)
        self.tried.append(key)
        try:
            if key in self.held:
                await self.held[key].wait()
            if self.bugs[key]:
                self.bugs[key] -= 1
                raise asyncio.CancelledError if key in self.cancels else RuntimeError("bug")
            self.again[key] -= 1
            return Result(again=MILLISECOND) if self.again[key] >= 0 else Result()
        finally:
            self.busy.discard(key)

    async def do_hold(self, *keys: str) -> None:
        self.held |= {key: asyncio.Event() for key in keys}

    async def do_release(self, *keys: str) -> None:
        for key in keys:
            self.held.pop(key).set()
        await self.settle()

    async def do_bug(self, key: str, times: str, how: str = "") -> None:
        """Have reconciles fail by a bug, or by a cancellation that `leaks`."""
        self.bugs[key] = int(times)
        self.cancels |= {key} if how == "leaks" else set()

    async def do_again(self, key: str, times: str) -> None:
        """Have reconciles ask for another one."""
        self.again[key] = int(times)

    async def do_add(self, *keys: str) -> str:
        """Add keys; show how many workers there are."""
        for key in keys:
            self.controller.add(key)
        await self.settle()
        count = sum(task.get_name() == "worker" for task in asyncio.all_tasks())
        return f"{self.controller.busy} of {count} busy"

    async def do_close(self) -> str:
        """Close the queue; show whether the workers have ended."""
        self.controller.close()
        await self.settle()
        return "ended" if self.task.done() else f"{self.controller.busy} busy"

    async def do_log(self) -> str:
        """Show how many bugs were logged with their traceback."""
        return f"{sum('by a bug' in one and 'in _reconcile' in one for one in self.lines)} bugs"
