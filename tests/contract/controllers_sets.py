"""StatefulSets of sequences about controllers."""

from typing import Any, Final

from rollout_operator.kube.api import JsonObject
from tests.contract.bodies import statefulset
from tests.contract.controllers_pods import HELD

Json = Any

VERSION: Final = "version"
"""Annotation of a pod template that makes one template differ from another."""
ORDERED: Final = "OrderedReady"
PARALLEL: Final = "Parallel"
ROLLING: Final = "RollingUpdate"
THREE: Final = ("a-0", "a-1", "a-2")
"""The pods of a set with nothing said about their number."""


def web(
    name: str = "a",
    *,
    replicas: int = 3,
    image: str = HELD,
    pods: str = ORDERED,
    strategy: str = "OnDelete",
    **spec: object,
) -> JsonObject:
    """Return a set; all its pods are held, and nothing is updated by itself, unless said."""
    body = statefulset(
        name,
        replicas,
        **{"podManagementPolicy": pods, "updateStrategy": {"type": strategy}, **spec},
    )
    inner: Json = body["spec"]
    inner["template"]["metadata"]["annotations"] = {VERSION: "1"}
    inner["template"]["spec"]["containers"][0]["image"] = image
    inner["template"]["spec"]["automountServiceAccountToken"] = False
    return body
