"""Nodes: which node a new pod gets.

Only what a drain needs is known of them: labels that pods select them by, and whether a node is
cordoned. A world without Node objects has a single node that has room for all pods.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from rollout_lab.model.fields import child, name_of, text
from rollout_lab.model.request import ApiServer
from rollout_lab.schemas.kinds import NODES
from rollout_lab.schemas.labels import labels_of
from rollout_operator.kube.api import PODS, JsonObject

LONE_NODE: Final = "node-1"
# The name of the node that a pod gets; None: it waits.
Place = Callable[[JsonObject], str | None]


def node(name: str, labels: Mapping[str, str]) -> JsonObject:
    """Return a node as the API takes it."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": dict(labels)}}


def find_node(api: ApiServer, pod: JsonObject) -> str | None:
    """Return the name of the node that a pod gets: of those that fit, the emptiest.

    None where none fits that is not cordoned: the pod waits.
    """
    nodes = api.list(NODES, "")
    if not nodes:
        return LONE_NODE
    wanted = child(pod, "spec", "nodeSelector")
    fitting = [name_of(node) for node in nodes if not is_cordoned(node) and _fits(node, wanted)]
    if not fitting:
        return None
    pods = Counter(node_of(pod) for pod in api.list(PODS, ""))
    return min(fitting, key=lambda name: (pods[name], name))


def node_of(pod: JsonObject) -> str:
    """Return the name of the node that a pod is bound to, empty where it has none yet."""
    return text(pod, "spec", "nodeName")


def is_cordoned(found: JsonObject) -> bool:
    """Return whether a node takes no new pods."""
    return child(found, "spec").get("unschedulable") is True


def _fits(found: JsonObject, wanted: JsonObject) -> bool:
    labels = labels_of(found)
    return all(labels.get(key) == value for key, value in wanted.items())
