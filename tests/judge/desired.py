"""What annotations say of the count of a set, and which counts are not as they should be.

By the annotations alone, as a person reads them: nothing is taken from the operator's own planner.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final
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
from tests.judge.objects import read_time

TEMPLATE_KIND: Final = "ReplicaTemplate"
NO_TIME: Final = timedelta(0)


class DesiredReplicas(msgspec.Struct, frozen=True, kw_only=True):
    """What one state of a set says of its count."""

    leading: str | None = None
    """The name of the zone that it follows, None where it follows none."""
    template: str = ""
    """The name of the ReplicaTemplate that it mirrors, empty where it mirrors none."""
    writes_back: bool = True
    forced: int | None = None
    """The count that a person forces."""
    delay: timedelta = NO_TIME
    """Zero where pods have no say."""

    @property
    def is_ours(self) -> bool:
        """Return whether the operator decides the count at all."""
        return self.leading is not None or bool(self.template)


def read_desired(found: JsonObject | None) -> DesiredReplicas:
    """Return what a set says."""
    annotations = {key: str(value) for key, value in _annotations(found).items()}
    leading = annotations.get(LEADING_ZONE)
    is_mirror = leading is None and annotations.get(MIRROR_KIND) == TEMPLATE_KIND
    forced = annotations.get(FORCE_REPLICAS, "")
    has_url = bool(annotations.get(DOWNSCALE_DELAY_URL))
    return DesiredReplicas(
        leading=leading,
        template=annotations.get(MIRROR_NAME, "") if is_mirror else "",
        writes_back=annotations.get(MIRROR_WRITE_BACK, "true") == "true",
        forced=int(forced) if forced.isascii() and forced.isdigit() else None,
        delay=read_time(annotations.get(DOWNSCALE_DELAY, "")) if is_mirror and has_url else NO_TIME,
    )


def read_delay_path(found: JsonObject | None) -> str:
    """Return the path at which pods of a set say since when they are prepared."""
    return urlsplit(str(_annotations(found).get(DOWNSCALE_DELAY_URL, ""))).path.strip("/")


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


def _annotations(found: JsonObject | None) -> JsonObject:
    return child(found or {}, "metadata", "annotations")
