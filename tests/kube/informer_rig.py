"""An informer of pods that runs on a script, and what it reported."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import PODS
from rollout_operator.kube.informer import Collection, Informer
from rollout_operator.kube.store import PodStore
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.names import ApiError
from rollout_operator.model.objects import Pod, Unreadable
from rollout_operator.telemetry.metrics import Metrics
from tests.kube.scripted_watch import NAMESPACE, Listing, ScriptedApi, Step

PodInformer = Informer[Pod | Unreadable]


@dataclass
class Rig:
    """An informer that runs on a script, and what it reported."""

    api: ScriptedApi
    informer: PodInformer
    store: PodStore
    metrics: Metrics
    reported: list[str] = field(default_factory=list)
    """Changes as `old>new`; either is empty where there is nothing."""

    @property
    def names(self) -> set[str]:
        """Return what the store holds of the pods a-0 to a-2; a script has no others."""
        names = {f"a-{ordinal}" for ordinal in range(3)}
        found = {name for name in names if self.store.get(NAMESPACE, name) is not None}
        assert len(found) == len(self.store)
        return found

    @property
    def requested(self) -> list[str]:
        """Return what was sent to the API server: first pages, further pages and streams."""
        return [
            f"watch {call.version}" if call.verb == "watch" else f"list {call.token}".rstrip()
            for call in self.api.calls
        ]

    @property
    def lists(self) -> int:
        """Return how often all was listed."""
        return len(self.api.lists)

    @property
    def age(self) -> float:
        """Return the age of the newest proof of life in seconds."""
        return self.informer.age.total_seconds()

    def restarts(self, cause: str) -> float | None:
        return self.sample("watch_restarts_total", cause=cause)

    def stored(self, name: str = "a-0") -> str:
        """Return class and version of a view."""
        pod = self.store.get(NAMESPACE, name)
        return "" if pod is None else f"{type(pod).__name__}@{pod.resource_version}"

    def has_synced(self) -> bool:
        return self.informer.has_synced

    def broken_for(self) -> timedelta | None:
        return self.informer.broken_for

    def last_error(self) -> ApiError | None:
        return self.informer.last_error

    def sample(self, metric: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            f"rollout_operator_{metric}", {"kind": "Pod", **labels}
        )

    def record(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        self.reported.append(f"{_label(old)}>{_label(new)}")


def _label(pod: Pod | Unreadable | None) -> str:
    return f"{pod.name}@{pod.resource_version}" if pod is not None else ""


def make(
    lists: Sequence[Listing],
    watches: Sequence[Sequence[Step]] = (),
    *,
    rng: float = 0.5,
    decode: Callable[[bytes | msgspec.Raw], Pod | Unreadable] = decode_pod,
    ends_on: Callable[[ApiError], bool] = lambda error: False,
) -> Rig:
    store, metrics = PodStore(), Metrics()
    api = ScriptedApi(lists, watches)
    of: Collection[Pod | Unreadable] = Collection(
        resource=PODS, namespace=NAMESPACE, decode=decode, store=store, ends_on=ends_on
    )
    informer: PodInformer = Informer(api, of, metrics, LoopClock(), lambda: rng)
    rig = Rig(api, informer, store, metrics)
    informer.on_change(rig.record)
    return rig


@asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[None]:
    """Run the informer from first list to the end of the block."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(rig.informer.run(), name="informer")
        yield
        task.cancel()
    assert rig.api.open_watches == 0, "a stream was left open"


async def played(
    seconds: float,
    lists: Sequence[Listing],
    watches: Sequence[Sequence[Step]] = (),
    *,
    rng: float = 0.5,
) -> Rig:
    """Return an informer that ran on a script up to this moment of the loop."""
    rig = make(lists, watches, rng=rng)
    async with running(rig):
        await after(seconds)
    return rig


async def after(seconds: float) -> None:
    """Let virtual time pass, up to this moment of the loop."""
    await asyncio.sleep(seconds - asyncio.get_running_loop().time())
