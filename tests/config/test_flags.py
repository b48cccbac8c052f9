"""What holds for all flags; which exist, their defaults and fields are lines of `flags.txt`."""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Final

import pytest

from rollout_operator.config.checks import read_config, render_flag_table
from rollout_operator.config.flags import FLAGS, Config
from rollout_operator.model.names import ConfigError
from tests.code_rules import PACKAGE

IN_NAMESPACE: Final = "-kubernetes.namespace=prod"
SOFT: Final = "-server.cluster-validation.http.soft-validation"


def configure(*words: str) -> Config:
    return read_config([IN_NAMESPACE, *words])


def test_only_the_namespace_is_needed() -> None:
    """DEP-03, T-12, FLAG-26: the defaults are valid with only the namespace set."""
    config = configure()

    assert config == Config(namespace="prod")
    assert (config.webhooks_enabled, config.zone_tracker) == (False, "")


def test_every_flag_has_a_line_that_shows_its_field() -> None:
    text = Path(__file__).with_name("flags.txt").read_text()
    lines = re.search(r"^# every flag reaches its field.*?(?=\n\n)", text, re.MULTILINE | re.DOTALL)
    assert lines is not None
    shown = {*re.findall(r'(?<=[ "])-([a-z][^"=|,\s]+)', lines[0])}
    assert "exit" not in lines[0]
    assert shown == {flag.name for flag in FLAGS} - {"kubernetes.namespace"}


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
