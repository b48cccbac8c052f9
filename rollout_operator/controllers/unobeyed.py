"""Warn of MultiAZRollouts where their flag is not set.

Such a policy would wait for ever, silently: each is reported once, in log and Events.
"""

from collections.abc import Set
from datetime import timedelta
from typing import Final, NoReturn

import msgspec

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.context import Context, Feature
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.model.budget import EventAction, EventKind, ObjectEvent, Regarding
from rollout_operator.model.decode.objects import read_as
from rollout_operator.model.decode.wire import WirePlaced
from rollout_operator.model.names import ApiError, DecodeError, Denied, Uid
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.planning.wording import camel_case, join_names
from rollout_operator.telemetry.logs import log

# A person who waits for a policy looks at it sooner; the requests are few.
_EVERY: Final = timedelta(minutes=5)
_IF_DENIED: Final = timedelta(hours=1)
# Of more policies the first say enough.
_MOST: Final = 20
_UNOBEYED: Final = ObjectEvent(
    reason=camel_case(Code.POLICY_NOT_OBEYED),
    note=f"this operator obeys no MultiAZRollouts: {Code.POLICY_NOT_OBEYED.remedy}",
    severity=Severity.WARN,
)
_POLICY: Final = msgspec.json.Decoder(WirePlaced)


class UnobeyedPolicies(Feature):
    def __init__(self, context: Context, budgets: object) -> None:
        self._context = context
        self._client = context.open("finding policies", Priority.LIST)
        self._reported: Set[str] = frozenset()
        """By UID, those that exist."""

    def start(self, tasks: TaskStack) -> None:
        tasks.start("policies that are not obeyed", self._look())

    async def _look(self) -> NoReturn:
        wait = _EVERY
        while True:
            try:
                await self._report_new()
                wait = _EVERY
            except Denied as error:
                # A Role of grafana/rollout-operator, which works without this right.
                if wait is _EVERY:
                    log.debug("May not list MultiAZRollouts", err=error)
                wait = _IF_DENIED
            except (ApiError, DecodeError) as error:
                wait = _EVERY  # mostly the kind is not installed
                log.debug("Found no MultiAZRollouts", err=error)
            await self._context.clock.sleep(wait)

    async def _report_new(self) -> None:
        # Not at version 0, where the API server ignores the limit.
        namespace = self._context.namespace
        page = await self._client.fetch_page(MULTI_AZ_ROLLOUTS, namespace, limit=_MOST)
        found = [read_as(MULTI_AZ_ROLLOUTS.kind, raw, _POLICY).metadata for raw in page.items]
        new = [policy for policy in found if policy.uid not in self._reported]
        if new:
            names = join_names([policy.name for policy in new])
            log.warn("Obeying no MultiAZRollouts", policies=names, reason=Code.POLICY_NOT_OBEYED)
        for policy in new:
            regarding = Regarding(EventKind.POLICY, policy.namespace, policy.name, Uid(policy.uid))
            self._context.events.report(_UNOBEYED.record(regarding, EventAction.WAIT))
        self._reported = {policy.uid for policy in found}
