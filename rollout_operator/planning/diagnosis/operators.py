"""Which operators there are for a namespace, and what their arguments and variables say.

Operators are ours or grafana's, of any version: flags that are not known are passed over, which the
grammar of `config` would refuse. The variables are those of `config.environment`, which judges
their values. A variable whose value comes from elsewhere counts as given, and says nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from rollout_operator.model.diagnosis.findings import Finding, FindingCode
from rollout_operator.model.diagnosis.installation import Installation, OperatorDeployment
from rollout_operator.planning.diagnosis.remedies import make_finding
from rollout_operator.planning.wording import count, join_names

SECRET_FLAG: Final = "server-tls.self-signed-cert.secret-name"  # noqa: S105 (the name of a flag)
DEFAULT_SECRET: Final = "rollout-operator-self-signed-certificate"  # noqa: S105 (a name)
LEASE_FLAG: Final = "leader-election.lease-name"
DEFAULT_LEASE: Final = "rollout-operator"
TLS_FLAG: Final = "server-tls.enabled"
SELF_SIGNED_FLAG: Final = "server-tls.self-signed-cert.enabled"

POLICIES_FLAG: Final = "multi-az-rollouts.enabled"
RELEASES_FLAG: Final = "releases.enabled"
METADATA_FLAG: Final = "releases.metadata"
NAMES_FLAG: Final = "webhooks.ca-bundle-names"

_NAMESPACE_FLAGS: Final = ("kubernetes.namespace", "kubernetes-namespace")
_LEVEL_FLAG: Final = "log.level"
_WATCHED: Final = "WATCH_NAMESPACE"
_LEVEL: Final = "LOG_LEVEL"
_NAME: Final = "OPERATOR_NAME"
_PORT: Final = "METRICS_PORT"
# What an argument or a variable may name without saying it: a variable, an object.
_ELSEWHERE: Final = "$("
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})


def find_value(arguments: Sequence[str], flag: str) -> str | None:
    """Return the value that a flag was given last, None where it was not given.

    A flag that stands alone is `true`.
    """
    last: str | None = None
    for name, value in _list_flags(arguments):
        if name == flag:
            last = value
    return last


def is_on(arguments: Sequence[str], flag: str, *, default: bool) -> bool:
    """Return whether a boolean flag is on."""
    value = find_value(arguments, flag)
    return default if value is None else value in _TRUE


def _list_flags(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    for place, word in enumerate(arguments):
        if not word.startswith("-"):
            continue
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        following = arguments[place + 1] if place + 1 < len(arguments) else "-"
        if not equals:
            value = "true" if following.startswith("-") else following
        yield name, value


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
        yield make_finding(FindingCode.NAMESPACE_MISSING, f"Namespace {name}", "it does not exist")


def check_operator(installation: Installation) -> Iterator[Finding]:
    """Yield that groups have no operator, or that an operator is not ready.

    A process that renews the Lease acts, though it runs in no Deployment that is seen.
    """
    acting = list_acting(installation)
    groups = {f"{member.sts.group}" for member in installation.members}
    if not acting and groups and not installation.has_live_lease:
        text = f"nothing rolls out {join_names(sorted(groups))}"
        where = f"Namespace {installation.namespace}"
        yield make_finding(FindingCode.OPERATOR_MISSING, where, text)
    for operator in acting:
        if not operator.ready:
            text = f"0 of {count(operator.replicas, 'pod')} ready"
            yield make_finding(FindingCode.OPERATOR_NOT_READY, operator.title, text)


def check_count(installation: Installation) -> Iterator[Finding]:
    """Yield that more than one Deployment acts."""
    names = sorted(operator.name for operator in list_acting(installation))
    if len(names) > 1:
        text = f"{join_names(names, shown=len(names))} run an operator of this namespace"
        yield make_finding(FindingCode.TWO_OPERATORS, f"Namespace {installation.namespace}", text)


def check_lease(installation: Installation) -> Iterator[Finding]:
    """Yield that no pod here holds the Lease that says which operator acts."""
    lease = installation.lease
    if lease is None or not lease.holder:
        return
    # The name of the pod, and what distinguishes its processes.
    pod = lease.holder.rpartition("_")[0]
    if pod not in {pod.name for pod in installation.pods}:
        text = f"its holder {lease.holder} is no pod of the namespace"
        yield make_finding(FindingCode.LEASE_HOLDER_UNKNOWN, f"Lease {lease.name}", text)


def check_arguments(installation: Installation) -> Iterator[Finding]:
    """Yield arguments that do not mean what they seem to."""
    for operator in list_acting(installation):
        watched = _find_flag(operator, _NAMESPACE_FLAGS)
        if watched and _ELSEWHERE not in watched and watched != installation.namespace:
            text = f"-kubernetes.namespace={watched}"
            yield make_finding(FindingCode.OTHER_NAMESPACE_WATCHED, operator.title, text)
        names = find_value(operator.arguments, NAMES_FLAG)
        if names and not all(part.strip() for part in names.split(",")):
            text = f"-{NAMES_FLAG}={names}"
            yield make_finding(FindingCode.BUNDLE_NAME_EMPTY, operator.title, text)


def list_arguments(operator: OperatorDeployment) -> tuple[str, ...]:
    """Return the arguments of an operator, after what its environment stands in for."""
    if not _is_given(operator):
        return operator.arguments
    name = _get(operator, _NAME) or DEFAULT_LEASE
    return (f"-{POLICIES_FLAG}=true", f"-{LEASE_FLAG}={name}", *operator.arguments)


def list_watched(operator: OperatorDeployment, own: str) -> tuple[str, ...]:
    """Return the namespaces that an operator watches, as far as that is known; else its own."""
    text = "" if _find_flag(operator, _NAMESPACE_FLAGS) else _get(operator, _WATCHED)
    return tuple(dict.fromkeys(name for name in map(str.strip, text.split(",")) if name)) or (own,)


def watches(operator: OperatorDeployment, namespace: str) -> bool:
    """Return whether an operator of another namespace looks after this, as its variable says."""
    text = operator.variables.get(_WATCHED)
    if text is None or _ELSEWHERE in text or _find_flag(operator, _NAMESPACE_FLAGS):
        return False
    return not text.strip() or namespace in list_watched(operator, "")


def check_overruled(installation: Installation) -> Iterator[Finding]:
    """Yield variables in place of which a flag counts that says something else."""
    for deployment in list_acting(installation):
        for variable, flags in (
            (_WATCHED, _NAMESPACE_FLAGS),
            (_LEVEL, (_LEVEL_FLAG,)),
            (_NAME, (LEASE_FLAG,)),
        ):
            text, value = _get(deployment, variable), _find_flag(deployment, flags)
            if text and value and _ELSEWHERE not in value and value.lower() != text.lower():
                said = f"-{flags[0]}={value} counts, and not {variable}={text}"
                yield make_finding(FindingCode.VARIABLE_OVERRULED, deployment.title, said)
        if _is_given(deployment) and not is_on(deployment.arguments, POLICIES_FLAG, default=True):
            said = f"-{POLICIES_FLAG}=false counts, and not {', '.join(_list_given(deployment))}"
            yield make_finding(FindingCode.VARIABLE_OVERRULED, deployment.title, said)


def _is_given(operator: OperatorDeployment) -> bool:
    return any(_list_given(operator))


def _list_given(operator: OperatorDeployment) -> Iterator[str]:
    """Yield the variables that are given; that of namespaces counts where it is empty as well."""
    for name in (_WATCHED, _LEVEL, _NAME, _PORT):
        text = operator.variables.get(name)
        if text is not None and (text.strip() or name == _WATCHED):
            yield name


def _get(operator: OperatorDeployment, name: str) -> str:
    """Return the value of a variable, empty where it is not known."""
    text = operator.variables.get(name, "").strip()
    return "" if _ELSEWHERE in text else text


def _find_flag(operator: OperatorDeployment, flags: Sequence[str]) -> str | None:
    values = (find_value(operator.arguments, flag) for flag in flags)
    return next((value for value in values if value is not None), None)
