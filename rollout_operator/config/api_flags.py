"""Flags that say where the API server is, and how many requests it gets."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from rollout_operator.config.grammar import DURATION, FLOAT, INT, TEXT, flag

UNLIMITED: Final = timedelta.max
"""The limit for `-kubernetes.client-timeout=0`."""
TIMEOUT: Final = replace(DURATION, parse=lambda text: DURATION.parse(text) or UNLIMITED)

_KUBERNETES: Final = "Kubernetes API server"


# fmt: off
@dataclass(frozen=True, kw_only=True)
class ApiFlags:
    """Where the API server is, and how many requests it gets."""

    namespace: str = flag(
        "kubernetes.namespace", TEXT, "", _KUBERNETES,
        "Namespace whose rollout groups the operator manages. Required.",
        alias="kubernetes-namespace",
    )
    api_url: str = flag(
        "kubernetes.api-url", TEXT, "", _KUBERNETES,
        "URL of the API server. Together with -kubernetes.config-file or not at all; without"
        " both, the operator uses the service account of the pod.",
    )
    config_file: str = flag(
        "kubernetes.config-file", TEXT, "", _KUBERNETES,
        "Path of a kubeconfig file. Together with -kubernetes.api-url or not at all.",
    )
    client_timeout: timedelta = flag(
        "kubernetes.client-timeout", TIMEOUT, timedelta(minutes=5), _KUBERNETES,
        "Longest time of one request, and the age at which the operator opens a watch anew."
        " The operator has shorter limits of its own for single requests; 0 leaves only those.",
    )
    client_qps: float = flag(
        "kubernetes.client-qps", FLOAT, 5.0, _KUBERNETES,
        "Requests a second of the whole process for each API group, on average, not counting"
        " watches. Deletes go before what reviews wait for, and those before live reads and"
        " lists. 0 or less turns limiting off.",
    )
    client_burst: int = flag(
        "kubernetes.client-burst", INT, 10, _KUBERNETES,
        "Requests for each API group that the whole process may send at once. At least 1 when"
        " -kubernetes.client-qps is above 0.",
    )
# fmt: on
