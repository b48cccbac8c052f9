"""Zones as the API server holds them, for tests of the controller of counts.

`zone("b", 3, follows="a")` is zone-b that follows zone-a; `mirroring("b", 3)` mirrors DEMO, and
`delayed("b", 5)` calls its pods before they go, with a delay of an hour.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    FORCE_REPLICAS,
    GROUP_LABEL,
    LAST_DOWNSCALE,
    LEADING_ZONE,
    MAX_UNAVAILABLE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    MIRROR_API_VERSION,
    MIRROR_KIND,
    MIRROR_NAME,
    MIRROR_WRITE_BACK,
    PREPARE_DOWNSCALE,
    UPSCALE_WHEN_READY,
)
from rollout_operator.planning.downscales.spacing import format_downscale_time
from tests.controllers.fake_client import Json, pod_json, set_json
from tests.virtual_time import EPOCH
from tests.web.downscale_world import part

URL: Final = "http://pod/prepare-delayed-downscale"

# Short names of annotations.
KEYS: Final = {
    "follows": LEADING_ZONE,
    "gate": UPSCALE_WHEN_READY,
    "force": FORCE_REPLICAS,
    "last": LAST_DOWNSCALE,
    "span": MIN_TIME_BETWEEN_DOWNSCALES,
    "write_back": MIRROR_WRITE_BACK,
    "delay": DOWNSCALE_DELAY,
    "url": DOWNSCALE_DELAY_URL,
    "limit": MAX_UNAVAILABLE,
}


def zone(letter: str, replicas: int, /, **given: str) -> Json:
    """Return a whole zone; `given` are annotations by the short names above.

    `follows` is a letter.
    """
    one = set_json(f"zone-{letter}", replicas=replicas, current="new")
    if "follows" in given:
        given["follows"] = f"zone-{given['follows']}"
    annotations = {KEYS[key]: text for key, text in {"limit": "2", **given}.items()}
    part(one, "metadata")["annotations"] = annotations
    part(one, "status")["updatedReplicas"] = replicas
    part(one, "spec")["serviceName"] = "pods"
    return one


def guarded(letter: str, replicas: int, /, **annotations: str) -> Json:
    """Return a zone of which a review announces each downscale."""
    one = zone(letter, replicas, **annotations)
    labels = part(part(one, "metadata"), "labels")
    labels[PREPARE_DOWNSCALE] = "true"
    return one


def old(letter: str, replicas: int, /, **annotations: str) -> Json:
    """Return a zone of which all pods are to be replaced."""
    one = zone(letter, replicas, **annotations)
    part(one, "status").update(currentRevision="old", updatedReplicas=0)
    return one


def mirroring(letter: str, replicas: int, **annotations: str) -> Json:
    """Return a zone that mirrors DEMO."""
    one = zone(letter, replicas, **annotations)
    part(part(one, "metadata"), "annotations").update(
        {
            MIRROR_NAME: "demo",
            MIRROR_KIND: "ReplicaTemplate",
            MIRROR_API_VERSION: "rollout-operator.grafana.com/v1",
        }
    )
    return one


def delayed(letter: str, replicas: int, **annotations: str) -> Json:
    """Return a zone that mirrors DEMO, whose pods are to be prepared for an hour."""
    return mirroring(letter, replicas, **{"delay": "1h", "url": URL, **annotations})


def in_group(one: Json, group: str) -> Json:
    """Return the zone as a member of another group."""
    part(one, "metadata")["labels"] = {GROUP_LABEL: group}
    return one


def ago(span: timedelta) -> str:
    """Return a time so long before the world began, as an annotation has it."""
    return format_downscale_time(EPOCH - span)


def pods_of(one: Json) -> list[Json]:
    """Return the ready pods of a zone, each at the revision that the zone is at."""
    name, status = str(part(one, "metadata")["name"]), part(one, "status")
    count = int(str(part(one, "spec")["replicas"]))
    return [make_pod(name, ordinal, str(status["currentRevision"])) for ordinal in range(count)]


def make_pod(name: str, ordinal: int, revision: str) -> Json:
    """Return one ready pod."""
    pod = pod_json(name, ordinal, revision=revision)
    part(pod, "metadata")["uid"] = f"uid-{name}-{ordinal}"
    part(pod, "status")["podIP"] = f"10.0.0.{ordinal}"
    return pod


def set_count(replicas: int) -> Callable[[Json], None]:
    """Return a change of `spec.replicas`, for `ScalingClient.change`."""
    return lambda one: part(one, "spec").update(replicas=replicas)


def record_time(text: str) -> Callable[[Json], None]:
    """Return a change of the time of the last downscale."""
    return lambda one: part(part(one, "metadata"), "annotations").update({LAST_DOWNSCALE: text})
