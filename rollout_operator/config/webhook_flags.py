"""Flags of the webhooks and their certificates."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rollout_operator.config.grammar import BOOL, DURATION, INT, LIST, LONG_SPAN, TEXT, flag

_WEBHOOKS: Final = "Webhooks"
_CERTIFICATES: Final = "Certificates of the webhooks"


# fmt: off
@dataclass(frozen=True, kw_only=True)
class WebhookFlags:
    """Whether and how webhooks are served."""

    webhooks_enabled: bool = flag(
        "server-tls.enabled", BOOL, False, _WEBHOOKS,
        "Serve the admission webhooks over TLS.",
    )
    webhooks_port: int = flag(
        "server-tls.port", INT, 8443, _WEBHOOKS,
        "TCP port of the webhooks, on all addresses. 0 takes any free port.",
    )
    request_timeout: timedelta = flag(
        "server-tls.request-timeout", DURATION, timedelta(seconds=10), _WEBHOOKS,
        "Time of one request. The operator answers a review after 90 % of it at the latest,"
        " or of the time-out that the API server names. Must be positive.",
    )
    client_ca_file: str = flag(
        "server-tls.client-ca-file", TEXT, "", _WEBHOOKS,
        "Path of PEM certificates: the operator serves only clients with a certificate of one"
        " of these CAs. Empty: it serves every client.",
    )
    client_name: str = flag(
        "server-tls.client-name", TEXT, "", _WEBHOOKS,
        "Common name that such a certificate must have. Empty: any. Needs"
        " -server-tls.client-ca-file.",
    )
    fails_closed: bool = flag(
        "no-downscale.fail-closed", BOOL, False, _WEBHOOKS,
        "Let no-downscale refuse, to be tried again, what it cannot read at the moment or"
        " cannot understand. By default it allows such requests with a warning.",
    )
    updates_bundle: bool = flag(
        "webhooks.update-ca-bundle", BOOL, True, _WEBHOOKS,
        "Write the CA into the webhook configurations that carry the labels for it. Needs"
        " -server-tls.self-signed-cert.enabled.",
    )
    bundle_names: tuple[str, ...] = flag(
        "webhooks.ca-bundle-names", LIST, (), _WEBHOOKS,
        "Names of the only webhook configurations to look at, separated by commas, so that"
        " the ClusterRole can name them. Empty: all that carry the labels.",
    )
    self_signed: bool = flag(
        "server-tls.self-signed-cert.enabled", BOOL, True, _CERTIFICATES,
        "Issue the certificate, and keep it in a Secret.",
    )
    secret_name: str = flag(
        "server-tls.self-signed-cert.secret-name",
        TEXT, "rollout-operator-self-signed-certificate", _CERTIFICATES,
        "Name of that Secret. The operator never writes one with the data of another"
        " application: it stays unready and says so.",
    )
    dns_name: str = flag(
        "server-tls.self-signed-cert.dns-name", TEXT, "", _CERTIFICATES,
        "DNS name that the certificate is for. Empty: rollout-operator.NAMESPACE.svc.",
    )
    organisation: str = flag(
        "server-tls.self-signed-cert.org", TEXT, "Grafana Labs", _CERTIFICATES,
        "Organisation in the certificate.",
    )
    expiration: timedelta = flag(
        "server-tls.self-signed-cert.expiration", LONG_SPAN, timedelta(days=365), _CERTIFICATES,
        "How long the certificate lasts, as a Prometheus duration. The operator renews it,"
        " without a restart, when a third of that is left.",
    )
    cert_file: str = flag(
        "server-tls.cert-file", TEXT, "", _CERTIFICATES,
        "Path of a certificate chain (PEM), instead of a self-signed one. The operator reads"
        " it again when it changes.",
    )
    key_file: str = flag(
        "server-tls.key-file", TEXT, "", _CERTIFICATES,
        "Path of its key (PEM).",
    )
# fmt: on
