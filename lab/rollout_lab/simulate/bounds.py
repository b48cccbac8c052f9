"""What a simulation takes of the input: how many pods, how large objects, which times.

Pure. What is beyond would not end in an hour, take all memory, or leave no room to add to a time.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

import msgspec

from rollout_lab.model.fields import child, children, moment_of, name_of, number, text
from rollout_lab.simulate.flags import LAST_YEAR
from rollout_operator.cli.dumps import BadDump
from rollout_operator.kube.api import STATEFULSETS, JsonObject

# Of all StatefulSets together, and of each other object whose count they may follow.
MOST_REPLICAS: Final = 10_000
# The API server takes no more annotations of an object, keys and values, and no larger request.
MOST_ANNOTATIONS: Final = 256 * 1024
LARGEST: Final = 3 * 1024 * 1024
# 68 years: what others add to a time as well.
LONGEST_GRACE_S: Final = 2**31 - 1
_TIMES: Final = ("Time", "Timestamp", "At")
_GRACE: Final = ("deletionGracePeriodSeconds", "terminationGracePeriodSeconds")
# Of people, whatever their keys are called.
_FREE: Final = ("annotations", "labels", "matchLabels", "data")


def check_replicas(objects: Iterable[JsonObject]) -> None:
    """Raise BadDump where objects that have been decoded want more pods than may be simulated."""
    total = 0
    for obj in objects:
        replicas = number(obj, "spec", "replicas")
        before = total if obj.get("kind") == STATEFULSETS.kind else 0
        if before + replicas > MOST_REPLICAS:
            beside = f" beside {before} of other StatefulSets" if before else ""
            raise BadDump(
                f"{obj.get('kind')} {name_of(obj)}: spec.replicas: {replicas}{beside} is more than"
                f" the {MOST_REPLICAS} that a simulation takes in all"
            )
        total = before + replicas


def check_object(obj: JsonObject) -> None:
    """Raise BadDump where an object is larger than any, or holds a time to which none is added."""
    what = f"{obj.get('kind')} {name_of(obj)}"
    annotations = child(obj, "metadata", "annotations")
    size = sum(len(f"{key}{text}".encode()) for key, text in annotations.items())
    if size > MOST_ANNOTATIONS:
        raise BadDump(
            f"{what}: metadata.annotations: {size} bytes are more than the {MOST_ANNOTATIONS} that"
            " the API server takes"
        )
    if (size := len(msgspec.json.encode(obj))) > LARGEST:
        raise BadDump(f"{what}: {size} bytes are more than the {LARGEST} of any request")
    for path, value in _list_fields(obj):
        if path.endswith(_TIMES) and isinstance(value, str) and _is_too_late(value):
            raise BadDump(f"{what}: {path}: {value[:40]}: after the year {LAST_YEAR}")
        if path.endswith(_GRACE) and isinstance(value, int) and value > LONGEST_GRACE_S:
            raise BadDump(f"{what}: {path}: {value} is more than {LONGEST_GRACE_S}")


def _is_too_late(time: str) -> bool:
    year = time[:4]
    return year.isascii() and year.isdecimal() and int(year) > LAST_YEAR


def _list_fields(obj: JsonObject) -> Iterator[tuple[str, object]]:
    """Yield paths and values; without recursion, as objects may be nested deeply."""
    left: list[tuple[str, object]] = [("", obj)]
    while left:
        path, value = left.pop()
        if isinstance(value, dict):
            inner = ((key, each) for key, each in value.items() if key not in _FREE)
            left += [(f"{path}.{key}" if path else key, each) for key, each in inner]
        elif isinstance(value, list):
            left += [(f"{path}[{place}]", each) for place, each in enumerate(value)]
        else:
            yield path, value


def find_newest(objects: Iterable[JsonObject]) -> datetime | None:
    """Return the latest time that any object tells of itself, or of a condition."""
    stamps: list[datetime] = []
    for obj in objects:
        for condition in (*children(obj, "status", "conditions"), child(obj, "metadata")):
            for key in ("lastTransitionTime", "creationTimestamp"):
                try:
                    stamps.append(moment_of(text(condition, key)))
                except ValueError:
                    continue  # absent, or written by another client
    return max(stamps, default=None)
