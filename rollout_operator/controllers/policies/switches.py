"""Switch StatefulSets of a policy to OnDelete, where the policy says so (MAZ-27)."""

from rollout_operator.controllers.retries import Attempts, get_retry_after
from rollout_operator.kube.api import STATEFULSETS, JsonObject, Patcher
from rollout_operator.model.errors import ApiError, Conflict
from rollout_operator.model.group import Group
from rollout_operator.model.names import ON_DELETE
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.policy.policy import Policy
from rollout_operator.planning.policies.strategies import list_switchable
from rollout_operator.telemetry.logs import log


class Switches:
    """Writes update strategies; a write that failed is tried again, ever more rarely."""

    def __init__(self, client: Patcher, attempts: Attempts) -> None:
        self._client = client
        self._attempts = attempts

    async def switch(self, policy: Policy, group: Group) -> None:
        """Switch the sets that may be switched now, each in the version of the decision."""
        if not policy.may_switch_strategy:
            return
        for sts in list_switchable(group):
            attempt = ("switch", sts.uid)
            wait, _ = self._attempts.wait_before(attempt)
            if not wait:
                await self._try(policy, sts, attempt)

    async def _try(self, policy: Policy, sts: StatefulSet, attempt: tuple[str, ...]) -> None:
        log.info("Switching update strategy", policy=policy.head.key, zone=sts.name, to=ON_DELETE)
        head: JsonObject = {"uid": sts.uid, "resourceVersion": sts.resource_version}
        strategy: JsonObject = {"type": ON_DELETE, "rollingUpdate": None}
        patch: JsonObject = {"metadata": head, "spec": {"updateStrategy": strategy}}
        try:
            await self._client.patch(STATEFULSETS, sts.namespace, sts.name, patch)
        except ApiError as error:
            self._attempts.record_failure(attempt, str(error), at_least=get_retry_after(error))
            write_log = log.debug if isinstance(error, Conflict) else log.warn
            write_log("Update strategy not switched", zone=sts.name, err=error)
        else:
            self._attempts.record_success(attempt)
