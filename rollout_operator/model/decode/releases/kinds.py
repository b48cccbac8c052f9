"""What reads objects to be followed, by the kinds that releases depend on."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from rollout_operator.model.decode.releases.flux import (
    decode_image_policy,
    decode_image_repository,
    decode_kustomization,
    decode_oci_repository,
)
from rollout_operator.model.decode.releases.gate import decode_gate
from rollout_operator.model.decode.releases.head import decode_labelled_namespace, watch_as
from rollout_operator.model.decode.releases.health import decode_health_check
from rollout_operator.model.decode.releases.rollout import decode_rollout
from rollout_operator.model.decode.releases.schedule import decode_schedule
from rollout_operator.model.decode.wire import JsonBytes
from rollout_operator.model.objects import WatchedObject
from rollout_operator.model.releases.flux import (
    IMAGE_POLICY,
    IMAGE_REPOSITORY,
    KUSTOMIZATION,
    OCI_REPOSITORY,
)
from rollout_operator.model.releases.schedule import CLUSTER_SCHEDULE, SCHEDULE

DECODERS: Final[Mapping[str, Callable[[JsonBytes], WatchedObject]]] = {
    "Rollout": watch_as(decode_rollout),
    "RolloutGate": watch_as(decode_gate),
    "HealthCheck": watch_as(decode_health_check),
    "Namespace": watch_as(decode_labelled_namespace),
    SCHEDULE: watch_as(partial(decode_schedule, SCHEDULE)),
    CLUSTER_SCHEDULE: watch_as(partial(decode_schedule, CLUSTER_SCHEDULE)),
    IMAGE_POLICY: watch_as(decode_image_policy),
    IMAGE_REPOSITORY: watch_as(decode_image_repository),
    OCI_REPOSITORY: watch_as(decode_oci_repository),
    KUSTOMIZATION: watch_as(decode_kustomization),
}
"""Each raises DecodeError."""
