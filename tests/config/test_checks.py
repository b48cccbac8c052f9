"""In which order flags are checked, and that a check writes nothing; cases are in flags.txt."""

import re
from typing import Final

import pytest

from rollout_operator.config.checks import read_config
from rollout_operator.model.names import ConfigError

IN_NAMESPACE: Final = "-kubernetes.namespace=prod"
SOFT: Final = "-server.cluster-validation.http.soft-validation"


def refuse(*words: str) -> str:
    """Return why these words are refused as a configuration, not as a command line."""
    with pytest.raises(ConfigError) as caught:
        read_config(words)
    assert caught.value.exit_code == 1, "DEP-04"
    assert "\n" not in str(caught.value), "PROC-03: one line"
    return str(caught.value)


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
