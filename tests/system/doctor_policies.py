"""What `doctor` finds of MultiAZRollouts on the real control plane: a part of its one world."""

from collections.abc import Awaitable, Callable
from typing import Final

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS
from rollout_operator.model.diagnosis import Diagnosis, FindingCode
from tests.world.api import DEPLOYMENTS, Resource
from tests.world.world import World

OPERATOR: Final = "rollout-operator"
POLICIES: Final = Resource("rollout.grafana.com/v1alpha1", MULTI_AZ_ROLLOUTS.plural)
ONLY_ONE: Final = {"key": "name", "operator": "In", "values": ["zone-a"]}

Find = Callable[..., Awaitable[Diagnosis]]
"""Reads until findings of these codes are there."""


async def provoke_policies(world: World, find: Find) -> None:
    """A MultiAZRollout over half a group, which nothing obeys, then one without rights."""
    args = "/spec/template/spec/containers/0"
    selector = {"matchLabels": {"rollout-group": "ingester"}, "matchExpressions": [ONLY_ONE]}
    body = {"apiVersion": POLICIES.api_version, "kind": MULTI_AZ_ROLLOUTS.kind}
    spec = {"statefulSetSelector": selector}
    await world.post(POLICIES, {**body, "metadata": {"name": "half"}, "spec": spec})
    await find(FindingCode.POLICIES_NOT_OBEYED, FindingCode.POLICY_REFUSED)
    level = [{"name": "LOG_LEVEL", "value": "info"}]
    steps = [{"op": "add", "path": f"{args}/env", "value": level}]
    before = (await world.get(DEPLOYMENTS, OPERATOR))["spec"]["template"]["spec"]["containers"][0]
    await world.patch(DEPLOYMENTS, OPERATOR, steps, kind="json")
    found = await find(FindingCode.RIGHT_MISSING)
    assert not found.has(FindingCode.POLICIES_NOT_OBEYED)
    assert any("multiazrollouts" in one.text for one in found.findings), found
    await world.patch(
        DEPLOYMENTS, OPERATOR, [{"op": "replace", "path": args, "value": before}], kind="json"
    )
    await world.delete(POLICIES, "half")
