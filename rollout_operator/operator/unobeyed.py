"""Say of MultiAZRollouts that this operator does not obey them, while they are switched off.

Their kind may be installed, and a policy be applied, long before the flag is set: nothing would
happen, and nobody would say so. Without the right to list them nothing is said.
"""

from collections.abc import Callable, Set
from datetime import timedelta
from typing import Final, NoReturn

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import TaskStack
from rollout_operator.kube.api import (
    MULTI_AZ_ROLLOUTS,
    SELF_ACCESS_REVIEWS,
    ApiClient,
    JsonObject,
    Reader,
)
from rollout_operator.kube.client.rate_limit import Priority
from rollout_operator.model.decode.objects import read_as
from rollout_operator.model.decode.registrations import decode_allowed
from rollout_operator.model.decode.wire import WirePlaced
from rollout_operator.model.errors import ApiError, DecodeError
from rollout_operator.model.event import EventAction, EventKind, EventRecord, ObjectEvent, Regarding
from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.model.reasons.remedies import REMEDIES
from rollout_operator.operator.budgets import Budgets
from rollout_operator.operator.context import Context
from rollout_operator.operator.process import Feature
from rollout_operator.planning.wording import camel_case, join_names
from rollout_operator.telemetry.logs import log

# A person who waits for a policy looks at it sooner; the requests are few.
EVERY: Final = timedelta(minutes=5)
IF_DENIED: Final = timedelta(hours=1)
# Of more policies the first say enough.
MOST: Final = 20
_POLICY: Final = msgspec.json.Decoder(WirePlaced)
NOTE: Final = f"this operator obeys no MultiAZRollouts: {REMEDIES[Code.POLICY_NOT_OBEYED]}"


class UnobeyedPolicies(Feature):
    """Reports the policies of one namespace, in the process that acts."""

    def __init__(self, context: Context, budgets: Budgets) -> None:
        self._context = context
        self._client = context.open("finding policies", Priority.LIST)

    @property
    def busy(self) -> int:
        """Return that nothing is being reconciled."""
        return 0

    def start(self, tasks: TaskStack) -> None:
        """Begin to look for policies."""
        context = self._context
        report = context.events.report
        looking = report_unobeyed(self._client, context.namespace, report, context.clock)
        tasks.start("policies that are not obeyed", looking)

    def close(self) -> None:
        """Go on: it ends with the other tasks."""

    async def finish(self) -> None:
        """Wait for nothing: a report is no work that is left unfinished."""


async def report_unobeyed(
    client: ApiClient, namespace: str, report: Callable[[EventRecord], None], clock: Clock
) -> NoReturn:
    """Report each policy once, now and then looking for more, until cancelled."""
    reported: Set[str] = frozenset()
    while True:
        wait = EVERY
        try:
            if await _may_list(client, namespace):
                reported = await _report_new(client, namespace, report, reported)
            else:
                wait = IF_DENIED
        except (ApiError, DecodeError) as error:
            # Mostly the kind is not installed.
            log.debug("Found no MultiAZRollouts", err=error)
        await clock.sleep(wait)


async def _may_list(client: ApiClient, namespace: str) -> bool:
    """Return whether we have the right, which is asked for: a request is not denied."""
    right = {
        "verb": "list",
        "group": MULTI_AZ_ROLLOUTS.group,
        "resource": MULTI_AZ_ROLLOUTS.plural,
        "namespace": namespace,
    }
    review: JsonObject = {
        "apiVersion": f"{SELF_ACCESS_REVIEWS.group}/{SELF_ACCESS_REVIEWS.version}",
        "kind": SELF_ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": right},
    }
    body = await client.create(SELF_ACCESS_REVIEWS, "", review)
    return decode_allowed(SELF_ACCESS_REVIEWS.kind, body)


async def _report_new(
    client: Reader, namespace: str, report: Callable[[EventRecord], None], reported: Set[str]
) -> Set[str]:
    """Report the policies that have not been; return those that are there, by UID."""
    # Not at version 0, where the API server knows no limit.
    page = await client.fetch_page(MULTI_AZ_ROLLOUTS, namespace, limit=MOST)
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
