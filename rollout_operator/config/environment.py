"""The settings of the environment: `WATCH_NAMESPACE`, `LOG_LEVEL`, `OPERATOR_NAME`, `METRICS_PORT`.

Decides what each variable means, and what holds for the others where one of them is given: a flag
beats a variable, a variable beats a default. Without any of them everything is left to the flags.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.errors import ConfigError
from rollout_operator.model.names import FIELD_MANAGER
from rollout_operator.model.outcome import Severity
from rollout_operator.model.units import quote

WATCH_NAMESPACE: Final = "WATCH_NAMESPACE"
LOG_LEVEL: Final = "LOG_LEVEL"
OPERATOR_NAME: Final = "OPERATOR_NAME"
METRICS_PORT: Final = "METRICS_PORT"
POD_NAMESPACE: Final = "POD_NAMESPACE"

DEFAULT_LEVEL: Final = Severity.INFO.value
DEFAULT_PORT: Final = 8080
_PORTS: Final = range(1024, 65536)
# Also the pattern of a DNS label, which a namespace and a name of the operator have to be.
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the variables, and where the operator itself runs."""

    is_given: bool = False
    """Whether any of the variables is given: the others have their own defaults then."""
    watched: tuple[str, ...] | None = None
    """The namespaces to watch, all if empty; None leaves that to the flag."""
    log_level: str = ""
    operator_name: str = FIELD_MANAGER
    metrics_port: int = 0
    """A second port with `/metrics`; 0 for none."""
    is_port_chosen: bool = False
    """Whether a variable names the port: a port that is taken is an error then."""
    own_namespace: str = ""
    """Where the operator runs, as far as that is known."""
    warnings: tuple[str, ...] = ()


NOTHING: Final = Environment()


def read_environment(variables: Mapping[str, str], mounted_namespace: str = "") -> Environment:
    """Return the settings of the variables. Raises ConfigError that names variable and value.

    `mounted_namespace` is that of the service account, as the kubelet writes it.
    """
    is_given = WATCH_NAMESPACE in variables or any(
        variables.get(name, "").strip() for name in (LOG_LEVEL, OPERATOR_NAME, METRICS_PORT)
    )
    own = variables.get(POD_NAMESPACE, "").strip() or mounted_namespace.strip()
    if not is_given:
        return replace(NOTHING, own_namespace=own)
    level, warnings = _read_level(variables.get(LOG_LEVEL, "").strip())
    port = variables.get(METRICS_PORT, "").strip()
    return Environment(
        is_given=True,
        watched=_read_namespaces(variables.get(WATCH_NAMESPACE, "")),
        log_level=level,
        operator_name=_read_name(variables.get(OPERATOR_NAME, "").strip()),
        metrics_port=_read_port(port) if port else DEFAULT_PORT,
        is_port_chosen=bool(port),
        own_namespace=own,
        warnings=warnings,
    )


def is_label(text: str) -> bool:
    """Return whether it is a DNS label, as the name of a namespace is."""
    return _LABEL.fullmatch(text) is not None


def _read_namespaces(text: str) -> tuple[str, ...]:
    """Return each name once, in the order given."""
    names = tuple(dict.fromkeys(name for name in map(str.strip, text.split(",")) if name))
    for name in names:
        if not is_label(name):
            raise ConfigError(f"{WATCH_NAMESPACE}: {quote(name)} is not a name of a namespace")
    return names


def _read_level(text: str) -> tuple[str, tuple[str, ...]]:
    level = text.lower() or DEFAULT_LEVEL
    if level in tuple(Severity):
        return level, ()
    levels = ", ".join(Severity)
    return DEFAULT_LEVEL, (
        f"{LOG_LEVEL}: {quote(text)} is none of {levels}: {DEFAULT_LEVEL} is used",
    )


def _read_name(text: str) -> str:
    name = text or FIELD_MANAGER
    if not is_label(name):
        raise ConfigError(
            f"{OPERATOR_NAME}: {quote(name)} is not a DNS label: at most 63 characters, a-z, 0-9"
            " and -, neither first nor last a -"
        )
    return name


def _read_port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdigit() and len(text) <= len("65535") else 0
    if port not in _PORTS:
        raise ConfigError(
            f"{METRICS_PORT}: {quote(text)} is not a port from {_PORTS[0]} to {_PORTS[-1]}"
        )
    return port
