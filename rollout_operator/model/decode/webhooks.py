"""JSON of Validating- and MutatingWebhookConfigurations → slim objects.

Decides which fields are read and what an absent field means. What the CA bundles should say is left
to `pki.bundle`, what becomes of an object that cannot be read to the caches.
"""

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import msgspec

from rollout_operator.model.decode.objects import only, read_as
from rollout_operator.model.decode.wire import JsonBytes, Required, Strings, Wire
from rollout_operator.model.names import INJECT_CA_LABEL, NAMESPACE_LABEL, Uid
from rollout_operator.model.objects import Webhook, WebhookConfiguration

VALIDATING: Final = "ValidatingWebhookConfiguration"
MUTATING: Final = "MutatingWebhookConfiguration"

_LABELS: Final = (INJECT_CA_LABEL, NAMESPACE_LABEL)


class _Head(Wire):
    name: Required
    uid: Required
    resource_version: Required
    labels: Strings = None


class _Service(Wire):
    name: str = ""
    namespace: str = ""
    path: str | None = None


class _ClientConfig(Wire):
    ca_bundle: str | None = None
    service: _Service | None = None
    url: str | None = None


class _Webhook(Wire):
    name: Required
    client_config: _ClientConfig
    failure_policy: str | None = None


class _Configuration(Wire):
    metadata: _Head
    webhooks: list[_Webhook] | None = None
    kind: str | None = None


_DECODER: Final = msgspec.json.Decoder(_Configuration)


def webhook_decoder(kind: str) -> Callable[[JsonBytes], WebhookConfiguration]:
    """Return the decoder of one of the two kinds. Items of its list, which name no kind, fit.

    The decoder raises DecodeError naming configuration, field and value.
    """

    def decode(raw: JsonBytes) -> WebhookConfiguration:
        wire = read_as(kind, raw, _DECODER)
        return WebhookConfiguration(
            kind=kind,
            name=wire.metadata.name,
            uid=Uid(wire.metadata.uid),
            resource_version=wire.metadata.resource_version,
            labels=only(_LABELS, wire.metadata.labels),
            webhooks=tuple(_convert(webhook) for webhook in wire.webhooks or ()),
        )

    return decode


decode_validating_webhooks: Final = webhook_decoder(VALIDATING)
decode_mutating_webhooks: Final = webhook_decoder(MUTATING)


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
