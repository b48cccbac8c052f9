"""Whether a pod that a MultiAZRollout replaces may go now, and what has to happen first.

Which pods go is decided in `planning.policies`; an answer has the words of a label group's.
"""

from dataclasses import replace

from rollout_operator.model.description import Explanation
from rollout_operator.model.group import Group
from rollout_operator.model.outcome import Code, Plan, Reason
from rollout_operator.model.policy.plan import PolicyPlan
from rollout_operator.planning.description.explain import explain_pod, explain_set
from rollout_operator.planning.wording import join_names, verb


def explain_driven_pod(
    group: Group, plan: PolicyPlan, policy: str, name: str
) -> Explanation | None:
    """Return whether a pod goes now; None where the policy has no such pod and wants none.

    `group` has all StatefulSets of the policy, `policy` is its namespace and name.
    """
    owners = (zone.sts.name for zone in group.zones if zone.sts.ordinal_of(name) is not None)
    owner = next(owners, None)
    if owner is None:
        return None
    return explain_pod(replace(group, driver=policy), _convert_plan(group, plan, owner), name)


def explain_driven_set(
    group: Group, plan: PolicyPlan, policy: str, name: str
) -> Explanation | None:
    """Return whether pods of a StatefulSet go now; None where the policy does not own it."""
    return explain_set(replace(group, driver=policy), _convert_plan(group, plan, name), name)


def _convert_plan(group: Group, plan: PolicyPlan, set_name: str) -> Plan:
    """Return the plan of a policy as that of a group, with the zones before a StatefulSet's."""
    waits = [wait for wait in plan.waits if wait.code is not Code.UP_TO_DATE]
    home = next((zone for zone in plan.zones if any(s.name == set_name for s in zone.sets)), None)
    if home is not None:
        before = [
            zone.name
            for zone in plan.zones[: plan.zones.index(home)]
            if any(counts.outdated and not counts.is_paused for counts in zone.sets)
        ]
        if before:
            text = f"{join_names(before)} {verb(len(before), 'has', 'have')} outdated pods"
            waits.append(Reason(Code.ANOTHER_ZONE_FIRST, f"{text}, which go first"))
    actions = () if plan.action is None else (plan.action,)
    return Plan(group=group.name, actions=actions, waits=tuple(waits))
