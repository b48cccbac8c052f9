"""Whether there is one operator for a namespace, and only one."""

from collections.abc import Iterator
from typing import Final

from rollout_operator.model.diagnosis.findings import Finding, FindingCode
from rollout_operator.model.diagnosis.installation import Installation, OperatorDeployment
from rollout_operator.planning.diagnosis.arguments import find_value
from rollout_operator.planning.diagnosis.remedies import find
from rollout_operator.planning.diagnosis.rights import NAMES_FLAG
from rollout_operator.planning.wording import count, join_names

# What a container's argument may name without saying it: a variable of its environment.
_VARIABLE: Final = "$("


def list_acting(installation: Installation) -> tuple[OperatorDeployment, ...]:
    """Return the Deployments whose operators may act: shadows and those without replicas do not."""
    return tuple(
        operator
        for operator in installation.operators
        if operator.replicas > 0 and find_value(operator.arguments, "mode") != "shadow"
    )


def check_namespace(installation: Installation) -> Iterator[Finding]:
    """Yield that the namespace does not exist."""
    if installation.namespace_labels is None:
        name = installation.namespace
        yield find(FindingCode.NAMESPACE_MISSING, f"Namespace {name}", "it does not exist")


def check_operator(installation: Installation) -> Iterator[Finding]:
    """Yield that groups have no operator, or that an operator is not ready."""
    acting = list_acting(installation)
    groups = {f"{member.sts.group}" for member in installation.members}
    if not acting and groups:
        text = f"nothing rolls out {join_names(sorted(groups))}"
        where = f"Namespace {installation.namespace}"
        yield find(FindingCode.OPERATOR_MISSING, where, text)
    for operator in acting:
        if not operator.ready:
            text = f"0 of {count(operator.replicas, 'pod')} ready"
            yield find(FindingCode.OPERATOR_NOT_READY, operator.title, text)


def check_count(installation: Installation) -> Iterator[Finding]:
    """Yield that more than one Deployment acts."""
    names = sorted(operator.name for operator in list_acting(installation))
    if len(names) > 1:
        text = f"{join_names(names, shown=len(names))} run an operator of this namespace"
        yield find(FindingCode.TWO_OPERATORS, f"Namespace {installation.namespace}", text)


def check_lease(installation: Installation) -> Iterator[Finding]:
    """Yield that no pod here holds the Lease that says which operator acts."""
    lease = installation.lease
    if lease is None or not lease.holder:
        return
    # The name of the pod, and what distinguishes its processes.
    pod = lease.holder.rpartition("_")[0]
    if pod not in {pod.name for pod in installation.pods}:
        text = f"its holder {lease.holder} is no pod of the namespace"
        yield find(FindingCode.LEASE_HOLDER_UNKNOWN, f"Lease {lease.name}", text)


def check_arguments(installation: Installation) -> Iterator[Finding]:
    """Yield arguments that do not mean what they seem to."""
    for operator in list_acting(installation):
        watched = find_value(operator.arguments, "kubernetes.namespace")
        if watched is None:
            watched = find_value(operator.arguments, "kubernetes-namespace") or ""
        if watched and _VARIABLE not in watched and watched != installation.namespace:
            text = f"-kubernetes.namespace={watched}"
            yield find(FindingCode.OTHER_NAMESPACE_WATCHED, operator.title, text)
        names = find_value(operator.arguments, NAMES_FLAG)
        if names and not all(part.strip() for part in names.split(",")):
            text = f"-{NAMES_FLAG}={names}"
            yield find(FindingCode.BUNDLE_NAME_EMPTY, operator.title, text)
