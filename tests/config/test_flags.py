"""Which flags exist, their defaults and where their values go (FLAG-10..39, DEP-02, DEP-03)."""

import dataclasses
import inspect
import re
from datetime import timedelta
from typing import Any, Final

import pytest

from rollout_operator.config.checks import read_config, render_flag_table
from rollout_operator.config.flags import FLAGS, Config
from tests.code_rules import PACKAGE

IN_NAMESPACE: Final = "-kubernetes.namespace=prod"
# The flags of the program that this one replaces.
REPLACED: Final = {
    "log.format": "logfmt",
    "log.level": "debug",
    "server.port": "8001",
    "kubernetes.api-url": "",
    "kubernetes.config-file": "",
    "kubernetes.client-timeout": "5m0s",
    "kubernetes.client-qps": "50",
    "kubernetes.client-burst": "100",
    "pods.client-timeout": "5s",
    "kubernetes.cluster-domain": "cluster.local.",
    "kubernetes.namespace": "",
    "reconcile.interval": "5s",
    "server.cluster-validation.http.enabled": "false",
    "server.cluster-validation.http.soft-validation": "false",
    "server.cluster-validation.http.excluded-paths": "",
    "server.cluster-validation.http.excluded-user-agents": "",
    "server-tls.enabled": "false",
    "server-tls.port": "8443",
    "server-tls.cert-file": "",
    "server-tls.key-file": "",
    "server-tls.request-timeout": "10s",
    "server-tls.self-signed-cert.enabled": "true",
    "server-tls.self-signed-cert.secret-name": "rollout-operator-self-signed-certificate",
    "server-tls.self-signed-cert.dns-name": "",
    "server-tls.self-signed-cert.org": "Grafana Labs",
    "server-tls.self-signed-cert.expiration": "1y",
    "webhooks.update-ca-bundle": "true",
    "use-zone-tracker": "false",
    "zone-tracker.config-map-name": "rollout-operator-zone-tracker",
    "zpdb.pod-ready-annotation-patch-timeout": "5s",
}

# What that program does not have; left alone they change nothing.
OURS: Final = {
    "no-downscale.fail-closed": "false",
    "server-tls.client-ca-file": "",
    "server-tls.client-name": "",
    "webhooks.ca-bundle-names": "",
}
ALL: Final = REPLACED | OURS
# For each flag a word, and the field and value that it becomes.
GIVEN: Final[dict[str, tuple[str, object]]] = {
    "leader-election.enabled=false": ("election_enabled", False),
    "leader-election.lease-name=other": ("lease_name", "other"),
    "leader-election.lease-duration=30s": ("lease_duration", timedelta(seconds=30)),
    "leader-election.renew-deadline=9s": ("renew_deadline", timedelta(seconds=9)),
    "leader-election.retry-period=1500ms": ("retry_period", timedelta(seconds=1.5)),
    "kubernetes.pod-name=operator-0": ("pod_name", "operator-0"),
    "server-tls.peer-port=9444": ("peer_port", 9444),
    "server-tls.shutdown-delay=2s": ("shutdown_delay", timedelta(seconds=2)),
    "kubernetes.api-url=https://127.0.0.1:6443": ("api_url", "https://127.0.0.1:6443"),
    "kubernetes.config-file=kubeconfig": ("config_file", "kubeconfig"),
    "kubernetes.client-timeout=1m": ("client_timeout", timedelta(minutes=1)),
    "kubernetes.client-qps=2.5": ("client_qps", 2.5),
    "kubernetes.client-burst=7": ("client_burst", 7),
    "reconcile.interval=30s": ("reconcile_interval", timedelta(seconds=30)),
    "multi-az-rollouts.enabled=true": ("multi_az_rollouts", True),
    "releases.enabled=true": ("releases", True),
    "releases.compat=kuberik": ("release_compat", "kuberik"),
    "releases.order=announced": ("release_order", "announced"),
    "releases.no-cross-namespace-refs": ("keeps_to_namespace", True),
    "releases.metadata=none": ("release_metadata", "none"),
    "log.format=json": ("log_format", "json"),
    "mode=shadow": ("mode", "shadow"),
    "log.level=warn": ("log_level", "warn"),
    "server.port=9000": ("server_port", 9000),
    "server.cluster-validation.http.enabled": ("cluster_validation_enabled", True),
    "server.cluster-validation.http.soft-validation": ("cluster_validation_soft", True),
    "server.cluster-validation.http.excluded-paths=a/b,c": (
        "cluster_validation_excluded_paths",
        ("a/b", "c"),
    ),
    "server.cluster-validation.http.excluded-user-agents=curl/.*,Go-http.*": (
        "cluster_validation_excluded_user_agents",
        ("curl/.*", "Go-http.*"),
    ),
    "server-tls.enabled": ("webhooks_enabled", True),
    "server-tls.port=9443": ("webhooks_port", 9443),
    "server-tls.request-timeout=1m": ("request_timeout", timedelta(minutes=1)),
    "server-tls.client-ca-file=/ca.pem": ("client_ca_file", "/ca.pem"),
    "server-tls.client-name=kube-apiserver": ("client_name", "kube-apiserver"),
    "no-downscale.fail-closed": ("fails_closed", True),
    "webhooks.update-ca-bundle=false": ("updates_bundle", False),
    "webhooks.ca-bundle-names=one,two.three": ("bundle_names", ("one", "two.three")),
    "server-tls.self-signed-cert.enabled=false": ("self_signed", False),
    "server-tls.self-signed-cert.secret-name=secret": ("secret_name", "secret"),
    "server-tls.self-signed-cert.dns-name=operator.svc": ("dns_name", "operator.svc"),
    "server-tls.self-signed-cert.org=Someone Else": ("organisation", "Someone Else"),
    "server-tls.self-signed-cert.expiration=2w": ("expiration", timedelta(days=14)),
    "server-tls.cert-file=/tls/tls.crt": ("cert_file", "/tls/tls.crt"),
    "server-tls.key-file=/tls/tls.key": ("key_file", "/tls/tls.key"),
    "pods.client-timeout=2s": ("pods_timeout", timedelta(seconds=2)),
    "kubernetes.cluster-domain=cluster.example": ("cluster_domain", "cluster.example"),
    "use-zone-tracker": ("use_zone_tracker", True),
    "zone-tracker.config-map-name=times": ("zone_tracker_name", "times"),
    "zpdb.pod-ready-annotation-patch-timeout=1s": ("patch_timeout", timedelta(seconds=1)),
}


def configure(*words: str) -> Config:
    return read_config([IN_NAMESPACE, *words])


def test_all_flags_of_earlier_releases_exist_with_their_defaults() -> None:
    """DEP-03."""
    assert {flag.name: flag.kind.show(flag.default) for flag in FLAGS}.items() >= ALL.items()


def test_only_the_namespace_is_needed() -> None:
    """DEP-03, T-12, FLAG-26: the defaults are valid with only the namespace set."""
    config = configure()

    assert config == Config(namespace="prod")
    assert (config.webhooks_enabled, config.zone_tracker) == (False, "")


def test_every_flag_reaches_its_field() -> None:
    """FLAG-10 to 19, FLAG-27, FLAG-28, and up to 39."""
    config = configure(*(f"-{word}" for word in GIVEN), "left", "over")

    given: dict[str, Any] = dict(GIVEN.values())
    assert config == Config(
        namespace="prod",
        leftovers=("left", "over"),
        without_effect=("zpdb.pod-ready-annotation-patch-timeout",),
        **given,
    )
    # Not beside -releases.metadata=none.
    assert configure("-releases.verify-wanted-version").verifies_wanted
    assert {word.partition("=")[0] for word in GIVEN} == {flag.name for flag in FLAGS} - {
        *("kubernetes.namespace", "releases.verify-wanted-version")
    }


def test_every_setting_is_read_outside_of_config() -> None:
    """By itself, or by a property that is: a flag that nothing reads would do nothing."""
    beyond = [file.read_text() for file in PACKAGE.rglob("*.py") if file.parent.name != "config"]
    read = {name for text in beyond for name in re.findall(r"(?:config|settings)\.(\w+)", text)}
    pending = [*read]
    while pending:
        setting = vars(Config).get(pending.pop())
        if isinstance(setting, property) and setting.fget is not None:
            new = {*re.findall(r"self\.(\w+)", inspect.getsource(setting.fget))} - read
            read |= new
            pending += new

    unread = {field.name for field in dataclasses.fields(Config)} - read
    assert unread == {"patch_timeout"}, "which has no effect, as its help says"


def test_a_configuration_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        configure().server_port = 1  # type: ignore[misc]  # the point of the test


def test_flags_read_no_environment_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLAG-02: four variables are handed over, see environment.txt; no other one counts."""
    for name in ("KUBERNETES_NAMESPACE", "LOG_LEVEL", "SERVER_PORT"):
        monkeypatch.setenv(name, "9999")

    assert configure() == Config(namespace="prod")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        pytest.param(["-use-zone-tracker"], "rollout-operator-zone-tracker", id="on"),
        pytest.param(
            ["-use-zone-tracker=true", "-zone-tracker.config-map-name=zones.x"],
            "zones.x",
            id="another name",
        ),
        pytest.param(["-zone-tracker.config-map-name=zones"], "", id="a name alone"),
        pytest.param(["-zone-tracker.config-map-name="], "", id="no name, and off"),
        pytest.param(["-use-zone-tracker", "-use-zone-tracker=false"], "", id="off again"),
    ],
)
def test_the_zone_tracker_needs_no_webhooks(words: list[str], name: str) -> None:
    """FLAG-37, FLAG-38: coordinated scaling needs it as well."""
    config = configure(*words)
    assert (config.zone_tracker, config.webhooks_enabled) == (name, False)


def test_the_default_name_of_the_certificate_is_of_the_namespace() -> None:
    """FLAG-33."""
    assert Config(namespace="other").service_name == "rollout-operator.other.svc"
    assert Config(namespace="other", dns_name="here.svc").service_name == "here.svc"


def test_the_flag_table_has_a_line_for_each_flag() -> None:
    """DEP-03: in sentences."""
    lines = render_flag_table().splitlines()

    assert lines[:2] == ["| Flag | Default | Meaning |", "| --- | --- | --- |"]
    assert (
        "| `-kubernetes.namespace` string | empty"
        " | Namespace whose rollout groups the operator manages. Required. |"
    ) in lines
    assert all(line.count("|") == 4 and line.endswith(". |") for line in lines[2:])
    assert [line.split("`")[1] for line in lines[2:]] == [f"-{flag.name}" for flag in FLAGS]
