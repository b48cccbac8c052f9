"""Which values and combinations of flags are refused, and how (FLAG-10..42, DEP-04..06, T-12)."""

import re
from typing import Final

import pytest

from rollout_operator.config.checks import read_config
from rollout_operator.model.names import ConfigError

IN_NAMESPACE: Final = "-kubernetes.namespace=prod"
SOFT: Final = "-server.cluster-validation.http.soft-validation"
ENABLED: Final = "-server.cluster-validation.http.enabled"
ON: Final = "-server-tls.enabled"
FILES: Final = (
    "-server-tls.self-signed-cert.enabled=false",
    "-server-tls.cert-file=/tls/tls.crt",
    "-server-tls.key-file=/tls/tls.key",
)
NO_BUNDLE: Final = "-webhooks.update-ca-bundle=false"


def refuse(*words: str) -> str:
    """Return why these words are refused as a configuration, not as a command line."""
    with pytest.raises(ConfigError) as caught:
        read_config(words)
    assert caught.value.exit_code == 1, "DEP-04"
    assert "\n" not in str(caught.value), "PROC-03: one line"
    return str(caught.value)


def needs(flag: str) -> list[str]:
    """Return what has to be on for a flag to be read."""
    switches = {"server-tls.self-signed-cert": ON, "zone-tracker": "-use-zone-tracker"}
    return [word for prefix, word in switches.items() if flag.startswith(prefix)]


NOT_SPECIFIED: Final = "-kubernetes.namespace has not been specified"

LEASE, RENEW, RETRY = (
    f"leader-election.{name}" for name in ("lease-duration", "renew-deadline", "retry-period")
)
# What client-go refuses as well, and bounds of our own.
ELECTIONS: Final = (
    ({LEASE: "10s"}, f"-{LEASE} must be more than -{RENEW}: 10s and 10s"),
    ({RENEW: "15s"}, f"-{LEASE} must be more than -{RENEW}: 15s and 15s"),
    ({RETRY: "9s"}, f"-{RENEW} must be more than 1.2 times -{RETRY}: 10s and 9s"),
    ({RENEW: "2400ms"}, f"-{RENEW} must be more than 1.2 times -{RETRY}: 2.4s and 2s"),
    ({RETRY: "0"}, f"-{RETRY} must be at least 100ms: 0s"),
    ({RETRY: "-1s"}, f"-{RETRY} must be at least 100ms: -1s"),
    ({LEASE: "999ms", RENEW: "500ms", RETRY: "100ms"}, f"-{LEASE} must be from 1s to 10m: 999ms"),
    ({LEASE: "601s"}, f"-{LEASE} must be from 1s to 10m: 10m1s"),
)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param([], NOT_SPECIFIED, id="FLAG-20"),
        pytest.param(["-kubernetes.namespace="], NOT_SPECIFIED, id="FLAG-20 empty"),
        # FLAG-40: the namespace comes before the time-out.
        pytest.param(["-server-tls.request-timeout=0"], NOT_SPECIFIED, id="FLAG-40"),
    ],
)
def test_a_namespace_is_required(words: list[str], message: str) -> None:
    assert refuse(*words) == message


@pytest.mark.parametrize(
    ("word", "why"),
    [
        pytest.param("kubernetes.client-qps=inf", " must be a finite number: inf", id="FLAG-16"),
        pytest.param("kubernetes.client-qps=nan", " must be a finite number: nan", id="no number"),
        pytest.param("zpdb.pod-ready-annotation-patch-timeout=0", " must be positive: 0s",
            id="FLAG-39 no time"),
        pytest.param("reconcile.interval=0", " must be positive: 0s", id="FLAG-21 zero"),
        pytest.param("reconcile.interval=-1m", " must be positive: -1m0s", id="FLAG-21 negative"),
        pytest.param("kubernetes.client-timeout=-1s", " must not be negative: -1s", id="FLAG-15"),
        pytest.param("server.port=65536", " must be from 0 to 65535: 65536", id="FLAG-12 too high"),
        pytest.param("server.port=-1", " must be from 0 to 65535: -1", id="FLAG-12 too low"),
        pytest.param("server-tls.port=65536", " must be from 0 to 65535: 65536", id="27 high"),
        pytest.param("server-tls.port=-1", " must be from 0 to 65535: -1", id="FLAG-27 too low"),
        pytest.param("server-tls.request-timeout=0", " must be positive: 0s",
            id="T-12 FLAG-30 zero"),
        pytest.param("server-tls.request-timeout=-1s", " must be positive: -1s", id="T-12 FLAG-30"),
        pytest.param("pods.client-timeout=0", " must be positive: 0s", id="FLAG-18 zero"),
        pytest.param("server-tls.peer-port=65536", " must be from 0 to 65535: 65536", id="peers"),
        pytest.param("server-tls.shutdown-delay=11s", " must be from 0s to 10s: 11s", id="delay"),
        pytest.param("server-tls.shutdown-delay=-1s", " must be from 0s to 10s: -1s", id="less"),
        pytest.param(
            "server-tls.self-signed-cert.expiration=0", " must be positive and at most 100y: 0s",
            id="FLAG-35 zero",
        ),
        pytest.param(
            "server-tls.self-signed-cert.expiration=101y",
            " must be positive and at most 100y: 101y",
            id="FLAG-35 longer than a certificate can say",
        ),
        pytest.param("kubernetes.cluster-domain=", " cannot be an empty string",
            id="FLAG-19 empty"),
        pytest.param("server-tls.client-name=x", " needs -server-tls.client-ca-file",
            id="unchecked"),
    ],
)  # fmt: skip
def test_the_flag_and_its_value_are_named(word: str, why: str) -> None:
    """FLAG-40."""
    flag = word.partition("=")[0]
    assert refuse(IN_NAMESPACE, *needs(flag), f"-{word}") == f"-{flag}{why}"


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        pytest.param("kubernetes.namespace=$(POD_NAMESPACE)", "name of a namespace", id="variable"),
        pytest.param("kubernetes.namespace=a/../b", "name of a namespace", id="path"),
        pytest.param("kubernetes.cluster-domain=a b", "DNS name", id="FLAG-19 SEC-10"),
        pytest.param("kubernetes.cluster-domain=.", "DNS name", id="FLAG-19 a dot alone"),
        pytest.param("server-tls.self-signed-cert.secret-name=", "name of a Secret", id="FLAG-32"),
        pytest.param("server-tls.self-signed-cert.secret-name=../x", "name of a Secret",
            id="a path"),
        pytest.param("server-tls.self-signed-cert.dns-name=*.svc", "DNS name", id="FLAG-33 star"),
        pytest.param("zone-tracker.config-map-name=../x", "name of a ConfigMap", id="FLAG-38"),
    ],
)  # fmt: skip
def test_what_is_no_name_is_quoted(word: str, kind: str) -> None:
    flag, _, value = word.partition("=")
    found = refuse(IN_NAMESPACE, *needs(flag), f"-{word}")
    assert found == f'-{flag}: "{value}" is not a {kind}'


TOGETHER: Final = (
    "-kubernetes.api-url and -kubernetes.config-file must be given together or not at all: "
)
NO_TRACKER: Final = ("-use-zone-tracker", "-zone-tracker.config-map-name=")
TRACKER: Final = "-use-zone-tracker needs -zone-tracker.config-map-name, which is empty"
AGENTS: Final = "-server.cluster-validation.http.excluded-user-agents"
NEEDED: Final = " is needed where -server-tls.self-signed-cert.enabled is false"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(
            ["-kubernetes.api-url=https://a"],
            f"{TOGETHER}-kubernetes.config-file is empty",
            id="FLAG-13 alone",
        ),
        pytest.param(
            ["-kubernetes.config-file=a"],
            f"{TOGETHER}-kubernetes.api-url is empty",
            id="FLAG-14 alone",
        ),
        pytest.param(
            ["-kubernetes.client-burst=0"],
            "-kubernetes.client-burst must be at least 1 when -kubernetes.client-qps is above 0: 0",
            id="FLAG-17 T-12 qps 5 burst 0",
        ),
        pytest.param(NO_TRACKER, TRACKER, id="FLAG-38 FLAG-40 no name"),
        pytest.param(
            [*NO_TRACKER, "-kubernetes.client-burst=0"],
            TRACKER,
            id="FLAG-40 the tracker comes before the burst",
        ),
        pytest.param(
            [*NO_TRACKER, "-kubernetes.config-file=a"],
            f"{TOGETHER}-kubernetes.api-url is empty",
            id="FLAG-40 the API server comes before the tracker",
        ),
        pytest.param(
            [SOFT],
            "http: soft validation can be enabled only if cluster validation is enabled:"
            f" {SOFT} needs {ENABLED}",
            id="FLAG-23 alone",
        ),
        pytest.param(
            ["-webhooks.ca-bundle-names=ok,No"],
            '-webhooks.ca-bundle-names: "No" is not a name of a webhook configuration',
            id="D-31 no name",
        ),
        pytest.param([f"{AGENTS}=ok,("], f'{AGENTS}: pattern "(": missing ): (', id="FLAG-25 bad"),
        pytest.param(
            [f"{AGENTS}=(?<=a)b"],
            f'{AGENTS}: pattern "(?<=a)b": ',
            id="FLAG-25 RE2 and not Python",
        ),
        *(
            pytest.param([f"-{flag}={value}" for flag, value in given.items()], text, id=text)
            for given, text in ELECTIONS
        ),
        pytest.param(
            ["-kubernetes.pod-name=$(POD_NAME)"],
            '-kubernetes.pod-name: "$(POD_NAME)" is not a name of a pod',
            id="a variable that is not defined",
        ),
        pytest.param(
            ["-log.format=xml"],
            "unknown log format: xml: -log.format must be one of logfmt, json",
            id="FLAG-10 DEP-06",
        ),
        pytest.param(
            ["-log.format=JSON"],
            "unknown log format: JSON: -log.format must be one of logfmt, json",
            id="FLAG-10 upper case",
        ),
        pytest.param(
            ["-releases.compat=flux"],
            "unknown system: flux: -releases.compat must be one of kuberik",
            id="what releases are decided as",
        ),
        pytest.param(
            ["-releases.order=newest"],
            "unknown order: newest: -releases.order must be one of version, announced",
            id="RELB-03",
        ),
        pytest.param(
            ["-releases.verify-wanted-version", "-releases.metadata=none"],
            "-releases.verify-wanted-version needs -releases.metadata=registry: no registry would"
            " ever say that a wantedVersion is there",
            id="a pin that nothing verifies",
        ),
        pytest.param(
            ["-releases.metadata=all"],
            "unknown source: all: -releases.metadata must be one of registry, none",
            id="RELB-28",
        ),
        pytest.param(
            ["-mode=passive"],
            "unknown mode: passive: -mode must be one of active, shadow",
            id="SI-25",
        ),
        pytest.param(
            ["-log.level=trace"],
            "unknown log level: trace: -log.level must be one of debug, info, warn, error",
            id="FLAG-11 DEP-06",
        ),
        pytest.param([ON, FILES[0]], f"-server-tls.cert-file{NEEDED}", id="FLAG-41 neither file"),
        pytest.param(
            [ON, *FILES[:2], NO_BUNDLE], f"-server-tls.key-file{NEEDED}", id="FLAG-41 no key"
        ),
        pytest.param(
            [ON, *FILES],
            "-webhooks.update-ca-bundle needs -server-tls.self-signed-cert.enabled: with"
            " certificates from files give -webhooks.update-ca-bundle=false",
            id="FLAG-36 whose CA would it be",
        ),
    ],
)
def test_what_makes_no_configuration_is_refused(words: list[str], message: str) -> None:
    """FLAG-40."""
    found = refuse(IN_NAMESPACE, *words)

    assert found == message or (message.endswith(": ") and found.startswith(message))


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
def test_these_are_accepted(words: list[str]) -> None:
    assert read_config([IN_NAMESPACE, *words]).namespace == "prod"


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
        "-zpdb.pod-ready-annotation-patch-timeout=1d",
    ],
)
def test_values_of_another_grammar_are_no_values(word: str) -> None:
    """FLAG-35, FLAG-42, DEP-02; also of a flag without effect."""
    with pytest.raises(ConfigError) as caught:
        read_config([IN_NAMESPACE, word])
    assert caught.value.exit_code == 2


def test_a_bad_pattern_is_reported_once(capfd: pytest.CaptureFixture[str]) -> None:
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
