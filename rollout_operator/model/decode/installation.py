"""JSON of the objects of an installation and of webhook configurations → `model.diagnosis`.

Decides which fields are read and what an absent field means. Of the operator's Secret only the
certificate is read, never a key. What CA bundles should say is left to `pki`.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Final, Generic, TypeAlias, TypeVar, get_args
from urllib.parse import urlsplit

import msgspec
import msgspec.structs
from msgspec import Meta, Struct

from rollout_operator.model.decode.adoption import decode_adoptable
from rollout_operator.model.decode.objects import decode_statefulset, only, read_as
from rollout_operator.model.decode.wire import Int32, JsonBytes, Required, Strings, Wire, decoder_of
from rollout_operator.model.diagnosis import (
    ADMISSION_PATHS,
    CallableService,
    HookRegistration,
    LabelledPod,
    NativeBudget,
    OperatorDeployment,
    ZoneSet,
)
from rollout_operator.model.names import INJECT_CA_LABEL, NAMESPACE_LABEL, Uid
from rollout_operator.model.objects import (
    LabelSelector,
    SelectorTerm,
    Webhook,
    WebhookConfiguration,
)

_PROGRAM: Final = "rollout-operator"
_KUBERIK: Final = "rollout-controller"
_NAME_LABELS: Final = ("app.kubernetes.io/name", "name")
_SERVICE_LABEL: Final = "kubernetes.io/service-name"
_EXTERNAL: Final = "ExternalName"
_VALIDATING: Final = "ValidatingWebhookConfiguration"
_MUTATING: Final = "MutatingWebhookConfiguration"

_LABELS: Final = (INJECT_CA_LABEL, NAMESPACE_LABEL)

_Seconds = Annotated[int, Meta(ge=0, le=3600)]


class _Head(Wire):
    name: str = ""
    namespace: str = ""
    labels: Strings = None
    annotations: Strings = None


class _Object(Wire, kw_only=True):
    metadata: _Head
    kind: str | None = None


class _Term(Wire):
    key: str
    operator: str
    values: list[str] | None = None


class WireSelector(Wire):
    match_labels: Strings = None
    match_expressions: list[_Term] | None = None


class _Variable(Wire):
    name: str
    value: str = ""
    value_from: dict[str, object] | None = None


class _Container(Wire):
    image: str = ""
    env: list[_Variable] | None = None
    command: list[str] | None = None
    args: list[str] | None = None


class _PodSpec(Wire):
    service_account_name: str = ""
    containers: list[_Container] | None = None


class _Template(Wire):
    metadata: _Head | None = None
    spec: _PodSpec | None = None


class _DeploymentSpec(Wire):
    template: _Template
    replicas: Int32 | None = None


class _DeploymentStatus(Wire):
    ready_replicas: Int32 = 0


class _Deployment(_Object):
    spec: _DeploymentSpec
    status: _DeploymentStatus | None = None


class _SetSpec(Wire):
    template: _Template | None = None


class _Set(_Object):
    spec: _SetSpec


class _PodHead(_Head):
    deletion_timestamp: str | None = None


class _Condition(Wire):
    type: str = ""
    status: str = ""


class _PodStatus(Wire):
    conditions: list[_Condition] | None = None


class _Pod(Wire):
    metadata: _PodHead
    status: _PodStatus | None = None
    kind: str | None = None


class _ServicePort(Wire):
    port: Int32
    name: str = ""


class _ServiceSpec(Wire):
    type: str = "ClusterIP"
    ports: list[_ServicePort] | None = None


class _Service(_Object):
    spec: _ServiceSpec


class _EndpointConditions(Wire):
    ready: bool | None = None


class _Endpoint(Wire):
    conditions: _EndpointConditions | None = None


class _EndpointSlice(_Object):
    endpoints: list[_Endpoint] | None = None


class _BudgetSpec(Wire):
    selector: WireSelector | None = None
    max_unavailable: int | str | None = None
    min_available: int | str | None = None


class _Budget(_Object):
    spec: _BudgetSpec


class _Schema(Wire):
    properties: dict[str, "_Schema"] | None = None
    items: "_Schema | None" = None
    keeps_all: bool = msgspec.field(default=False, name="x-kubernetes-preserve-unknown-fields")


Shape: TypeAlias = type[Struct] | Mapping[str, "Shape | None"]
"""The fields that are read or written; of a mapping, None for those that have none themselves."""


class _VersionSchema(Wire):
    open_api_v3_schema: _Schema = msgspec.field(default_factory=_Schema, name="openAPIV3Schema")


class _Version(Wire):
    name: str
    served: bool = False
    schema: _VersionSchema = msgspec.field(default_factory=_VersionSchema)


class _DefinitionSpec(Wire):
    versions: list[_Version]


class _Definition(Wire):
    spec: _DefinitionSpec
    kind: str | None = None


class _FullTemplate(Wire):
    spec: dict[str, object]
    metadata: _Head = msgspec.field(default_factory=_Head)


class _Claim(Wire):
    metadata: _Head


class _FullSetSpec(Wire):
    template: _FullTemplate
    volume_claim_templates: list[_Claim] | None = None


class _FullSet(_Object):
    spec: _FullSetSpec


def decode_operator(raw: JsonBytes) -> OperatorDeployment | None:
    """Return a Deployment that runs an operator, None for any other. Raises DecodeError."""
    wire = read_as("Deployment", raw, decoder_of(_Deployment))
    pod = wire.spec.template.spec or _PodSpec()
    containers = pod.containers or []
    container = next((container for container in containers if _is_program(container.image)), None)
    if container is None and _is_named(wire.metadata) and containers:
        container = containers[0]
    if container is None:
        return None
    return OperatorDeployment(
        name=wire.metadata.name,
        namespace=wire.metadata.namespace,
        account=pod.service_account_name or "default",
        arguments=(*(container.command or ()), *(container.args or ())),
        variables={variable.name: _get_value(variable) for variable in container.env or ()},
        replicas=1 if wire.spec.replicas is None else wire.spec.replicas,
        ready=wire.status.ready_replicas if wire.status is not None else 0,
    )


def decode_kuberik(raw: JsonBytes) -> str:
    """Return the namespace and name of a Deployment that runs kuberik's controller of releases.

    Empty for any other, and for a Deployment without replicas. Raises DecodeError.
    """
    wire = read_as("Deployment", raw, decoder_of(_Deployment))
    pod = wire.spec.template.spec or _PodSpec()
    is_kuberik = any(_is_image(each.image, _KUBERIK) for each in pod.containers or ())
    head = wire.metadata
    return f"{head.namespace}/{head.name}" if is_kuberik and wire.spec.replicas != 0 else ""


def _get_value(variable: _Variable) -> str:
    return variable.value if variable.value_from is None else f"$({variable.name})"


def _is_program(image: str) -> bool:
    return _is_image(image, _PROGRAM)


def _is_image(image: str, program: str) -> bool:
    """Recognise a program's image by the last part of its name, without tag and digest."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0].endswith(program)


def _is_named(head: _Head) -> bool:
    return any((head.labels or {}).get(key) == _PROGRAM for key in _NAME_LABELS)


def decode_zone_set(raw: JsonBytes) -> ZoneSet:
    wire = read_as("StatefulSet", raw, decoder_of(_Set))
    template = wire.spec.template
    head = template.metadata if template is not None else None
    return ZoneSet(
        sts=decode_statefulset(raw),
        labels=wire.metadata.labels or {},
        annotations=wire.metadata.annotations or {},
        pod_labels=(head.labels if head is not None else None) or {},
        placed=decode_adoptable(raw),
    )


def decode_labelled_pod(raw: JsonBytes) -> LabelledPod:
    wire = read_as("Pod", raw, decoder_of(_Pod))
    head, status = wire.metadata, wire.status or _PodStatus()
    is_ready = any(
        (condition.type, condition.status) == ("Ready", "True")
        for condition in status.conditions or ()
    )
    return LabelledPod(
        name=head.name,
        labels=head.labels or {},
        is_ready=is_ready and head.deletion_timestamp is None,
    )


def decode_namespace_labels(raw: JsonBytes) -> dict[str, str]:
    return read_as("Namespace", raw, decoder_of(_Object)).metadata.labels or {}


def decode_service(raw: JsonBytes) -> CallableService:
    wire = read_as("Service", raw, decoder_of(_Service))
    return CallableService(
        name=wire.metadata.name,
        labels=wire.metadata.labels or {},
        ports=tuple(port.port for port in wire.spec.ports or ()),
        named_ports={port.name: port.port for port in wire.spec.ports or () if port.name},
        has_endpoints=wire.spec.type != _EXTERNAL,
    )


def decode_endpoints(raw: JsonBytes) -> tuple[str, int]:
    """Return the Service of an EndpointSlice, and how many endpoints are ready in it.

    Raises DecodeError.
    """
    wire = read_as("EndpointSlice", raw, decoder_of(_EndpointSlice))
    endpoints = wire.endpoints or ()
    # Absent means ready, as the API has it.
    ready = [
        endpoint
        for endpoint in endpoints
        if not endpoint.conditions or endpoint.conditions.ready is not False
    ]
    return (wire.metadata.labels or {}).get(_SERVICE_LABEL, ""), len(ready)


def decode_native_budget(raw: JsonBytes) -> NativeBudget:
    wire = read_as("PodDisruptionBudget", raw, decoder_of(_Budget))
    spec = wire.spec
    return NativeBudget(
        name=wire.metadata.name,
        selector=None if spec.selector is None else convert_selector(spec.selector),
        max_unavailable="" if spec.max_unavailable is None else f"{spec.max_unavailable}",
        min_available="" if spec.min_available is None else f"{spec.min_available}",
    )


def decode_served_versions(raw: JsonBytes) -> tuple[str, ...]:
    """Return the versions that a CustomResourceDefinition serves. Raises DecodeError."""
    wire = read_as("CustomResourceDefinition", raw, decoder_of(_Definition))
    return tuple(version.name for version in wire.spec.versions if version.served)


def decode_missing_fields(
    raw: JsonBytes, version: str, shapes: Mapping[str, Shape]
) -> tuple[str, ...]:
    """Return the fields of a kind that a version of its definition lacks. Raises DecodeError.

    The API server drops them from what is written. None are missing where it keeps all.
    """
    definition = read_as("CustomResourceDefinition", raw, decoder_of(_Definition))
    return tuple(
        name
        for one in definition.spec.versions
        if one.name == version
        for name in _list_missing(one.schema.open_api_v3_schema, shapes, "")
    )


def _list_missing(schema: _Schema, shape: Shape, place: str) -> Iterator[str]:
    schema = schema.items or schema
    if schema.keeps_all:
        return
    for field, part in _list_fields(shape):
        below = (schema.properties or {}).get(field)
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


def convert_selector(wire: WireSelector | None) -> LabelSelector:
    """Return a selector; an absent selector selects everything, as webhooks have it."""
    if wire is None:
        return LabelSelector()
    return LabelSelector(
        labels=wire.match_labels or {},
        terms=tuple(
            SelectorTerm(
                key=expression.key,
                operator=expression.operator,
                values=tuple(expression.values or ()),
            )
            for expression in wire.match_expressions or ()
        ),
    )


def decode_pod_to_try(raw: JsonBytes) -> tuple[str, dict[str, object]]:
    """Return the name of a StatefulSet and the pod that it would create, under another name.

    As far as admission judges it: volumes of claims are there, the claims themselves are not.
    Raises DecodeError where the set has no template.
    """
    wire = read_as("StatefulSet", raw, decoder_of(_FullSet))
    name = wire.metadata.name
    spec = dict(wire.spec.template.spec)
    volumes = spec.get("volumes")
    claimed = [
        {"name": template.metadata.name, "persistentVolumeClaim": {"claimName": "doctor"}}
        for template in wire.spec.volume_claim_templates or ()
    ]
    if claimed:
        spec["volumes"] = [*(volumes if isinstance(volumes, list) else ()), *claimed]
    return name, {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name}-doctor-",
            "labels": wire.spec.template.metadata.labels or {},
            "annotations": wire.spec.template.metadata.annotations or {},
        },
        "spec": spec,
    }


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
class _RegisteredService(_WebhookService):
    port: Int32 = 443


class _RegisteredClient(_ClientConfig):
    service: _RegisteredService | None = None


class _Registered(_Webhook, kw_only=True):
    client_config: _RegisteredClient
    timeout_seconds: _Seconds = 10
    namespace_selector: WireSelector | None = None


class _Certificates(Wire):
    cert: str = ""


class _Secret(Wire):
    data: _Certificates | None = None
    kind: str | None = None


class _ReviewStatus(Wire):
    allowed: bool


class _Review(Wire):
    status: _ReviewStatus
    kind: str | None = None


class _UserInfo(Wire):
    username: str = ""


class _WhoStatus(Wire):
    user_info: _UserInfo


class _Who(Wire):
    status: _WhoStatus
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
    service = wire.client_config.service or _RegisteredService()
    return HookRegistration(
        configuration=f"{configuration.kind} {configuration.name}",
        name=hook.name,
        owner=configuration.labels.get(NAMESPACE_LABEL, ""),
        path=hook.path,
        service_namespace=service.namespace,
        service=service.name,
        port=service.port,
        failure_policy=hook.failure_policy,
        timeout=timedelta(seconds=wire.timeout_seconds),
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
    return read_as(kind, raw, decoder_of(_Review)).status.allowed


def decode_username(raw: JsonBytes) -> str:
    return read_as("SelfSubjectReview", raw, decoder_of(_Who)).status.user_info.username
