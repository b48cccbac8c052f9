"""Load health checks between zones once a StatefulSet is bound to one, for each namespace.

Most operators never need them: they would follow a kind that the cluster does not have, by a right
that they were not given. Until the kind is known, a zone that is bound to a health check waits.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from rollout_operator.aio.queue import AT_ONCE
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.context import Context, Feature
from rollout_operator.kube.api import SECRETS
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.model.names import HEALTH_CHECK, Uid
from rollout_operator.model.objects import AnySet, Group, HealthGate, StatefulSet
from rollout_operator.planning.readiness import order_zones

if TYPE_CHECKING:
    from rollout_operator.controllers.policies import PolicyController
    from rollout_operator.controllers.rollout import RolloutController
    from rollout_operator.controllers.shadow import ShadowController
    from rollout_operator.gates.controller import Asks, HealthCheckController
    from rollout_operator.outbound import Outbound


class HealthGates(Feature):
    def __init__(
        self,
        context: Context,
        rollouts: "RolloutController | ShadowController",
        policies: "PolicyController | None",
    ) -> None:
        self._context, self._rollouts, self._policies = context, rollouts, policies
        self._loaded: HealthCheckController | None = None
        self._following: TaskStack | None = None
        self._acting: TaskStack | None = None
        self._outbound: Outbound | None = None
        self.asker: Asks | None = None
        """Answers instead of servers, where there are none."""
        context.find_gates = self._judge
        context.set_informer.on_change(self._on_set)

    @property
    def busy(self) -> int:
        return 0 if self._loaded is None else self._loaded.busy

    def follow(self, tasks: TaskStack) -> None:
        self._following = tasks
        if self._loaded is not None:
            self._follow(self._loaded, tasks)

    def start(self, tasks: TaskStack) -> None:
        self._acting = tasks
        if self._loaded is not None:
            self._loaded.start(tasks)

    def close(self) -> None:
        if self._loaded is not None:
            self._loaded.close()

    async def finish(self) -> None:
        if self._loaded is not None:
            await self._loaded.finish()

    def _on_set(self, old: AnySet | None, new: AnySet | None) -> None:
        if isinstance(new, StatefulSet) and new.annotations.get(HEALTH_CHECK):
            self._load()

    def _judge(self, group: Group) -> Mapping[Uid, HealthGate]:
        if not any(zone.sts.annotations.get(HEALTH_CHECK) for zone in group.zones):
            return {}
        return self._load().judge(group)

    def _load(self) -> "HealthCheckController":
        if self._loaded is None:
            self._loaded = self._build()
            if self._following is not None:
                self._follow(self._loaded, self._following)
            if self._acting is not None and not self._context.is_stopping:
                self._loaded.start(self._acting)
        return self._loaded

    def _follow(self, loaded: "HealthCheckController", tasks: TaskStack) -> None:
        loaded.follow(tasks)
        tasks.start("connections of health checks", self._keep_connections())

    async def _keep_connections(self) -> NoReturn:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            if self._outbound is not None:
                await self._outbound.close()
        raise AssertionError("it waits until it is cancelled")

    def _open_outbound(self) -> "Outbound":
        from rollout_operator.gates.prometheus import AT_MOST, LIMIT
        from rollout_operator.kube.connection import choose_proxy
        from rollout_operator.outbound import Outbound

        if (opened := self._context.process.clients.open_outbound) is not None:
            return opened(LIMIT)
        return Outbound(
            LIMIT,
            lambda url: choose_proxy(url, os.environ),
            at_most=AT_MOST,
            # A Service of a tenant may be a name for any place.
            may_be_own=bool(self._context.settings.allowed_urls),
        )

    def _open_asker(self) -> "Asks":
        from rollout_operator.gates.prometheus import AllowedUrls, Asker

        reading = self._context.open("reading Secrets of health checks", Priority.READ)
        self._outbound = self._open_outbound()
        return Asker(
            self._outbound,
            lambda namespace, name: reading.fetch(SECRETS, namespace, name),
            AllowedUrls(self._context.settings),
        )

    def _build(self) -> "HealthCheckController":
        # Imported here, with the HTTP client: most operators never need them.
        from rollout_operator.gates.controller import GroupSource, HealthCheckController
        from rollout_operator.gates.plan import find_name

        context, asker = self._context, self.asker or self._open_asker()
        rollouts, policies = self._rollouts, self._policies
        observer = context.make_observer(context.following)

        def list_bound(check: str) -> list[StatefulSet]:
            sets = [sts for sts in context.sets.list_all() if isinstance(sts, StatefulSet)]
            return [sts for sts in sets if find_name(sts) == check]

        def observe(check: str) -> Iterator[Group]:
            bound = list_bound(check)
            for name in {sts.group for sts in bound if sts.group is not None}:
                group = observer.observe(name)
                # Under a policy, known or not yet, its records are those of the policy's group.
                if group.driver is None:
                    yield replace(group, zones=order_zones(group.zones))
            if policies is not None:
                yield from policies.observe(sts.uid for sts in bound)

        def wake(check: str) -> None:
            bound = list_bound(check)
            for name in {sts.group for sts in bound if sts.group is not None}:
                rollouts.waker.add(name, AT_ONCE)
            if policies is not None:
                policies.wake(sts.uid for sts in bound)

        groups = GroupSource(observe=observe, wake=wake)
        found = HealthCheckController(context, asker, groups)
        if policies is not None:
            policies.on_order(found.wake_all)
        return found
