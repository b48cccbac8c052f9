"""Shapes of API objects on the wire: the fields that slim objects keep, as msgspec types.

Decides which field may be absent or null and which numbers fit. Everything else of an object is
skipped without being built. Defaults with a meaning are left to `objects`.
"""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from rollout_operator.model.names import DISRUPTION_RECORD, DOWNSCALE_RECORD, READY_TIME

JsonBytes = bytes | msgspec.Raw

Required = Annotated[str, Meta(min_length=1)]
Int32 = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Generation = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Strings = dict[str, str] | None


class Wire(Struct, rename="camel", gc=False):
    """A part of an object on the wire. Lives for microseconds and holds no cycles: no GC."""


class Owner(Wire):
    uid: str = ""
    controller: bool | None = None


class ObjectHead(Wire):
    name: Required
    namespace: Required
    uid: Required
    resource_version: Required
    deletion_timestamp: str | None = None


class WirePlaced(Wire):
    metadata: ObjectHead
    kind: str | None = None


class PodAnnotations(Struct, gc=False):
    downscale: str | None = msgspec.field(default=None, name=DOWNSCALE_RECORD)
    disruption: str | None = msgspec.field(default=None, name=DISRUPTION_RECORD)
    ready_time: str | None = msgspec.field(default=None, name=READY_TIME)


class PodHead(ObjectHead):
    creation_timestamp: Annotated[datetime, Meta(tz=True)] | None = None
    labels: Strings = None
    annotations: PodAnnotations | None = None
    owner_references: list[Owner] | None = None


class NodeHead(Wire):
    name: Required
    uid: Required
    resource_version: Required
    labels: Strings = None


class WireNode(Wire):
    metadata: NodeHead
    kind: str | None = None


class Running(Wire):
    pass


class Halted(Wire):
    reason: str | None = None
    exit_code: int = 0


class ContainerState(Wire):
    running: Running | None = None
    waiting: Halted | None = None
    terminated: Halted | None = None


class Container(Wire):
    name: str = ""
    ready: bool = False
    state: ContainerState | None = None


class Condition(Wire):
    type: str = ""
    status: str = ""
    reason: str | None = None
    last_transition_time: str | None = None


class PodStatus(Wire):
    phase: str = ""
    reason: str | None = None
    start_time: str | None = None
    # Renamed by rule it would be `podIp`.
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    conditions: list[Condition] | None = None
    init_container_statuses: list[Container] | None = None
    container_statuses: list[Container] | None = None


class WirePod(Wire):
    metadata: PodHead
    status: PodStatus | None = None
    kind: str | None = None


class Port(Wire):
    container_port: Int32 = 0


class Ported(Wire):
    ports: list[Port] | None = None


class PortedSpec(Wire):
    containers: list[Ported] | None = None
    init_containers: list[Ported] | None = None


class WirePorts(Wire):
    """What is read of the few pods that carry a record, and of no others."""

    spec: PortedSpec | None = None
    kind: str | None = None


class SetHead(ObjectHead):
    generation: Generation = 0
    labels: Strings = None
    annotations: Strings = None


class Selector(Wire):
    match_labels: Strings = None


class Strategy(Wire):
    type: str = ""


class Ordinals(Wire):
    start: Int32 = 0


class SetSpec(Wire):
    # The API server fills in 1; a body under admission may still leave it out or null.
    replicas: Int32 | None = None
    selector: Selector | None = None
    update_strategy: Strategy | None = None
    ordinals: Ordinals | None = None
    service_name: str | None = None
    pod_management_policy: str | None = None
    min_ready_seconds: Int32 = 0


class SetStatus(Wire):
    observed_generation: Generation = 0
    replicas: Int32 = 0
    updated_replicas: Int32 = 0
    ready_replicas: Int32 = 0
    available_replicas: Int32 = 0
    current_revision: str = ""
    update_revision: str = ""


class WireStatefulSet(Wire):
    metadata: SetHead
    spec: SetSpec
    status: SetStatus | None = None
    kind: str | None = None


class BookmarkAnnotations(Struct, gc=False):
    ends_state: str | None = msgspec.field(default=None, name="k8s.io/initial-events-end")


class BookmarkHead(Wire):
    resource_version: Required
    annotations: BookmarkAnnotations | None = None


class WireBookmark(Wire):
    metadata: BookmarkHead
