"""Warn of MultiAZRollouts where their flag is not set.

Such a policy would wait for ever, silently: each is reported once, in log and Events.
"""

from collections.abc import Callable, Set
from datetime import timedelta
from typing import Final, NoReturn

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.controllers.context import Context, Feature
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, Reader
from rollout_operator.kube.rate_limit import Priority
from rollout_operator.model.budget import (
    EventAction,
    EventKind,
    EventRecord,
    ObjectEvent,
    Regarding,
)
from rollout_operator.model.decode.objects import read_as
from rollout_operator.model.decode.wire import WirePlaced
from rollout_operator.model.names import ApiError, DecodeError, Denied, Uid
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.planning.wording import camel_case, join_names
from rollout_operator.telemetry.logs import log

# A person who waits for a policy looks at it sooner; the requests are few.
EVERY: Final = timedelta(minutes=5)
_IF_DENIED: Final = timedelta(hours=1)
# Of more policies the first say enough.
MOST: Final = 20
NOTE: Final = f"this operator obeys no MultiAZRollouts: {Code.POLICY_NOT_OBEYED.remedy}"
_POLICY: Final = msgspec.json.Decoder(WirePlaced)


class UnobeyedPolicies(Feature):
    """Warns of MultiAZRollouts while their flag is not set."""

    def __init__(self, context: Context, budgets: object) -> None:
        self._context = context
        self._client = context.open("finding policies", Priority.LIST)

    def start(self, tasks: TaskStack) -> None:
        context = self._context
        looking = report_unobeyed(
            self._client, context.namespace, context.events.report, context.clock
        )
        tasks.start("policies that are not obeyed", looking)


async def report_unobeyed(
    reader: Reader, namespace: str, report: Callable[[EventRecord], None], clock: Clock
) -> NoReturn:
    """Report each policy once, looking for new ones until cancelled."""
    reported: Set[str] = frozenset()
    wait = EVERY
    while True:
        try:
            reported = await _report_new(reader, namespace, report, reported)
            wait = EVERY
        except Denied as error:
            # A Role of grafana/rollout-operator, which works without this right.
            if wait is EVERY:
                log.debug("May not list MultiAZRollouts", err=error)
            wait = _IF_DENIED
        except (ApiError, DecodeError) as error:
            wait = EVERY  # mostly the kind is not installed
            log.debug("Found no MultiAZRollouts", err=error)
        await clock.sleep(wait)


async def _report_new(
    reader: Reader, namespace: str, report: Callable[[EventRecord], None], reported: Set[str]
) -> Set[str]:
    """Report the policies that are new; return the UIDs of all that exist."""
    # Not at version 0, where the API server ignores the limit.
    page = await reader.fetch_page(MULTI_AZ_ROLLOUTS, namespace, limit=MOST)
    found = [read_as(MULTI_AZ_ROLLOUTS.kind, raw, _POLICY).metadata for raw in page.items]
    new = [policy for policy in found if policy.uid not in reported]
    if new:
        names = join_names([policy.name for policy in new])
        log.warn("Obeying no MultiAZRollouts", policies=names, reason=Code.POLICY_NOT_OBEYED)
    for policy in new:
        regarding = Regarding(EventKind.POLICY, policy.namespace, policy.name, Uid(policy.uid))
        event = ObjectEvent(
            reason=camel_case(Code.POLICY_NOT_OBEYED), note=NOTE, severity=Severity.WARN
        )
        report(event.record(regarding, EventAction.WAIT))
    return {policy.uid for policy in found}
