"""JSON of webhook configurations, of their certificate and of access reviews → what checks read.

Of the operator's Secret only the certificate is read, never a key.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from rollout_operator.model.decode.installation import WireSelector, convert_selector
from rollout_operator.model.decode.objects import read_as
from rollout_operator.model.decode.webhooks import webhook_decoder
from rollout_operator.model.decode.wire import Int32, JsonBytes, Wire
from rollout_operator.model.diagnosis.installation import ADMISSION_PATHS, HookRegistration
from rollout_operator.model.names import NAMESPACE_LABEL
from rollout_operator.model.objects import Webhook, WebhookConfiguration

_Seconds = Annotated[int, Meta(ge=0, le=3600)]


class _ServiceReference(Wire):
    name: str = ""
    namespace: str = ""
    port: Int32 = 443


class _ClientConfig(Wire):
    service: _ServiceReference | None = None


class _Hook(Wire):
    client_config: _ClientConfig
    timeout_seconds: _Seconds = 10
    namespace_selector: WireSelector | None = None


class _Configuration(Wire):
    webhooks: list[_Hook] | None = None
    kind: str | None = None


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


_CONFIGURATION: Final = msgspec.json.Decoder(_Configuration)
_SECRET: Final = msgspec.json.Decoder(_Secret)
_REVIEW: Final = msgspec.json.Decoder(_Review)
_WHO: Final = msgspec.json.Decoder(_Who)


def decode_hooks(kind: str, raw: JsonBytes) -> Sequence[tuple[HookRegistration, str]]:
    """Return the webhooks of a configuration whose paths are ours, each with its `caBundle`.

    Raises DecodeError.
    """
    configuration = webhook_decoder(kind)(raw)
    wires = read_as(kind, raw, _CONFIGURATION).webhooks or ()
    return [
        (_convert(configuration, hook, wire), hook.ca_bundle)
        for hook, wire in zip(configuration.webhooks, wires, strict=True)
        if hook.path in ADMISSION_PATHS
    ]


def _convert(configuration: WebhookConfiguration, hook: Webhook, wire: _Hook) -> HookRegistration:
    service = wire.client_config.service or _ServiceReference()
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
    data = read_as("Secret", raw, _SECRET).data
    try:
        return b64decode(data.cert, validate=True) if data is not None else b""
    except Base64Error:
        return b""


def decode_allowed(kind: str, raw: JsonBytes) -> bool:
    """Return the answer of an access review. Raises DecodeError."""
    return read_as(kind, raw, _REVIEW).status.allowed


def decode_username(raw: JsonBytes) -> str:
    """Return the user that a SelfSubjectReview names. Raises DecodeError."""
    return read_as("SelfSubjectReview", raw, _WHO).status.user_info.username
