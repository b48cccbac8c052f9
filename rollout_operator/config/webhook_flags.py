"""The flags of the webhooks, of their certificates and of the calls to pods, and their checks.

Decides what they mean together. Flags of other parts and the order of all checks are in `flags`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from rollout_operator.config.grammar import BOOL, DURATION, INT, LIST, LONG_SPAN, TEXT, Flag, Words
from rollout_operator.model.units import format_duration, quote

_HIGHEST_PORT: Final = 65535
_DNS_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\.?")
# The longest name of an object, and of a host.
_LONGEST_NAME: Final = 253
# The expiry of a certificate is written with a year of four digits.
_LONGEST_EXPIRATION: Final = timedelta(days=365 * 100)

_WEBHOOKS: Final = "Webhooks"
_CERTIFICATES: Final = "Certificates of the webhooks"
_PODS: Final = "Requests to pods"

ENABLED: Final = Flag(
    name="server-tls.enabled",
    kind=BOOL,
    default=False,
    group=_WEBHOOKS,
    help="Serve the admission webhooks over TLS.",
)
PORT: Final = Flag(
    name="server-tls.port",
    kind=INT,
    default=8443,
    group=_WEBHOOKS,
    help="TCP port of the webhooks, on all addresses. 0 takes any free port.",
)
REQUEST_TIMEOUT: Final = Flag(
    name="server-tls.request-timeout",
    kind=DURATION,
    default=timedelta(seconds=10),
    group=_WEBHOOKS,
    help="Time of one request; a review is answered after 90 % of it at the latest, or of the"
    " time-out that the API server names. Must be positive.",
)
CLIENT_CA: Final = Flag(
    name="server-tls.client-ca-file",
    kind=TEXT,
    default="",
    group=_WEBHOOKS,
    help="Path of PEM certificates: only clients with a certificate of one of these CAs are"
    " served. Empty: anyone is.",
)
CLIENT_NAME: Final = Flag(
    name="server-tls.client-name",
    kind=TEXT,
    default="",
    group=_WEBHOOKS,
    help="Common name that such a certificate must have. Empty: any. Needs"
    " -server-tls.client-ca-file.",
)
FAIL_CLOSED: Final = Flag(
    name="no-downscale.fail-closed",
    kind=BOOL,
    default=False,
    group=_WEBHOOKS,
    help="Let no-downscale refuse, to be tried again, what it cannot read at the moment or cannot"
    " understand. By default such requests are allowed with a warning.",
)
UPDATE_BUNDLE: Final = Flag(
    name="webhooks.update-ca-bundle",
    kind=BOOL,
    default=True,
    group=_WEBHOOKS,
    help="Write the CA into the webhook configurations that carry the labels for it. Needs"
    " -server-tls.self-signed-cert.enabled.",
)
BUNDLE_NAMES: Final = Flag(
    name="webhooks.ca-bundle-names",
    kind=LIST,
    default=(),
    group=_WEBHOOKS,
    help="Names of the only webhook configurations to look at, separated by commas, so that the"
    " ClusterRole can name them. Empty: all that carry the labels.",
)
SELF_SIGNED: Final = Flag(
    name="server-tls.self-signed-cert.enabled",
    kind=BOOL,
    default=True,
    group=_CERTIFICATES,
    help="Issue the certificate ourselves, and keep it in a Secret.",
)
SECRET_NAME: Final = Flag(
    name="server-tls.self-signed-cert.secret-name",
    kind=TEXT,
    default="rollout-operator-self-signed-certificate",
    group=_CERTIFICATES,
    help="Name of that Secret. One with the data of another application is never written: the"
    " operator stays unready and says so.",
)
DNS_NAME: Final = Flag(
    name="server-tls.self-signed-cert.dns-name",
    kind=TEXT,
    default="",
    group=_CERTIFICATES,
    help="DNS name that the certificate is for. Empty: rollout-operator.NAMESPACE.svc.",
)
ORGANISATION: Final = Flag(
    name="server-tls.self-signed-cert.org",
    kind=TEXT,
    default="Grafana Labs",
    group=_CERTIFICATES,
    help="Organisation in the certificate.",
)
EXPIRATION: Final = Flag(
    name="server-tls.self-signed-cert.expiration",
    kind=LONG_SPAN,
    default=timedelta(days=365),
    group=_CERTIFICATES,
    help="How long the certificate lasts, as a Prometheus duration. It is renewed, without a"
    " restart, when a third of that is left.",
)
CERT_FILE: Final = Flag(
    name="server-tls.cert-file",
    kind=TEXT,
    default="",
    group=_CERTIFICATES,
    help="Path of a certificate chain (PEM), where it is not self-signed. Read again when it"
    " changes.",
)
KEY_FILE: Final = Flag(
    name="server-tls.key-file",
    kind=TEXT,
    default="",
    group=_CERTIFICATES,
    help="Path of its key (PEM).",
)
PODS_TIMEOUT: Final = Flag(
    name="pods.client-timeout",
    kind=DURATION,
    default=timedelta(seconds=5),
    group=_PODS,
    help="Time of one request to a pod. Must be positive.",
)
CLUSTER_DOMAIN: Final = Flag(
    name="kubernetes.cluster-domain",
    kind=TEXT,
    default="cluster.local.",
    group=_PODS,
    help="DNS domain of the cluster, for the names by which pods are called.",
)

WEBHOOK_FLAGS: Final[tuple[Flag[Any], ...]] = (
    ENABLED,
    PORT,
    REQUEST_TIMEOUT,
    CLIENT_CA,
    CLIENT_NAME,
    FAIL_CLOSED,
    UPDATE_BUNDLE,
    BUNDLE_NAMES,
    SELF_SIGNED,
    SECRET_NAME,
    DNS_NAME,
    ORGANISATION,
    EXPIRATION,
    CERT_FILE,
    KEY_FILE,
    PODS_TIMEOUT,
    CLUSTER_DOMAIN,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfSigned:
    """The certificate that we issue ourselves."""

    secret_name: str
    dns_name: str
    organisation: str
    expiration: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenCertificate:
    """A certificate that somebody else issues."""

    certificate: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookConfig:
    """What the webhooks are told, checked."""

    port: int
    request_timeout: timedelta
    client_ca_file: str
    client_name: str
    fails_closed: bool
    """Whether no-downscale refuses what it cannot check."""
    updates_bundle: bool
    bundle_names: tuple[str, ...]
    certificate: SelfSigned | GivenCertificate


def read_webhooks(words: Words, namespace: str) -> WebhookConfig | None:
    """Return what the words say of webhooks, None where they are not switched on."""
    if not words.value(ENABLED):
        return None
    return WebhookConfig(
        port=words.value(PORT),
        request_timeout=words.value(REQUEST_TIMEOUT),
        client_ca_file=words.value(CLIENT_CA),
        client_name=words.value(CLIENT_NAME),
        fails_closed=words.value(FAIL_CLOSED),
        updates_bundle=words.value(UPDATE_BUNDLE),
        bundle_names=words.value(BUNDLE_NAMES),
        certificate=_read_certificate(words, namespace),
    )


def check_cluster_domain(words: Words) -> Iterator[str]:
    """Yield what is wrong with the domain, whether webhooks are switched on or not."""
    domain = words.value(CLUSTER_DOMAIN)
    if not domain:
        yield f"-{CLUSTER_DOMAIN.name} cannot be an empty string"
    if not _is_dns_name(domain):
        yield f"-{CLUSTER_DOMAIN.name}: {quote(domain)} is not a DNS name"


def check_webhook_spans(words: Words) -> Iterator[str]:
    """Yield what is wrong with time-outs, whether webhooks are switched on or not."""
    for flag in (REQUEST_TIMEOUT, PODS_TIMEOUT):
        if words.value(flag) <= timedelta(0):
            yield f"-{flag.name} must be positive: {format_duration(words.value(flag))}"


def check_webhooks(words: Words) -> Iterator[str]:
    """Yield what else is wrong; the certificate is looked at only where it is to be served."""
    if not 0 <= words.value(PORT) <= _HIGHEST_PORT:
        yield f"-{PORT.name} must be from 0 to {_HIGHEST_PORT}: {words.value(PORT)}"
    if words.value(CLIENT_NAME) and not words.value(CLIENT_CA):
        yield f"-{CLIENT_NAME.name} needs -{CLIENT_CA.name}"
    for name in words.value(BUNDLE_NAMES):
        if not is_object_name(name):
            yield f"-{BUNDLE_NAMES.name}: {quote(name)} is not a name of a webhook configuration"
    if words.value(ENABLED):
        yield from _check_certificate(words)


def _check_certificate(words: Words) -> Iterator[str]:
    if not words.value(SELF_SIGNED):
        yield from _check_files(words)
        return
    if not is_object_name(words.value(SECRET_NAME)):
        yield f"-{SECRET_NAME.name}: {quote(words.value(SECRET_NAME))} is not a name of a Secret"
    name = words.value(DNS_NAME)
    if name and not _is_dns_name(name):
        yield f"-{DNS_NAME.name}: {quote(name)} is not a DNS name"
    span = words.value(EXPIRATION)
    if not timedelta(0) < span <= _LONGEST_EXPIRATION:
        yield (
            f"-{EXPIRATION.name} must be positive and at most 100y: {EXPIRATION.kind.show(span)}"
        )


def _check_files(words: Words) -> Iterator[str]:
    for flag in (CERT_FILE, KEY_FILE):
        if not words.value(flag):
            yield f"-{flag.name} is needed where -{SELF_SIGNED.name} is false"
    if words.value(UPDATE_BUNDLE):
        yield (
            f"-{UPDATE_BUNDLE.name} needs -{SELF_SIGNED.name}:"
            f" with certificates from files give -{UPDATE_BUNDLE.name}=false"
        )


def _read_certificate(words: Words, namespace: str) -> SelfSigned | GivenCertificate:
    if not words.value(SELF_SIGNED):
        return GivenCertificate(certificate=words.value(CERT_FILE), key=words.value(KEY_FILE))
    return SelfSigned(
        secret_name=words.value(SECRET_NAME),
        dns_name=words.value(DNS_NAME) or f"rollout-operator.{namespace}.svc",
        organisation=words.value(ORGANISATION),
        expiration=words.value(EXPIRATION),
    )


def is_object_name(name: str) -> bool:
    """Tell whether an object may be called that."""
    return _is_dns_name(name) and not name.endswith(".")


def _is_dns_name(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _DNS_NAME.fullmatch(name) is not None
