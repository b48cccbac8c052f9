"""Which flags exist, what they mean, and what is refused (FLAG-10..42, DEP-03..06, T-12 flags)."""

import re
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Final

import pytest

from rollout_operator.config.flags import UNLIMITED, Config
from rollout_operator.config.grammar import HelpRequested
from rollout_operator.model.errors import ConfigError
from rollout_operator.model.outcome import Severity

IN_NAMESPACE: Final = "-kubernetes.namespace=prod"
SOFT: Final = "-server.cluster-validation.http.soft-validation"
ENABLED: Final = "-server.cluster-validation.http.enabled"


def configure(*words: str) -> Config:
    return Config.from_args([IN_NAMESPACE, *words])


def refuse(*words: str) -> str:
    """Return why these words are refused as a configuration, not as a command line."""
    with pytest.raises(ConfigError) as caught:
        Config.from_args(words)
    assert caught.value.exit_code == 1, "DEP-04"
    assert "\n" not in str(caught.value), "PROC-03: one line"
    return str(caught.value)


def test_only_the_namespace_is_needed() -> None:
    """DEP-03, T-12: the defaults are valid with only the namespace set."""
    assert configure() == Config(namespace="prod")
    assert configure() == Config(
        namespace="prod",
        api_url="",
        config_file="",
        client_timeout=timedelta(minutes=5),
        client_qps=5.0,
        client_burst=10,
        reconcile_interval=timedelta(seconds=5),
        log_format="logfmt",
        log_level=Severity.DEBUG,
        server_port=8001,
        cluster_validation_enabled=False,
        cluster_validation_soft=False,
        cluster_validation_excluded_paths=(),
        cluster_validation_excluded_user_agents=(),
        zone_tracker="",
        pods_timeout=timedelta(seconds=5),
        cluster_domain="cluster.local.",
        webhooks=None,
        leftovers=(),
    )


def test_every_flag_reaches_its_field() -> None:
    config = configure(
        "-kubernetes.api-url=https://127.0.0.1:6443",
        "-kubernetes.config-file=kubeconfig",
        "-kubernetes.client-timeout=1m",
        "-kubernetes.client-qps=2.5",
        "-kubernetes.client-burst=7",
        "-reconcile.interval=30s",
        "-log.format=json",
        "-log.level=warn",
        "-server.port=9000",
        ENABLED,
        SOFT,
        "-server.cluster-validation.http.excluded-paths=a/b,c",
        "-server.cluster-validation.http.excluded-user-agents=curl/.*,Go-http.*",
        "-use-zone-tracker",
        "-zone-tracker.config-map-name=times",
        "-pods.client-timeout=2s",
        "-kubernetes.cluster-domain=cluster.example",
        "left",
        "over",
    )

    assert config == Config(
        namespace="prod",
        api_url="https://127.0.0.1:6443",
        config_file="kubeconfig",
        client_timeout=timedelta(minutes=1),
        client_qps=2.5,
        client_burst=7,
        reconcile_interval=timedelta(seconds=30),
        log_format="json",
        log_level=Severity.WARN,
        server_port=9000,
        cluster_validation_enabled=True,
        cluster_validation_soft=True,
        cluster_validation_excluded_paths=("a/b", "c"),
        cluster_validation_excluded_user_agents=("curl/.*", "Go-http.*"),
        zone_tracker="times",
        pods_timeout=timedelta(seconds=2),
        cluster_domain="cluster.example",
        leftovers=("left", "over"),
    )


def test_a_configuration_does_not_change() -> None:
    config = configure()

    with pytest.raises(FrozenInstanceError):
        config.server_port = 1  # type: ignore[misc]  # the point of the test


def test_both_spellings_of_the_namespace_are_read() -> None:
    """Section G of the promises."""
    assert Config.from_args(["-kubernetes-namespace", "test"]).namespace == "test"
    assert (
        Config.from_args(["--kubernetes-namespace=a", "-kubernetes.namespace=b"]).namespace == "b"
    )


def test_the_environment_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLAG-02."""
    for name in ("KUBERNETES_NAMESPACE", "LOG_LEVEL", "SERVER_PORT"):
        monkeypatch.setenv(name, "9999")

    assert configure() == Config(namespace="prod")


def test_help_and_bad_words_are_told_apart() -> None:
    with pytest.raises(HelpRequested):
        Config.from_args(["-h"])
    with pytest.raises(ConfigError, match="not defined: -x") as caught:
        Config.from_args(["-x"])
    assert caught.value.exit_code == 2, "DEP-04"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param([], "-kubernetes.namespace has not been specified", id="FLAG-20"),
        pytest.param(
            ["-kubernetes.namespace="],
            "-kubernetes.namespace has not been specified",
            id="FLAG-20 empty",
        ),
        pytest.param(
            ["-kubernetes.namespace=$(POD_NAMESPACE)"],
            '-kubernetes.namespace: "$(POD_NAMESPACE)" is not a name of a namespace',
            id="variable without value",
        ),
        pytest.param(
            ["-kubernetes.namespace=a/../b"],
            '-kubernetes.namespace: "a/../b" is not a name of a namespace',
            id="path",
        ),
        pytest.param(
            [IN_NAMESPACE, "-kubernetes.api-url=https://a"],
            "-kubernetes.api-url and -kubernetes.config-file must be given together or not at all:"
            " -kubernetes.config-file is empty",
            id="FLAG-13 alone",
        ),
        pytest.param(
            [IN_NAMESPACE, "-kubernetes.config-file=a"],
            "-kubernetes.api-url and -kubernetes.config-file must be given together or not at all:"
            " -kubernetes.api-url is empty",
            id="FLAG-14 alone",
        ),
        pytest.param(
            [IN_NAMESPACE, "-kubernetes.client-burst=0"],
            "-kubernetes.client-burst must be at least 1 when -kubernetes.client-qps is above 0: 0",
            id="FLAG-17 T-12 qps 5 burst 0",
        ),
        pytest.param(
            [IN_NAMESPACE, "-kubernetes.client-qps=inf"],
            "-kubernetes.client-qps must be a finite number: inf",
            id="FLAG-16 endless",
        ),
        pytest.param(
            [IN_NAMESPACE, "-kubernetes.client-qps=nan"],
            "-kubernetes.client-qps must be a finite number: nan",
            id="FLAG-16 not a number",
        ),
        pytest.param(
            [IN_NAMESPACE, "-zpdb.pod-ready-annotation-patch-timeout=0"],
            "-zpdb.pod-ready-annotation-patch-timeout must be positive: 0s",
            id="FLAG-39 no time",
        ),
        pytest.param(
            [IN_NAMESPACE, "-use-zone-tracker", "-zone-tracker.config-map-name="],
            "-use-zone-tracker needs -zone-tracker.config-map-name, which is empty",
            id="FLAG-38 FLAG-40 no name",
        ),
        pytest.param(
            [IN_NAMESPACE, "-use-zone-tracker", "-zone-tracker.config-map-name=../x"],
            '-zone-tracker.config-map-name: "../x" is not a name of a ConfigMap',
            id="FLAG-38 a path",
        ),
        pytest.param(
            [
                IN_NAMESPACE,
                "-use-zone-tracker",
                "-zone-tracker.config-map-name=",
                "-kubernetes.client-burst=0",
            ],
            "-use-zone-tracker needs -zone-tracker.config-map-name, which is empty",
            id="FLAG-40 the tracker comes before the burst",
        ),
        pytest.param(
            [
                IN_NAMESPACE,
                "-use-zone-tracker",
                "-zone-tracker.config-map-name=",
                "-kubernetes.config-file=a",
            ],
            "-kubernetes.api-url and -kubernetes.config-file must be given together or not at all:"
            " -kubernetes.api-url is empty",
            id="FLAG-40 the API server comes before the tracker",
        ),
        pytest.param(
            [IN_NAMESPACE, "-reconcile.interval=0"],
            "-reconcile.interval must be positive: 0s",
            id="FLAG-21 zero",
        ),
        pytest.param(
            [IN_NAMESPACE, "-reconcile.interval=-1m"],
            "-reconcile.interval must be positive: -1m0s",
            id="FLAG-21 negative",
        ),
        pytest.param(
            [IN_NAMESPACE, "-kubernetes.client-timeout=-1s"],
            "-kubernetes.client-timeout must not be negative: -1s",
            id="FLAG-15 negative",
        ),
        pytest.param(
            [IN_NAMESPACE, SOFT],
            "http: soft validation can be enabled only if cluster validation is enabled:"
            f" {SOFT} needs {ENABLED}",
            id="FLAG-23 alone",
        ),
        pytest.param(
            [IN_NAMESPACE, "-server.cluster-validation.http.excluded-user-agents=ok,("],
            '-server.cluster-validation.http.excluded-user-agents: pattern "(": missing ): (',
            id="FLAG-25 bad pattern",
        ),
        pytest.param(
            [IN_NAMESPACE, "-server.cluster-validation.http.excluded-user-agents=(?<=a)b"],
            '-server.cluster-validation.http.excluded-user-agents: pattern "(?<=a)b": ',
            id="FLAG-25 RE2 and not Python",
        ),
        pytest.param(
            [IN_NAMESPACE, "-server.port=65536"],
            "-server.port must be from 0 to 65535: 65536",
            id="FLAG-12 too high",
        ),
        pytest.param(
            [IN_NAMESPACE, "-server.port=-1"],
            "-server.port must be from 0 to 65535: -1",
            id="FLAG-12 too low",
        ),
        pytest.param(
            [IN_NAMESPACE, "-log.format=xml"], "unknown log format: xml", id="FLAG-10 DEP-06"
        ),
        pytest.param(
            [IN_NAMESPACE, "-log.format=JSON"], "unknown log format: JSON", id="FLAG-10 upper case"
        ),
        pytest.param(
            [IN_NAMESPACE, "-log.level=trace"], "unknown log level: trace", id="FLAG-11 DEP-06"
        ),
    ],
)
def test_what_makes_no_configuration_is_refused(words: list[str], message: str) -> None:
    """FLAG-40."""
    found = refuse(*words)

    assert found == message or (message.endswith(": ") and found.startswith(message))


def test_a_bad_pattern_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    """PROC-03: the library of patterns would write a line of its own to stderr."""
    refuse(IN_NAMESPACE, "-server.cluster-validation.http.excluded-user-agents=(")

    assert capfd.readouterr().err == ""


def test_checks_come_in_the_order_of_the_contract() -> None:
    """FLAG-40: with everything wrong, each correction shows the next message."""
    wrong = [
        "-log.format=xml",
        "-reconcile.interval=0",
        SOFT,
        "-server-tls.request-timeout=0",
        "-kubernetes.client-burst=0",
        "-kubernetes.api-url=https://a",
        "-kubernetes.namespace=",
        "-kubernetes.cluster-domain=",
    ]
    seen: list[str] = []
    given = [IN_NAMESPACE]
    while wrong:
        seen.append(refuse(*given, *wrong))
        named = re.findall(r"-[a-z][-a-z.]+[a-z]", seen[-1]) or ["-log.format"]
        wrong = [word for word in wrong if word.partition("=")[0] not in named]

    assert [message.partition(" ")[0] for message in seen] == [
        "-kubernetes.cluster-domain",
        "-kubernetes.namespace",
        "-kubernetes.api-url",
        "-kubernetes.client-burst",
        "-server-tls.request-timeout",
        "-reconcile.interval",
        "http:",
        "unknown",
    ]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["-kubernetes.client-qps=50", "-kubernetes.client-burst=1"], id="T-12 50/1"),
        pytest.param(["-kubernetes.client-qps=0", "-kubernetes.client-burst=0"], id="T-12 0/0"),
        pytest.param(["-kubernetes.client-qps=-1", "-kubernetes.client-burst=-1"], id="T-12 -1/-1"),
        pytest.param(["-server.port=0"], id="any free port"),
        pytest.param(["-server.port=65535"], id="the highest port"),
        pytest.param([ENABLED], id="FLAG-22 alone"),
        pytest.param(["-reconcile.interval=1ns"], id="barely positive"),
    ],
)
def test_these_are_accepted(words: list[str]) -> None:
    assert configure(*words).namespace == "prod"


def test_no_time_out_leaves_the_limits_of_the_client() -> None:
    """FLAG-15: for Go, 0 means no time-out; as a span it would end every call at once."""
    assert configure("-kubernetes.client-timeout=0").client_timeout == UNLIMITED


@pytest.mark.parametrize(
    ("words", "name"),
    [
        pytest.param([], "", id="off by default"),
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
    """FLAG-37, FLAG-38: coordinated scaling asks it as well."""
    config = configure(*words)
    assert (config.zone_tracker, config.webhooks) == (name, None)


def test_the_flags_of_the_jsonnet_library_are_taken() -> None:
    """DEP-39, W-38: what means nothing any more is told."""
    config = configure(
        "-server-tls.enabled=true",
        "-use-zone-tracker=true",
        "-zone-tracker.config-map-name=rollout-operator-zone-tracker",
        "-zpdb.pod-ready-annotation-patch-timeout=5s",
    )

    assert config.without_effect == ("zpdb.pod-ready-annotation-patch-timeout",)
    assert configure().without_effect == ()


def test_a_bad_value_of_a_flag_without_effect_is_still_a_bad_value() -> None:
    with pytest.raises(ConfigError) as caught:
        configure("-zpdb.pod-ready-annotation-patch-timeout=1d")

    assert caught.value.exit_code == 2
