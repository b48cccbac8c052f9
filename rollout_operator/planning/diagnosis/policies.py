"""Whether MultiAZRollouts are obeyed, and which of them are refused.

What a policy owns, and for what it is refused, is decided in `planning.policies`, as by the
operator itself.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from rollout_operator.model.diagnosis.findings import Finding, FindingCode
from rollout_operator.model.diagnosis.installation import Installation, OperatorDeployment
from rollout_operator.model.names import ON_DELETE
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.policy.policy import PolicyOwnership
from rollout_operator.planning.diagnosis.operators import (
    POLICIES_FLAG,
    is_on,
    list_acting,
    list_arguments,
    list_watched,
)
from rollout_operator.planning.diagnosis.remedies import make_finding
from rollout_operator.planning.policies.ownership import share_sets
from rollout_operator.planning.policies.zones import needs_nodes
from rollout_operator.planning.wording import join_names, verb

_KIND: Final = "MultiAZRollout"
_VERSION: Final = "v1alpha1"


def obeys(installation: Installation) -> bool:
    """Return whether an operator here is to obey policies."""
    return bool(_list_obeying(list_acting(installation)))


def _list_obeying(operators: Sequence[OperatorDeployment]) -> Sequence[OperatorDeployment]:
    return [
        operator
        for operator in operators
        if is_on(list_arguments(operator), POLICIES_FLAG, default=False)
    ]


def check_kind(installation: Installation) -> Iterator[Finding]:
    """Yield that the API server does not know the kind that is to be obeyed."""
    kind = installation.policy_kind
    if kind.is_served or not obeys(installation):
        return
    text = "the API server does not know the kind"
    if kind.versions:
        text = f"the API server knows {join_names(kind.versions)} of it, and not {_VERSION}"
    yield make_finding(FindingCode.POLICY_KIND_MISSING, _KIND, text)


def check_obeyed(installation: Installation) -> Iterator[Finding]:
    """Yield that policies are here, and that no operator looks after them.

    An operator that may not be seen, in another namespace or on a person's machine, shows in what
    it has written into their status.
    """
    names = [policy.head.name for policy in installation.policies]
    here = installation.namespace
    watching = [
        operator
        for operator in list_acting(installation)
        # Those of other namespaces are read only where they watch this.
        if operator.namespace or here in list_watched(operator, here)
    ]
    title, problem = f"Namespace {here}", "seen by no operator that obeys policies"
    if watching:
        if _list_obeying(watching):
            return
        title, problem = watching[0].title, "passed over"
    else:
        names = [name for name in names if name in installation.unobeyed]
    if names:
        text = f"{join_names(names)} {verb(len(names), 'is', 'are')} {problem}"
        yield make_finding(FindingCode.POLICIES_NOT_OBEYED, title, text)


def check_accepted(installation: Installation) -> Iterator[Finding]:
    """Yield the policies that are refused, with all that is wrong with each."""
    for policy in _share(installation).refused:
        text = "; ".join(refusal.text for refusal in policy.refusals)
        yield make_finding(FindingCode.POLICY_REFUSED, f"{_KIND} {policy.head.name}", text)


def check_strategies(installation: Installation) -> Iterator[Finding]:
    """Yield StatefulSets of policies, of no group, that Kubernetes replaces the pods of."""
    for scope in _share(installation).scopes:
        own = [
            member
            for member in scope.sets
            if isinstance(member, StatefulSet) and member.group is None
        ]
        for sts in own:
            if sts.strategy != ON_DELETE and not scope.policy.may_switch_strategy:
                text = f"its update strategy is {sts.strategy}"
                yield make_finding(FindingCode.NOT_ON_DELETE, f"StatefulSet {sts.name}", text)


def reads_nodes(installation: Installation) -> bool:
    """Return whether a policy has StatefulSets whose zones only nodes know."""
    placed = {sts.sts.name: sts.placed for sts in installation.sets}
    for scope in _share(installation).scopes:
        own = [placed.get(sts.name) for sts in scope.sets]
        if needs_nodes(scope.policy, [member for member in own if member is not None], {}):
            return True
    return False


def _share(installation: Installation) -> PolicyOwnership:
    return share_sets(installation.policies, [sts.sts for sts in installation.sets])
