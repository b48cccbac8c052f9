"""What the environment of an operator's container stands in for, and where flags beat it.

The variables are those of `config.environment`, which judges their values. A variable whose value
comes from elsewhere counts as given, and says nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from rollout_operator.model.diagnosis.findings import Finding, FindingCode
from rollout_operator.model.diagnosis.installation import Installation, OperatorDeployment
from rollout_operator.planning.diagnosis.arguments import find_value, is_on
from rollout_operator.planning.diagnosis.operators import list_acting
from rollout_operator.planning.diagnosis.remedies import find
from rollout_operator.planning.diagnosis.rights import DEFAULT_LEASE, LEASE_FLAG, POLICIES_FLAG

_WATCHED: Final = "WATCH_NAMESPACE"
_NAMESPACE_FLAGS: Final = ("kubernetes.namespace", "kubernetes-namespace")
_LEVEL: Final = "LOG_LEVEL"
_LEVEL_FLAG: Final = "log.level"
_NAME: Final = "OPERATOR_NAME"
_PORT: Final = "METRICS_PORT"
_ELSEWHERE: Final = "$("


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
                yield find(FindingCode.VARIABLE_OVERRULED, deployment.title, said)
        if _is_given(deployment) and not is_on(deployment.arguments, POLICIES_FLAG, default=True):
            said = f"-{POLICIES_FLAG}=false counts, and not {', '.join(_list_given(deployment))}"
            yield find(FindingCode.VARIABLE_OVERRULED, deployment.title, said)


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
