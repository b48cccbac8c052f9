"""The kinds as kuberik's rollout-controller defines them: what its API server accepts and keeps.

Written down from its documented fields, and shorter: without texts for people. What an operator
leaves in a status must be valid here too, so that the way back is open.
"""

from typing import Final

from tests.world.api import Json

GROUP: Final = "kuberik.com"
DURATION: Final = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
TIME: Final = r"^([01]\d|2[0-3]):[0-5]\d$"
DATE: Final = r"^\d{4}-\d{2}-\d{2}$"

_TEXT: Final[Json] = {"type": "string"}
_FLAG: Final[Json] = {"type": "boolean"}
_NUMBER: Final[Json] = {"type": "integer"}
_LARGE: Final[Json] = {"type": "integer", "format": "int64"}
_INSTANT: Final[Json] = {"type": "string", "format": "date-time"}
_SPAN: Final[Json] = {"type": "string", "pattern": DURATION}


def _object(*required: str, **fields: Json) -> Json:
    need: Json = {"required": sorted(required)} if required else {}
    return {"type": "object", **need, "properties": fields}


def _list(item: Json) -> Json:
    return {"type": "array", "items": item}


def _enum(*values: str, **more: str) -> Json:
    return {"type": "string", "enum": sorted(values), **more}


def _at_least_one(default: int) -> Json:
    return {"type": "integer", "format": "int32", "minimum": 1, "default": default}


def _range(pattern: str) -> Json:
    end: Json = {"type": "string", "pattern": pattern}
    return _object("start", "end", start=end, end=end)


_ATOMIC: Final[Json] = {"x-kubernetes-list-type": "atomic"}
_SELECTOR: Final[Json] = {
    **_object(
        matchLabels={"type": "object", "additionalProperties": _TEXT},
        matchExpressions={
            **_list(
                _object(
                    *("key", "operator"),
                    key=_TEXT,
                    operator=_TEXT,
                    values={**_list(_TEXT)} | _ATOMIC,
                )
            ),
            **_ATOMIC,
        },
    ),
    "x-kubernetes-map-type": "atomic",
}
_REFERENCE: Final[Json] = {
    **_object(name={"type": "string", "default": ""}),
    "x-kubernetes-map-type": "atomic",
}
_CONDITION: Final = _object(
    *("lastTransitionTime", "message", "reason", "status", "type"),
    lastTransitionTime=_INSTANT,
    message={"type": "string", "maxLength": 32768},
    observedGeneration={**_LARGE, "minimum": 0},
    reason={
        "type": "string",
        "minLength": 1,
        "maxLength": 1024,
        "pattern": r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
    },
    status=_enum("True", "False", "Unknown"),
    type={
        "type": "string",
        "maxLength": 316,
        "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
        r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
    },
)
_CONDITIONS: Final[Json] = {
    **_list(_CONDITION),
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
}
_VERSION: Final = _object(
    "tag", tag=_TEXT, digest=_TEXT, version=_TEXT, revision=_TEXT, created=_INSTANT
)
_ENTRY: Final = _object(
    *("timestamp", "version"),
    id=_LARGE,
    version=_VERSION,
    timestamp=_INSTANT,
    message=_TEXT,
    triggeredBy=_object("kind", "name", kind=_enum("User", "System"), name=_TEXT),
    bakeStatus=_TEXT,
    bakeStatusMessage=_TEXT,
    bakeStartTime=_INSTANT,
    bakeEndTime=_INSTANT,
    failedHealthChecks=_list(
        _object("name", "namespace", name=_TEXT, namespace=_TEXT, message=_TEXT)
    ),
    lastRetryTimestamp=_INSTANT,
)
_ROLLOUT: Final = _object(
    spec=_object(
        "releasesImagePolicy",
        releasesImagePolicy=_REFERENCE,
        wantedVersion=_TEXT,
        versionHistoryLimit=_at_least_one(10),
        availableReleasesRetentionDays=_at_least_one(7),
        availableReleasesMinCount=_at_least_one(30),
        bakeTime=_SPAN,
        deployTimeout=_SPAN,
        healthCheckSelector=_object(selector=_SELECTOR, namespaceSelector=_SELECTOR),
    ),
    status=_object(
        conditions=_CONDITIONS,
        history=_list(_ENTRY),
        availableReleases=_list(_VERSION),
        releaseCandidates=_list(_VERSION),
        gatedReleaseCandidates=_list(_VERSION),
        gates=_list(
            _object(
                "name",
                name=_TEXT,
                passing=_FLAG,
                allowedVersions=_list(_TEXT),
                message=_TEXT,
                bypassGates=_FLAG,
            )
        ),
        artifactType=_TEXT,
        source=_TEXT,
        title=_TEXT,
        description=_TEXT,
    ),
)
_GATE: Final = _object(
    spec=_object(
        *("passing", "rolloutRef"),
        rolloutRef=_REFERENCE,
        passing={**_FLAG, "default": True},
        allowedVersions=_list(_TEXT),
    ),
    status={"type": "object"},
)
_RULE: Final = _object(
    name=_TEXT,
    timeRange=_range(TIME),
    daysOfWeek=_list(
        _enum(*("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"))
    ),
    dateRange=_range(DATE),
)


def _schedule(**more: Json) -> Json:
    return _object(
        spec=_object(
            *("rolloutSelector", "rules"),
            rolloutSelector=_SELECTOR,
            rules={**_list(_RULE), "minItems": 1},
            timezone={"type": "string", "default": "UTC"},
            action=_enum("Allow", "Deny", default="Deny"),
            **more,
        ),
        status=_object(
            active=_FLAG,
            activeRules=_list(_TEXT),
            nextTransition=_INSTANT,
            managedGates=_list(_TEXT),
            matchingRollouts=_NUMBER,
            conditions=_CONDITIONS,
        ),
    )


_CHECK: Final = _object(
    spec=_object(**{"class": _TEXT}),
    status=_object(status=_TEXT, lastErrorTime=_INSTANT, lastChangeTime=_INSTANT, message=_TEXT),
)
SCHEMAS: Final[dict[str, Json]] = {
    "Rollout": _ROLLOUT,
    "RolloutGate": _GATE,
    "RolloutSchedule": _schedule(),
    "ClusterRolloutSchedule": _schedule(namespaceSelector=_SELECTOR),
    "HealthCheck": _CHECK,
}


def render_kinds() -> list[Json]:
    return [_render(kind, schema) for kind, schema in SCHEMAS.items()]


def _render(kind: str, schema: Json) -> Json:
    plural = f"{kind.lower()}s"
    meta: Json = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": {"type": "object"}}
    version: Json = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {**schema, "properties": {**meta, **schema["properties"]}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster" if kind.startswith("Cluster") else "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
            },
            "versions": [version],
        },
    }
