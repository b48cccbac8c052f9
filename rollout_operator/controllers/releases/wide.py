"""HealthChecks of all namespaces, for Rollouts that select namespaces: followed if needed.

A process has one of these for all its namespaces. Unused, it costs no request.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import NoReturn

from rollout_operator.aio.clock import Clock
from rollout_operator.controllers.releases.caches import MakeInformer, follow_kind
from rollout_operator.kube.api import NAMESPACES, Reader
from rollout_operator.kube.cache.followed import FollowedKind, OnWatched
from rollout_operator.kube.release_kinds import HEALTH_CHECKS
from rollout_operator.model.errors import Unreachable
from rollout_operator.model.objects import list_decoded
from rollout_operator.model.releases.health import HealthCheck
from rollout_operator.model.releases.rollout import LabelledNamespace
from rollout_operator.planning.rollout.zones import SNAPSHOT_LIMIT


class WideChecks:
    """All HealthChecks of a cluster, and the labels of its namespaces."""

    def __init__(self, checks: FollowedKind, namespaces: FollowedKind) -> None:
        self._kinds = (checks, namespaces)
        self._checks = checks
        self._namespaces = namespaces
        self._wanted = asyncio.Event()

    def find_problem(self) -> str | None:
        """Say why they may not be read; None where they may. Raises Unreachable until it is known.

        They are followed from the first call on.
        """
        self._wanted.set()
        for kind in self._kinds:
            if kind.is_forbidden:
                return f"HealthChecks of other namespaces: {kind.lack}"
            if kind.lack is not None:
                raise Unreachable(f"HealthChecks of other namespaces: {kind.lack}")
            if kind.age > SNAPSHOT_LIMIT:
                raise Unreachable(f"{kind.kind}: the cache of all namespaces is too old")
        return None

    def list_checks(self) -> tuple[HealthCheck, ...]:
        """Return the HealthChecks of all namespaces."""
        return list_decoded(self._checks.store.list_all(), HealthCheck)

    def map_labels(self) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of all namespaces, by their names."""
        namespaces = list_decoded(self._namespaces.store.list_all(), LabelledNamespace)
        return {namespace.head.name: namespace.labels for namespace in namespaces}

    def on_change(self, on_check: OnWatched, on_all: Callable[[], None]) -> None:
        """Call back with a HealthCheck that changed, or where any of them may have come or gone."""
        self._checks.on_change(on_check)
        self._namespaces.on_change(lambda old, new: on_all())
        for kind in self._kinds:
            kind.on_news(on_all)

    async def run(self, clock: Clock) -> NoReturn:
        """Wait until they are needed, then follow them until cancelled."""
        await self._wanted.wait()
        async with asyncio.TaskGroup() as tasks:
            for kind in self._kinds:
                tasks.create_task(kind.run(clock), name=f"{kind.kind} informer of the cluster")
        raise AssertionError("a followed kind runs until it is cancelled")


def build_wide_checks(client: Reader, make_informer: MakeInformer) -> WideChecks:
    """Return the HealthChecks of all namespaces, followed by this client."""
    return WideChecks(
        follow_kind([HEALTH_CHECKS], client, make_informer),
        follow_kind([NAMESPACES], client, make_informer),
    )
