"""JSON of the objects of an installation and of webhook configurations → `model.diagnosis`.

Decides which fields are read and what an absent field means. Of the operator's Secret only the
certificate is read, never a key. What CA bundles should say is left to `pki`.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar, get_args
from urllib.parse import urlsplit

import msgspec
import msgspec.structs
from msgspec import Struct

from rollout_operator.model.decode.adoption import decode_adoptable
from rollout_operator.model.decode.objects import decode_statefulset, only, read_as
from rollout_operator.model.decode.wire import (
    JsonBytes,
    Required,
    Strings,
    Wire,
    WireSelector,
    convert_selector,
    decoder_of,
)
from rollout_operator.model.diagnosis import (
    ADMISSION_PATHS,
    CallableService,
    HookRegistration,
    OperatorDeployment,
    ZoneSet,
)
from rollout_operator.model.names import INJECT_CA_LABEL, NAMESPACE_LABEL, Uid
from rollout_operator.model.objects import Webhook, WebhookConfiguration

_NAME_LABELS: Final = ("app.kubernetes.io/name", "name")
_VALIDATING: Final = "ValidatingWebhookConfiguration"
_MUTATING: Final = "MutatingWebhookConfiguration"

_LABELS: Final = (INJECT_CA_LABEL, NAMESPACE_LABEL)


Shape: TypeAlias = type[Struct] | Mapping[str, "Shape | None"]
"""The fields that are read or written; of a mapping, None for those that have none themselves."""


class _Head(Wire):
    name: str = ""
    namespace: str = ""
    labels: Strings = None
    annotations: Strings = None


class _Object(Wire, kw_only=True):
    """Any object whose shape the API server itself has checked."""

    kind: str | None = None
    metadata: _Head = msgspec.field(default_factory=_Head)
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


def _read(kind: str, raw: JsonBytes) -> _Object:
    return read_as(kind, raw, decoder_of(_Object))


def decode_operator(raw: JsonBytes, program: str) -> OperatorDeployment | None:
    """Return a Deployment that runs a program, None for any other. Raises DecodeError."""
    wire = _read("Deployment", raw)
    pod = wire.spec["template"].get("spec", {})
    containers = pod.get("containers") or []
    labels = wire.metadata.labels or {}
    own = [each for each in containers if _is_image(each.get("image", ""), program)]
    if not own and program in map(labels.get, _NAME_LABELS):
        own = containers
    if not own:
        return None
    return OperatorDeployment(
        name=wire.metadata.name,
        namespace=wire.metadata.namespace,
        account=pod.get("serviceAccountName") or "default",
        arguments=(*(own[0].get("command") or ()), *(own[0].get("args") or ())),
        variables={
            each["name"]: f"$({each['name']})" if each.get("valueFrom") else each.get("value", "")
            for each in own[0].get("env") or ()
        },
        replicas=wire.spec.get("replicas", 1),
        ready=wire.status.get("readyReplicas", 0),
    )


def _is_image(image: str, program: str) -> bool:
    """Recognise a program's image by the last part of its name, without tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0].endswith(program)


def decode_zone_set(raw: JsonBytes) -> ZoneSet:
    placed, wire = decode_adoptable(raw), _read("StatefulSet", raw)
    return ZoneSet(
        sts=decode_statefulset(raw),
        labels=placed.labels,
        annotations=placed.annotations,
        pod_labels=placed.pod_labels,
        placed=placed,
        pod=_make_pod(placed.name, wire.spec),
    )


def _make_pod(name: str, spec: dict[str, Any]) -> dict[str, object]:
    """Return the pod that a StatefulSet would create, under another name.

    As far as admission judges it: volumes of claims are there, the claims themselves are not.
    """
    template = spec.get("template") or {}
    head = template.get("metadata") or {}
    pod = {**(template.get("spec") or {})}
    if claims := spec.get("volumeClaimTemplates"):
        pod["volumes"] = [
            *(pod.get("volumes") or ()),
            *(
                {
                    "name": claim["metadata"]["name"],
                    "persistentVolumeClaim": {"claimName": "doctor"},
                }
                for claim in claims
            ),
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name}-doctor-",
            **{key: head[key] for key in ("labels", "annotations") if head.get(key)},
        },
        "spec": pod,
    }


def decode_namespace_labels(raw: JsonBytes) -> dict[str, str]:
    return _read("Namespace", raw).metadata.labels or {}


def decode_service(raw: JsonBytes) -> CallableService:
    wire = _read("Service", raw)
    ports = wire.spec.get("ports") or ()
    return CallableService(
        name=wire.metadata.name,
        labels=wire.metadata.labels or {},
        ports=tuple(port["port"] for port in ports),
        named_ports={port["name"]: port["port"] for port in ports if port.get("name")},
    )


def decode_served_versions(raw: JsonBytes) -> tuple[str, ...]:
    """Return the versions that a CustomResourceDefinition serves. Raises DecodeError."""
    versions = _read("CustomResourceDefinition", raw).spec["versions"]
    return tuple(version["name"] for version in versions if version.get("served"))


def decode_missing_fields(
    raw: JsonBytes, version: str, shapes: Mapping[str, Shape]
) -> tuple[str, ...]:
    """Return the fields of a kind that a version of its definition lacks. Raises DecodeError.

    The API server drops them from what is written. None are missing where it keeps all.
    """
    return tuple(
        name
        for each in _read("CustomResourceDefinition", raw).spec["versions"]
        if each["name"] == version
        for name in _list_missing(each.get("schema", {}).get("openAPIV3Schema", {}), shapes, "")
    )


def _list_missing(schema: Mapping[str, Any], shape: Shape, place: str) -> Iterator[str]:
    schema = schema.get("items", schema)
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for field, part in _list_fields(shape):
        below = schema.get("properties", {}).get(field)
        if below is None:
            yield f"{place}{field}"
        elif part is not None:
            yield from _list_missing(below, part, f"{place}{field}.")


def _list_fields(shape: Shape) -> Iterator[tuple[str, Shape | None]]:
    """Yield the fields of a shape, each with its own shape if it has fields."""
    if isinstance(shape, Mapping):
        yield from shape.items()
        return
    for field in msgspec.structs.fields(shape):
        yield field.encode_name, next(_list_structs(field.type), None)


def _list_structs(of: object) -> Iterator[type[Struct]]:
    """Yield the structs in a type, such as `list[Struct] | None`."""
    if isinstance(of, type) and issubclass(of, Struct):
        yield of
    for part in get_args(of):
        yield from _list_structs(part)


class _WebhookHead(Wire):
    name: Required
    uid: Required
    resource_version: Required
    labels: Strings = None


class _WebhookService(Wire):
    name: str = ""
    namespace: str = ""
    path: str | None = None


class _ClientConfig(Wire):
    ca_bundle: str | None = None
    service: _WebhookService | None = None
    url: str | None = None


class _Webhook(Wire):
    name: Required
    client_config: _ClientConfig
    failure_policy: str | None = None


_Hook = TypeVar("_Hook", bound=_Webhook)


class _Configuration(Wire, Generic[_Hook]):
    metadata: _WebhookHead
    webhooks: list[_Hook] | None = None
    kind: str | None = None


def webhook_decoder(kind: str) -> Callable[[JsonBytes], WebhookConfiguration]:
    """Return the decoder of one of the two kinds. Items of its list, which name no kind, fit.

    The decoder raises DecodeError naming configuration, field and value.
    """

    def decode(raw: JsonBytes) -> WebhookConfiguration:
        wire = read_as(kind, raw, decoder_of(_Configuration[_Webhook]))
        return _convert_configuration(kind, wire)

    return decode


def _convert_configuration(kind: str, wire: _Configuration[_Hook]) -> WebhookConfiguration:
    return WebhookConfiguration(
        kind=kind,
        name=wire.metadata.name,
        uid=Uid(wire.metadata.uid),
        resource_version=wire.metadata.resource_version,
        labels=only(_LABELS, wire.metadata.labels),
        webhooks=tuple(_convert(webhook) for webhook in wire.webhooks or ()),
    )


decode_validating_webhooks: Final = webhook_decoder(_VALIDATING)
decode_mutating_webhooks: Final = webhook_decoder(_MUTATING)


def _convert(wire: _Webhook) -> Webhook:
    return Webhook(
        name=wire.name,
        ca_bundle=wire.client_config.ca_bundle or "",
        # The API server's own default.
        failure_policy=wire.failure_policy or "Fail",
        path=_path(wire.client_config),
        host=_host(wire.client_config),
    )


def _path(config: _ClientConfig) -> str:
    """Return the path that is called, empty where the configuration names no usable path."""
    if config.service is not None:
        return config.service.path or ""
    try:
        return urlsplit(config.url or "").path
    except ValueError:  # such as half an IPv6 address
        return ""


def _host(config: _ClientConfig) -> str:
    """Return the name that the API server wants proven, empty where there is none."""
    if config.service is not None:
        return f"{config.service.name}.{config.service.namespace}.svc".lower()
    try:
        return urlsplit(config.url or "").hostname or ""
    except ValueError:
        return ""


# What `doctor` alone reads: an odd value there must not keep the CA from a configuration.
class _Registered(_Webhook, kw_only=True):
    namespace_selector: WireSelector | None = None


class _Certificate(Wire):
    cert: str = ""


class _Secret(Wire):
    data: _Certificate | None = None
    kind: str | None = None


def decode_hooks(kind: str, raw: JsonBytes) -> Sequence[tuple[HookRegistration, str]]:
    """Return the webhooks of a configuration whose paths are ours, each with its `caBundle`.

    Raises DecodeError.
    """
    wire = read_as(kind, raw, decoder_of(_Configuration[_Registered]))
    configuration = _convert_configuration(kind, wire)
    return [
        (_convert_registered(configuration, hook, wired), hook.ca_bundle)
        for hook, wired in zip(configuration.webhooks, wire.webhooks or (), strict=True)
        if hook.path in ADMISSION_PATHS
    ]


def _convert_registered(
    configuration: WebhookConfiguration, hook: Webhook, wire: _Registered
) -> HookRegistration:
    service = wire.client_config.service or _WebhookService()
    return HookRegistration(
        configuration=f"{configuration.kind} {configuration.name}",
        name=hook.name,
        owner=configuration.labels.get(NAMESPACE_LABEL, ""),
        path=hook.path,
        service_namespace=service.namespace,
        failure_policy=hook.failure_policy,
        selects=convert_selector(wire.namespace_selector),
    )


def decode_certificate(raw: JsonBytes) -> bytes:
    """Return the PEM of the certificate in the operator's Secret, and nothing else of it.

    Empty where there is none. Raises DecodeError, which shows no content.
    """
    data = read_as("Secret", raw, decoder_of(_Secret)).data
    try:
        return b64decode(data.cert, validate=True) if data is not None else b""
    except Base64Error:
        return b""


def decode_allowed(kind: str, raw: JsonBytes) -> bool:
    return bool(_read(kind, raw).status.get("allowed"))


def decode_username(raw: JsonBytes) -> str:
    return f"{_read('SelfSubjectReview', raw).status.get('userInfo', {}).get('username', '')}"
