"""What the simulated API server tells of the kinds that it knows, and how a client reads it.

Only what the sandbox models is told of: a real server has more kinds in most groups.
"""

from collections.abc import Sequence
from typing import Final

from rollout_lab.model.fields import children, text
from rollout_lab.model.request import ApiAnswer, api_version_of, not_modelled
from rollout_lab.schemas.kinds import KINDS, REPLICA_TEMPLATES, ObjectKind
from rollout_lab.schemas.refusals import NoPage, no_resource
from rollout_operator.kube.api import JsonObject, Resource, Served

# What subresources are of, where that is not the kind itself.
_SUBKINDS: Final = {"scale": "Scale", "eviction": "Eviction"}


def discover(resource: Resource) -> ApiAnswer:
    """Return the versions of a group, or the kinds of a version. Raises Refusal (404)."""
    kinds = [kind for kind in KINDS.values() if kind.resource.group == resource.group]
    versions = sorted({kind.resource.version for kind in kinds})
    if not versions or resource.version not in ("", *versions):
        is_custom = resource.group == REPLICA_TEMPLATES.group
        raise no_resource() if versions and not is_custom else NoPage
    if not resource.version:
        return ApiAnswer(status=200, body=_group(resource.group, versions))
    listed = [kind for kind in kinds if kind.resource.version == resource.version]
    body: JsonObject = {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version_of(resource),
        "resources": [entry for other in listed for entry in _entries(other)],
    }
    return ApiAnswer(status=200, body=body)


def _group(group: str, versions: Sequence[str]) -> JsonObject:
    if len(versions) > 1:
        not_modelled(f"which version of the API group {group!r} is preferred")
    served = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": group,
        "versions": served,
        "preferredVersion": served[0],
    }


def _entries(kind: ObjectKind) -> Sequence[JsonObject]:
    resource = kind.resource
    names = ["", *sorted(kind.subresources)]
    return [
        {
            "name": f"{resource.plural}/{name}".rstrip("/"),
            "kind": _SUBKINDS.get(name, resource.kind),
            "namespaced": resource.is_namespaced,
        }
        for name in names
    ]


def read_versions(body: JsonObject) -> Sequence[str]:
    """Return the versions of a group, the preferred version first."""
    names = [text(body, "preferredVersion", "version")]
    names += [text(version, "version") for version in children(body, "versions")]
    return tuple(dict.fromkeys(names))


def read_resources(body: JsonObject, resource: Resource) -> Sequence[Served]:
    """Return the kinds of a version of a group."""
    entries = children(body, "resources")
    names = [text(entry, "name") for entry in entries]
    return tuple(
        Served(
            resource=Resource(
                resource.group,
                resource.version,
                text(entry, "name"),
                text(entry, "kind"),
                entry["namespaced"] is True,
            ),
            subresources=frozenset(
                name.partition("/")[2] for name in names if name.startswith(f"{entry['name']}/")
            ),
        )
        for entry in entries
        if "/" not in text(entry, "name")
    )
