"""The flags are those of the program that this one replaces (DEP-03), and the table tells them."""

from typing import Final

from rollout_operator.config.flags import FLAGS, render_flag_table

# The flags of the program that this one replaces.
REPLACED: Final = {
    "log.format": "logfmt",
    "log.level": "debug",
    "server.port": "8001",
    "kubernetes.api-url": "",
    "kubernetes.config-file": "",
    "kubernetes.client-timeout": "5m0s",
    "kubernetes.client-qps": "5",
    "kubernetes.client-burst": "10",
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


def test_all_flags_of_earlier_releases_exist_with_their_defaults() -> None:
    """DEP-03."""
    assert {flag.name: flag.kind.show(flag.default) for flag in FLAGS} == ALL


def test_the_flag_table_has_a_line_for_each_flag() -> None:
    lines = render_flag_table().splitlines()

    assert lines[:2] == ["| Flag | Default | Meaning |", "| --- | --- | --- |"]
    assert len(lines) == 2 + len(ALL)
    assert (
        "| `-kubernetes.namespace` string | empty"
        " | Namespace whose rollout groups are looked after. Required. |"
    ) in lines
    assert all(line.count("|") == 4 for line in lines)
    assert {line.split("`")[1] for line in lines[2:]} == {f"-{name}" for name in ALL}
