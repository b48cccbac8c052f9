"""Composition of the schedules of the cluster, once for all namespaces of a process.

An account that may not list them tries again now and then, and else they cost nothing. The
Rollouts, gates and namespaces of the cluster that they depend on are followed from the first
schedule on.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.releases.caches import follow_kind
from rollout_operator.controllers.releases.schedules.observe import ScheduleKinds, WideSchedules
from rollout_operator.kube import release_kinds as kinds
from rollout_operator.kube.api import NAMESPACES, SELF_ACCESS_REVIEWS, JsonObject, Resource
from rollout_operator.kube.cache.followed import FollowedKind
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.model.decode.registrations import decode_allowed
from rollout_operator.model.errors import ApiError, DecodeError, Denied, NotFound
from rollout_operator.model.event import EventRecord
from rollout_operator.model.objects import list_decoded
from rollout_operator.model.releases.schedule import ScheduleObject
from rollout_operator.operator.process import Process
from rollout_operator.operator.releases.schedules import Schedules
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.releases import show_schedules

# A role, or a definition, is changed by a person.
CHECK_INTERVAL: Final = timedelta(minutes=1)
# Rollouts wait for the answer.
TRY_AGAIN: Final = timedelta(seconds=5)
_RESOURCE: Final = kinds.CLUSTER_ROLLOUT_SCHEDULES


class ClusterSchedules:
    """The controller of the ClusterRolloutSchedules of a process."""

    def __init__(self, process: Process, record: Callable[[EventRecord], None]) -> None:
        """`record` has an Event written soon."""
        self._process = process
        self._client = process.open("keeping gates of the cluster", Priority.READ)
        # Each replica checks its rights, whether or not it acts.
        self._rights_client = process.open_unfenced("reading rights", Priority.LIST)
        self._wanted = asyncio.Event()
        self._kinds = self._follow_kinds()
        self._wide = process.wide_schedules = WideSchedules(self._kinds)
        self._schedules = Schedules(process, self._client, _RESOURCE, self._kinds, record)
        self._kinds.schedules.on_change(lambda old, new: self._wanted.set())
        process.followed_schedules.append(self._kinds.schedules)
        show_schedules(process.metrics.registry, self._list_schedules)

    async def follow(self) -> None:
        """Follow what schedules of the cluster need, until cancelled."""
        clock = self._process.clock
        while not await self._may_follow():
            await clock.sleep(CHECK_INTERVAL if self._wide.problem is None else TRY_AGAIN)
        first, *others = self._kinds.list_kinds()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(first.run(clock), name=f"{first.kind} informer")
            await self._wanted.wait()
            for kind in others:
                tasks.create_task(kind.run(clock), name=f"{kind.kind} informer of the cluster")

    def start(self, tasks: TaskStack) -> None:
        """Begin to act."""
        self._schedules.start(tasks)

    def close(self) -> None:
        """Begin nothing new from now on."""
        self._schedules.close()

    async def finish(self) -> None:
        """Wait until no schedule is reconciled."""
        await self._schedules.finish()

    def _list_schedules(self) -> Iterator[ScheduleObject]:
        """Yield the schedules of all namespaces, and of the cluster."""
        for kind in self._process.followed_schedules:
            yield from list_decoded(kind.store.list_all(), ScheduleObject)

    async def _may_follow(self) -> bool:
        """Return whether the kind is there, and may be listed: a forbidden list is not tried."""
        problem = None
        try:
            is_there = await self._is_granted()
            if is_there:
                await self._client.fetch_page(_RESOURCE, "", limit=1, resource_version="0")
        except (ApiError, DecodeError) as error:
            log.debug("Schedules of the cluster are not followed", err=error)
            # Where there are none for this process, it has none to obey.
            is_there, problem = False, None if isinstance(error, NotFound | Denied) else str(error)
        self._wide.set_followed(is_followed=is_there, problem=problem)
        return is_there

    async def _is_granted(self) -> bool:
        attributes = {"verb": "list", "group": _RESOURCE.group, "resource": _RESOURCE.plural}
        body: JsonObject = {
            "apiVersion": f"{SELF_ACCESS_REVIEWS.group}/{SELF_ACCESS_REVIEWS.version}",
            "kind": SELF_ACCESS_REVIEWS.kind,
            "spec": {"resourceAttributes": attributes},
        }
        try:
            answer = await self._rights_client.create(SELF_ACCESS_REVIEWS, "", body)
        except NotFound:
            return True  # rights cannot be checked: the list shows them
        return decode_allowed(SELF_ACCESS_REVIEWS.kind, answer)

    def _follow_kinds(self) -> ScheduleKinds:
        process = self._process
        client = process.open("following releases of the cluster", Priority.LIST)

        def follow(resource: Resource) -> FollowedKind:
            return follow_kind(
                [resource],
                client,
                lambda of: Informer(client, of, process.metrics, process.clock, process.rng),
            )

        return ScheduleKinds(
            schedules=follow(_RESOURCE),
            rollouts=follow(kinds.ROLLOUTS),
            gates=follow(kinds.ROLLOUT_GATES),
            namespaces=follow(NAMESPACES),
        )
