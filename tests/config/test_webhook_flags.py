"""The flags of webhooks, certificates and calls to pods: FLAG-18, 19, 26 to 36, 40 to 42, T-12."""

from datetime import timedelta
from typing import Final

import pytest

from rollout_operator.config.flags import Config
from rollout_operator.config.webhook_flags import (
    WEBHOOK_FLAGS,
    GivenCertificate,
    SelfSigned,
    WebhookConfig,
)
from rollout_operator.model.errors import ConfigError

IN_NAMESPACE: Final = "-kubernetes.namespace=prod"
ON: Final = "-server-tls.enabled"
FILES: Final = (
    "-server-tls.self-signed-cert.enabled=false",
    "-server-tls.cert-file=/tls/tls.crt",
    "-server-tls.key-file=/tls/tls.key",
)
NO_BUNDLE: Final = "-webhooks.update-ca-bundle=false"
DEFAULTS: Final = WebhookConfig(
    port=8443,
    request_timeout=timedelta(seconds=10),
    client_ca_file="",
    client_name="",
    fails_closed=False,
    updates_bundle=True,
    bundle_names=(),
    certificate=SelfSigned(
        secret_name="rollout-operator-self-signed-certificate",
        dns_name="rollout-operator.prod.svc",
        organisation="Grafana Labs",
        expiration=timedelta(days=365),
    ),
)


def configure(*words: str) -> WebhookConfig | None:
    return Config.from_args([IN_NAMESPACE, *words]).webhooks


def refuse(*words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        Config.from_args([*words])
    assert caught.value.exit_code == 1, "DEP-04"
    return str(caught.value)


def test_webhooks_are_off_by_default() -> None:
    """FLAG-26."""
    assert configure() is None
    assert configure(f"{ON}=false", "-server-tls.port=1") is None


def test_webhooks_by_default() -> None:
    """FLAG-18, 19, 27, 30 to 36."""
    assert configure(ON) == DEFAULTS
    assert configure(f"{ON}=true") == DEFAULTS


def test_every_flag_reaches_its_field() -> None:
    assert configure(
        ON,
        "-server-tls.port=9443",
        "-server-tls.request-timeout=1m",
        "-server-tls.client-ca-file=/ca.pem",
        "-server-tls.client-name=kube-apiserver",
        "-no-downscale.fail-closed",
        "-webhooks.update-ca-bundle=false",
        "-webhooks.ca-bundle-names=one,two.three",
        "-server-tls.self-signed-cert.enabled=true",
        "-server-tls.self-signed-cert.secret-name=secret",
        "-server-tls.self-signed-cert.dns-name=operator.here.svc",
        "-server-tls.self-signed-cert.org=Someone Else",
        "-server-tls.self-signed-cert.expiration=2w",
    ) == WebhookConfig(
        port=9443,
        request_timeout=timedelta(minutes=1),
        client_ca_file="/ca.pem",
        client_name="kube-apiserver",
        fails_closed=True,
        updates_bundle=False,
        bundle_names=("one", "two.three"),
        certificate=SelfSigned(
            secret_name="secret",
            dns_name="operator.here.svc",
            organisation="Someone Else",
            expiration=timedelta(days=14),
        ),
    )


def test_a_certificate_of_somebody_else() -> None:
    """FLAG-28, 29, 31, 36."""
    config = configure(ON, *FILES, NO_BUNDLE)

    assert config is not None
    assert config.certificate == GivenCertificate(certificate="/tls/tls.crt", key="/tls/tls.key")
    assert not config.updates_bundle


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(
            ["-kubernetes.cluster-domain="],
            "-kubernetes.cluster-domain cannot be an empty string",
            id="FLAG-19 FLAG-40",
        ),
        pytest.param(
            ["-kubernetes.cluster-domain=a b"],
            '-kubernetes.cluster-domain: "a b" is not a DNS name',
            id="FLAG-19 SEC-10 no name",
        ),
        pytest.param(
            ["-kubernetes.cluster-domain=."],
            '-kubernetes.cluster-domain: "." is not a DNS name',
            id="FLAG-19 a dot alone",
        ),
        pytest.param(
            ["-server-tls.request-timeout=0"],
            "-server-tls.request-timeout must be positive: 0s",
            id="T-12 FLAG-30 FLAG-40 zero",
        ),
        pytest.param(
            ["-server-tls.request-timeout=-1s"],
            "-server-tls.request-timeout must be positive: -1s",
            id="T-12 FLAG-30 negative",
        ),
        pytest.param(
            ["-pods.client-timeout=0"],
            "-pods.client-timeout must be positive: 0s",
            id="FLAG-18 zero",
        ),
        pytest.param(
            ["-server-tls.port=65536"],
            "-server-tls.port must be from 0 to 65535: 65536",
            id="FLAG-27 too high",
        ),
        pytest.param(
            ["-server-tls.port=-1"],
            "-server-tls.port must be from 0 to 65535: -1",
            id="FLAG-27 too low",
        ),
        pytest.param(
            ["-server-tls.client-name=x"],
            "-server-tls.client-name needs -server-tls.client-ca-file",
            id="a name that nobody checks",
        ),
        pytest.param(
            ["-webhooks.ca-bundle-names=ok,No"],
            '-webhooks.ca-bundle-names: "No" is not a name of a webhook configuration',
            id="D-31 no name",
        ),
        pytest.param(
            [ON, "-server-tls.self-signed-cert.secret-name="],
            '-server-tls.self-signed-cert.secret-name: "" is not a name of a Secret',
            id="FLAG-32 empty",
        ),
        pytest.param(
            [ON, "-server-tls.self-signed-cert.secret-name=../x"],
            '-server-tls.self-signed-cert.secret-name: "../x" is not a name of a Secret',
            id="FLAG-32 a path",
        ),
        pytest.param(
            [ON, "-server-tls.self-signed-cert.dns-name=*.svc"],
            '-server-tls.self-signed-cert.dns-name: "*.svc" is not a DNS name',
            id="FLAG-33 no name",
        ),
        pytest.param(
            [ON, "-server-tls.self-signed-cert.expiration=0"],
            "-server-tls.self-signed-cert.expiration must be positive and at most 100y: 0s",
            id="FLAG-35 zero",
        ),
        pytest.param(
            [ON, "-server-tls.self-signed-cert.expiration=101y"],
            "-server-tls.self-signed-cert.expiration must be positive and at most 100y: 101y",
            id="FLAG-35 longer than a certificate can say",
        ),
        pytest.param(
            [ON, FILES[0]],
            "-server-tls.cert-file is needed where -server-tls.self-signed-cert.enabled is false",
            id="FLAG-41 neither file",
        ),
        pytest.param(
            [ON, FILES[0], FILES[1], NO_BUNDLE],
            "-server-tls.key-file is needed where -server-tls.self-signed-cert.enabled is false",
            id="FLAG-41 no key",
        ),
        pytest.param(
            [ON, *FILES],
            "-webhooks.update-ca-bundle needs -server-tls.self-signed-cert.enabled: with"
            " certificates from files give -webhooks.update-ca-bundle=false",
            id="FLAG-36 whose CA would it be",
        ),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], message: str) -> None:
    assert refuse(IN_NAMESPACE, *words) == message


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["-server-tls.request-timeout=1m"], id="T-12 FLAG-30 a minute"),
        pytest.param(["-server-tls.port=0"], id="FLAG-27 any free port"),
        pytest.param(["-kubernetes.cluster-domain=cluster.example"], id="FLAG-19 no dot"),
        pytest.param([FILES[0]], id="FLAG-41 only where webhooks are served"),
        pytest.param([*FILES], id="FLAG-36 only where webhooks are served"),
        pytest.param(["-server-tls.self-signed-cert.secret-name="], id="FLAG-32 likewise"),
        pytest.param([ON, "-server-tls.self-signed-cert.expiration=100y"], id="FLAG-35 longest"),
        pytest.param([ON, *FILES, NO_BUNDLE, "-server-tls.self-signed-cert.org="], id="unused"),
        pytest.param([ON, "-server-tls.client-ca-file=ca.pem"], id="any name of that CA"),
    ],
)
def test_what_is_fine_is_taken(words: list[str]) -> None:
    assert Config.from_args([IN_NAMESPACE, *words]).namespace == "prod"


def test_the_default_name_is_of_the_namespace() -> None:
    """FLAG-33."""
    config = Config.from_args(["-kubernetes.namespace=other", ON]).webhooks

    assert config is not None
    assert isinstance(config.certificate, SelfSigned)
    assert config.certificate.dns_name == "rollout-operator.other.svc"


@pytest.mark.parametrize(
    "word",
    [
        "-server-tls.port=x",
        "-server-tls.enabled=yes",
        "-pods.client-timeout=1d",
        "-server-tls.request-timeout=5",
        "-server-tls.self-signed-cert.expiration=1.5h",
        "-server-tls.self-signed-cert.expiration=",
        "-no-downscale.fail-closed=on",
    ],
)
def test_values_of_another_grammar_are_no_values(word: str) -> None:
    """FLAG-35, FLAG-42, DEP-02."""
    with pytest.raises(ConfigError) as caught:
        Config.from_args([IN_NAMESPACE, word])
    assert caught.value.exit_code == 2


def test_flag40_the_checks_stand_in_the_order_of_the_contract() -> None:
    """The domain before the namespace; the time-out before soft validation."""
    domain = "-kubernetes.cluster-domain="
    timeout = "-server-tls.request-timeout=0"
    soft = "-server.cluster-validation.http.soft-validation"

    assert refuse(domain) == "-kubernetes.cluster-domain cannot be an empty string"
    assert refuse(timeout) == "-kubernetes.namespace has not been specified"
    assert refuse(IN_NAMESPACE, timeout, soft) == "-server-tls.request-timeout must be positive: 0s"


def test_every_flag_is_told_what_it_is_for() -> None:
    """DEP-03: in sentences, under three headings."""
    assert {flag.group for flag in WEBHOOK_FLAGS} == {
        "Webhooks",
        "Certificates of the webhooks",
        "Requests to pods",
    }
    for flag in WEBHOOK_FLAGS:
        assert flag.help.endswith("."), flag.name
