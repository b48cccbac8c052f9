"""What a HealthCheck names in its annotation: another object, by name or namespace and name."""

from collections.abc import Mapping
from typing import Final

from rollout_operator.model import names
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.releases.flux import KUSTOMIZATION, FluxReference
from rollout_operator.model.releases.health import CheckClass, HealthCheck
from rollout_operator.model.units import quote

_NAMED: Final[Mapping[CheckClass, tuple[str, str]]] = {
    CheckClass.KUSTOMIZATION: (KUSTOMIZATION, names.CHECKED_KUSTOMIZATION),
    CheckClass.ROLLOUT_GROUP: ("rollout group", names.CHECKED_GROUP),
    CheckClass.MULTI_AZ_ROLLOUT: ("MultiAZRollout", names.CHECKED_POLICY),
}


def find_class(check: HealthCheck) -> CheckClass | None:
    """Return the class of a check, None where others write its status (REL-106)."""
    classes = (kind for kind in CheckClass if kind == check.check_class)
    return next(classes, None)


def parse_check_reference(check: HealthCheck, own: CheckClass) -> FluxReference:
    """Return what a check looks at (REL-107). Raises InvalidInput, which names the annotation."""
    kind, annotation = _NAMED[own]
    text = _map_texts(check)[own]
    if text is None:
        raise InvalidInput(f"annotation {annotation} is missing")
    segments = text.split("/")
    if len(segments) > 2 or not all(segments):
        raise InvalidInput(f"annotation {annotation}: {quote(text)} is no name or namespace/name")
    namespace = segments[0] if len(segments) == 2 else check.head.namespace
    return FluxReference(kind=kind, namespace=namespace, name=segments[-1])


def _map_texts(check: HealthCheck) -> Mapping[CheckClass, str | None]:
    return {
        CheckClass.KUSTOMIZATION: check.kustomization,
        CheckClass.ROLLOUT_GROUP: check.rollout_group,
        CheckClass.MULTI_AZ_ROLLOUT: check.policy,
    }
