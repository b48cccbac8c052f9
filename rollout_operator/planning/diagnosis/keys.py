"""Labels and annotations that look like the operator's and are none, or stand in the wrong place.

Keys that start with `grafana.com/` or `rollout-` are compared with those in `model.names`; a key
that is near to none of them belongs to another tool and is left alone.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rollout_operator.model import names
from rollout_operator.model.diagnosis.findings import Finding, FindingCode
from rollout_operator.model.diagnosis.installation import Installation, ZoneSet
from rollout_operator.planning.diagnosis.remedies import find

_PREFIXES: Final = ("grafana.com/", "rollout-")
# Two letters of twenty may be wrong, and a short word may be another word.
_NEAR: Final = 0.85

KNOWN: Final = frozenset(
    value
    for value in vars(names).values()
    if isinstance(value, str) and value.startswith(_PREFIXES)
)
_GROUP_LABELS: Final = frozenset({names.GROUP_LABEL, names.GROUP_LABEL_LONG})
_SWITCHES: Final = frozenset({names.NO_DOWNSCALE, names.PREPARE_DOWNSCALE})
_ONLY_LABELS: Final = _GROUP_LABELS | _SWITCHES
_ONLY_ANNOTATIONS: Final = (
    names.STATEFULSET_ANNOTATIONS - _SWITCHES - {names.MIN_TIME_BETWEEN_DOWNSCALES}
)


def check_spelling(installation: Installation) -> Iterator[Finding]:
    """Yield keys of StatefulSets with the known key that they are nearest to."""
    for sts in installation.sets:
        for what, keys in _list_places(sts):
            for key in sorted(keys):
                nearest = choose_nearest(key)
                if nearest:
                    text = f'{what} "{key}" is not known; did you mean "{nearest}"?'
                    yield find(FindingCode.KEY_UNKNOWN, _name(sts), text)


def choose_nearest(key: str) -> str:
    """Return the known key that `key` misspells, empty where it is known or foreign."""
    if key in KNOWN or not key.lower().startswith(_PREFIXES):
        return ""
    # Under the other prefix, or without a prefix.
    same_name = [known_key for known_key in sorted(KNOWN) if _short(known_key) == _short(key)]
    if same_name:
        return same_name[0]
    near = difflib.get_close_matches(_short(key), map(_short, sorted(KNOWN)), n=1, cutoff=_NEAR)
    return next((known_key for known_key in sorted(KNOWN) if _short(known_key) in near), "")


def check_places(installation: Installation) -> Iterator[Finding]:
    """Yield keys of the operator's that do nothing where they stand."""
    for sts in installation.sets:
        for key in sorted(_ONLY_LABELS & sts.annotations.keys() - sts.labels.keys()):
            yield find(
                FindingCode.KEY_MISPLACED, _name(sts), f'"{key}" is a label, not an annotation'
            )
        for key in sorted(_ONLY_ANNOTATIONS & sts.labels.keys() - sts.annotations.keys()):
            yield find(
                FindingCode.KEY_MISPLACED, _name(sts), f'"{key}" is an annotation, not a label'
            )
        # A group label of the pods alone is common: the set then belongs to no group.
        for key in sorted((_ONLY_LABELS & sts.pod_labels.keys()) - sts.labels.keys()):
            if key in _SWITCHES or sts.sts.group is None:
                text = f'label "{key}" is on the pod template only, not on the StatefulSet'
                yield find(FindingCode.KEY_MISPLACED, _name(sts), text)


def check_switches(installation: Installation) -> Iterator[Finding]:
    """Yield labels that switch a review on with a value that does not."""
    for sts in installation.sets:
        for key in sorted(_SWITCHES & sts.labels.keys()):
            value = sts.labels[key]
            if value not in {"true", "false"}:
                text = f'label {key}: "{value}" is not "true", and is as good as none'
                yield find(FindingCode.ODD_VALUE, _name(sts), text)


def _list_places(sts: ZoneSet) -> Iterable[tuple[str, Mapping[str, str]]]:
    return ("label", sts.labels), ("annotation", sts.annotations)


def _name(sts: ZoneSet) -> str:
    return f"StatefulSet {sts.sts.name}"


def _short(key: str) -> str:
    return key.rpartition("/")[2].lower()
