"""Pods and StatefulSets as one write left them, with what judges check of them.

By labels and annotations alone, as a person reads them: nothing is taken from the operator's own
decoding or planning.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from rollout_lab.model.fields import child, name_of, number

from rollout_operator.kube.api import JsonObject
from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    FORCE_REPLICAS,
    LEADING_ZONE,
    MIRROR_KIND,
    MIRROR_NAME,
    MIRROR_WRITE_BACK,
)

Json = dict[str, Any]

GROUP_LABELS: Final = ("rollout-group", "grafana.com/rollout-group")
MAX_UNAVAILABLE: Final = "rollout-max-unavailable"
PAUSED: Final = "grafana.com/rollout-paused"
REVISION: Final = "controller-revision-hash"
PREPARE: Final = "grafana.com/prepare-downscale"
SOAK: Final = "grafana.com/rollout-zone-soak"
CHECK: Final = "grafana.com/rollout-health-check"
BYPASS: Final = "grafana.com/rollout-health-check-bypass-until"
MIN_TIME: Final = "grafana.com/min-time-between-zones-downscale"
RECORD: Final = "grafana.com/rollout-operator-disruption"
TIME_UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
TIME_PART: Final = r"([0-9]+(?:\.[0-9]+)?)(ms|[smhd])"


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    uid: str
    owner: str = ""  # UID of the StatefulSet that controls it, empty if none does
    revision: str = ""
    created: str = ""
    is_terminating: bool = False
    is_ready: bool = True
    """Running, condition Ready true, every container ready: section 2.1 of the fault model."""
    is_crash_looping: bool = False
    """Whether a kubelet puts off to start a container of it once more."""
    is_running: bool = True  # by its phase alone
    labels: Mapping[str, str] = {}
    record: str = ""
    """UID in the record of a disruption, empty where there is none that can be read."""


class Set(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    uid: str
    group: str | None = None
    replicas: int = 1
    first_ordinal: int = 0
    limit: int = 1  # how many ordinals may be missing in this zone
    is_paused: bool = False
    soak: timedelta = timedelta(0)  # how long other zones must be whole before one is begun
    check: str = ""  # the health check that it is bound to
    bypass: str = ""  # until when that is waived
    strategy: str = "OnDelete"
    generation: int = 1
    observed: int = 1
    update_revision: str = "new"
    current_revision: str = ""
    ready_replicas: int = 0
    must_prepare: bool = False  # whether its pods are to be prepared before they are scaled away
    min_time: timedelta = timedelta(0)
    """Between downscales of zones, as this one has it; zero if it says nothing of it."""
    min_ready: timedelta = timedelta(0)
    """For how long a pod must have been ready to count, where a policy drives it."""
    labels: Mapping[str, str] = {}
    pod_labels: Mapping[str, str] = {}  # of its template
    node_selector: Mapping[str, str] = {}
    is_terminating: bool = False

    @property
    def pod_names(self) -> tuple[str, ...]:
        ordinals = range(self.first_ordinal, self.first_ordinal + self.replicas)
        return tuple(f"{self.name}-{ordinal}" for ordinal in ordinals)


def read_pod(pod: Json) -> Pod:
    meta = pod["metadata"]
    owners = [
        each["uid"]
        for each in meta.get("ownerReferences", ())
        if each.get("controller") and each["kind"] == "StatefulSet"
    ]
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        owner=owners[0] if owners else "",
        revision=meta.get("labels", {}).get(REVISION, ""),
        created=meta.get("creationTimestamp", ""),
        is_terminating="deletionTimestamp" in meta,
        is_ready=_is_ready(pod),
        is_crash_looping=_is_crash_looping(pod),
        is_running=pod.get("status", {}).get("phase") == "Running",
        labels=meta.get("labels", {}),
        record=_read_record(meta.get("annotations", {}).get(RECORD, "")),
    )


def read_set(found: Json) -> Set:
    meta, spec, status = found["metadata"], found["spec"], found.get("status", {})
    labels, annotations = meta.get("labels", {}), meta.get("annotations", {})
    template = spec.get("template", {})
    replicas = spec.get("replicas", 1)
    return Set(
        name=meta["name"],
        uid=meta["uid"],
        group=next((labels[key] for key in GROUP_LABELS if key in labels), None),
        replicas=replicas,
        first_ordinal=spec.get("ordinals", {}).get("start", 0),
        limit=read_limit(annotations.get(MAX_UNAVAILABLE), replicas),
        is_paused=is_brake_on(annotations.get(PAUSED)),
        soak=read_time(annotations.get(SOAK, "")),
        check=annotations.get(CHECK, ""),
        bypass=annotations.get(BYPASS, ""),
        strategy=spec.get("updateStrategy", {}).get("type", ""),
        generation=meta.get("generation", 0),
        observed=status.get("observedGeneration", 0),
        update_revision=status.get("updateRevision", ""),
        current_revision=status.get("currentRevision", ""),
        ready_replicas=status.get("readyReplicas", 0),
        must_prepare=is_brake_on(labels.get(PREPARE)),
        min_time=read_time(annotations.get(MIN_TIME) or labels.get(MIN_TIME) or ""),
        min_ready=timedelta(seconds=spec.get("minReadySeconds", 0)),
        labels=labels,
        pod_labels=template.get("metadata", {}).get("labels", {}),
        node_selector=template.get("spec", {}).get("nodeSelector", {}),
        is_terminating="deletionTimestamp" in meta,
    )


def read_limit(text: str | None, replicas: int) -> int:
    text = (text or "").strip()
    number = text.removesuffix("%")
    if not (number.isascii() and number.isdigit()) or int(number) == 0:
        return 1
    if not text.endswith("%"):
        return int(number)
    return max(1, int(number) * replicas // 100) if int(number) <= 100 else 1


def is_brake_on(text: str | None) -> bool:
    """Return whether a label or annotation holds something: whatever is no clear no does (D-89)."""
    return text is not None and text.strip().lower() not in ("", "false", "no", "off", "0")


def read_time(text: str) -> timedelta:
    """Return a duration such as `1h30m` or `12s`; zero if it is none."""
    if not re.fullmatch(f"(?:{TIME_PART})+", text):
        return timedelta(0)
    parts = re.findall(TIME_PART, text)
    return sum((float(number) * TIME_UNITS[unit] for number, unit in parts), timedelta(0))


def _read_record(text: str) -> str:
    try:
        return str(json.loads(text)["uid"])
    except (ValueError, TypeError, KeyError):
        return ""


def _is_crash_looping(pod: Json) -> bool:
    status = pod.get("status", {})
    containers = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    halts = [each.get("state", {}).get("waiting", {}) for each in containers]
    return any(halt.get("reason") == "CrashLoopBackOff" for halt in halts)


def _is_ready(pod: Json) -> bool:
    status = pod.get("status", {})
    statuses = status.get("containerStatuses") or ()
    return (
        status.get("phase") == "Running"
        and any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in status.get("conditions") or ()
        )
        and len(statuses) == len(pod["spec"]["containers"])
        and all(each.get("ready") and "running" in each.get("state", {}) for each in statuses)
    )


TEMPLATE_KIND: Final = "ReplicaTemplate"


def annotations(found: JsonObject | None) -> JsonObject:
    return child(found or {}, "metadata", "annotations")


def labels(found: JsonObject | None) -> JsonObject:
    return child(found or {}, "metadata", "labels")


class DesiredReplicas(msgspec.Struct, frozen=True, kw_only=True):
    leading: str | None = None  # the name of the zone that it follows, None where it follows none
    template: str = ""
    """The name of the ReplicaTemplate that it mirrors, empty where it mirrors none."""
    writes_back: bool = True
    forced: int | None = None  # the count that a person forces
    delay: timedelta = timedelta(0)  # zero where pods have no say

    @property
    def is_ours(self) -> bool:
        return self.leading is not None or bool(self.template)


def read_desired(found: JsonObject | None) -> DesiredReplicas:
    said = {key: str(value) for key, value in annotations(found).items()}
    leading = said.get(LEADING_ZONE)
    is_mirror = leading is None and said.get(MIRROR_KIND) == TEMPLATE_KIND
    forced = said.get(FORCE_REPLICAS, "")
    has_url = bool(said.get(DOWNSCALE_DELAY_URL))
    return DesiredReplicas(
        leading=leading,
        template=said.get(MIRROR_NAME, "") if is_mirror else "",
        writes_back=said.get(MIRROR_WRITE_BACK, "true") == "true",
        forced=int(forced) if forced.isascii() and forced.isdigit() else None,
        delay=read_time(said.get(DOWNSCALE_DELAY, "") if is_mirror and has_url else ""),
    )


def read_delay_path(found: JsonObject | None) -> str:
    """Return the path at which pods of a set say since when they are prepared."""
    return urlsplit(str(annotations(found).get(DOWNSCALE_DELAY_URL, ""))).path.strip("/")


def list_miscounted(sets: Sequence[JsonObject], templates: Sequence[JsonObject]) -> Iterator[str]:
    """Yield which counts are not what they should be once all is at rest, in words."""
    by_name = {name_of(one): one for one in sets}
    counts = {name_of(one): number(one, "spec", "replicas", default=1) for one in templates}
    for name, found in by_name.items():
        count, desired = number(found, "spec", "replicas", default=1), read_desired(found)
        wanted, why = _get_wanted(desired, by_name, counts)
        if wanted is not None and wanted != count:
            yield f"{name} has {count} replicas, {why} wants {wanted}"
    for one in templates:
        name, reported = name_of(one), number(one, "status", "replicas")
        mirrors = [read_desired(each) for each in by_name.values()]
        is_reported = any(each.template == name and each.writes_back for each in mirrors)
        if is_reported and reported != counts[name]:
            yield f"the status of {name} says {reported} replicas, it wants {counts[name]}"


def _get_wanted(
    desired: DesiredReplicas, sets: Mapping[str, JsonObject], templates: Mapping[str, int]
) -> tuple[int | None, str]:
    if desired.is_ours and desired.forced is not None:
        return desired.forced, "a person"
    if desired.leading is not None and desired.leading in sets:
        return number(sets[desired.leading], "spec", "replicas", default=1), desired.leading
    return templates.get(desired.template), desired.template
