"""What of a StatefulSet says in which zone its pods run."""

from collections.abc import Mapping
from enum import StrEnum, unique

import msgspec

NodeTerm = Mapping[str, tuple[str, ...]]
"""A term of a required node affinity: the values that it allows for each label of nodes."""


@unique
class ZoneSource(StrEnum):
    """What says in which zone the pods of a StatefulSet run. Scripts compare these."""

    LABEL = "Label"
    """The topology label of the StatefulSet or of its pods."""
    NODE_SELECTOR = "NodeSelector"
    NODE_AFFINITY = "NodeAffinity"
    NODES = "Nodes"
    ZONE_LABEL = "ZoneLabel"
    NAME_SUFFIX = "NameSuffix"
    SET_NAME = "StatefulSetName"
    """Nothing does: it is a zone of its own."""
    NONE = ""


class PlacedSet(msgspec.Struct, frozen=True, kw_only=True):
    """A StatefulSet as far as it says where its pods run."""

    name: str
    labels: Mapping[str, str] = {}
    pod_labels: Mapping[str, str] = {}
    """Of the template; so is the next field."""
    node_selector: Mapping[str, str] = {}
    node_terms: tuple[NodeTerm, ...] = ()
    """Of the required node affinity: each of them is enough."""
    pod_nodes: tuple[str, ...] = ()
    """The nodes that its scheduled pods run on, where they were read."""
