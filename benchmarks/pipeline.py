"""The read path of the operator, wired as in `operator.main`: client, informers, stores, keys."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from benchmarks.processes import Target
from rollout_operator.aio.clock import LoopClock
from rollout_operator.aio.queue import WorkQueue
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.worker import Waker
from rollout_operator.kube.api import PODS, STATEFULSETS, Resource
from rollout_operator.kube.client import Client
from rollout_operator.kube.connection import Access, Transport, connect
from rollout_operator.kube.informer import Collection, Informer
from rollout_operator.kube.rate_limit import RateLimiter
from rollout_operator.kube.store import Cached, PodStore, StatefulSetStore, Store
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.names import GroupName
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.telemetry.metrics import Metrics


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """Both informers, not running yet."""

    transport: Transport
    queue: WorkQueue[GroupName]
    sets: Informer[StatefulSet | Unreadable]
    pods: Informer[Pod | Unreadable]

    async def sync(self, tasks: TaskStack) -> None:
        """Start both at once, as the operator does, and wait until both caches are filled."""
        tasks.start("statefulset informer", self.sets.run())
        tasks.start("pod informer", self.pods.run())
        await self.sets.wait_synced()
        await self.pods.wait_synced()


@asynccontextmanager
async def open_pipeline(target: Target) -> AsyncIterator[Pipeline]:
    """Connect to a server and wire everything; nothing is asked yet.

    Requests are not limited in rate: a sleep between two lists is nothing to measure.
    """
    clock, metrics = LoopClock(), Metrics()
    access = Access(namespace=target.namespace, api_url=target.url, config_file=target.kubeconfig)
    transport = await connect(access, clock)
    try:
        client = Client(transport, RateLimiter(0, 0), metrics)
        sets, pods = StatefulSetStore(), PodStore()

        def follow(
            resource: Resource,
            decode: Callable[[bytes | msgspec.Raw], Cached],
            store: Store[Cached],
        ) -> Informer[Cached]:
            of = Collection(
                resource=resource, namespace=target.namespace, decode=decode, store=store
            )
            return Informer(client, of, metrics, clock, random.Random(0).random)  # noqa: S311 (jitter, the same in each run)

        queue: WorkQueue[GroupName] = WorkQueue()
        waker = Waker(sets, queue.add_after)
        pipeline = Pipeline(
            transport=transport,
            queue=queue,
            sets=follow(STATEFULSETS, decode_statefulset, sets),
            pods=follow(PODS, decode_pod, pods),
        )
        pipeline.sets.on_change(waker.on_set)
        pipeline.pods.on_change(waker.on_pod)
        yield pipeline
    finally:
        await transport.close()
