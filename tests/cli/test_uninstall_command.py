"""`uninstall-webhooks` as a command: flags, kubeconfig, exit codes, help (DEP-85)."""

import asyncio
from pathlib import Path

import pytest
import yaml

from rollout_operator.cli.admin import render_usage
from rollout_operator.cli.main import main
from rollout_operator.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, JsonObject
from tests.cli.test_uninstall_webhooks import NAMESPACE, NO_DOWNSCALE, NOTHING, configuration
from tests.kube.fake_api import FakeApi, refuse, reply

Captured = pytest.CaptureFixture[str]


def kubeconfig(at: Path, *, server: str = "", namespace: str = "") -> Path:
    file = at / "kubeconfig"
    context = {"cluster": "a", "user": "a", "namespace": namespace}
    content = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": context}],
        "clusters": [{"name": "a", "cluster": {"server": server}}],
        "users": [{"name": "a", "user": {"token": "t"}}],
    }
    file.write_text(yaml.safe_dump(content))
    return file


async def run(api: FakeApi, at: Path, *words: str) -> int:
    """Return the exit code of the command, run beside the server as a process would be."""
    flags = [f"-namespace={NAMESPACE}", f"-kubeconfig={kubeconfig(at, server=api.url)}"]
    return await asyncio.to_thread(main, ["uninstall-webhooks", *flags, *words])


def serve(api: FakeApi, *items: JsonObject) -> str:
    """Let the server list these, and nothing of the other kind; return the path of the first."""
    for resource, found in (VALIDATING_WEBHOOKS, list(items)), (MUTATING_WEBHOOKS, []):
        page: JsonObject = {"metadata": {"resourceVersion": "1"}, "items": found}
        api.on("GET", resource.path(""), reply(page))
    return VALIDATING_WEBHOOKS.path("", "no-downscale-prod")


async def test_the_command_deletes_on_the_server(tmp_path: Path, capsys: Captured) -> None:
    async with FakeApi() as api:
        path = serve(api, configuration("no-downscale-prod"))
        api.on("DELETE", path, reply({"kind": "Status", "status": "Success"}))

        assert await run(api, tmp_path) == 0

    listed, deleted = api.requests[0], api.requests[1]
    assert capsys.readouterr().out == f"{NO_DOWNSCALE}: deleted\n"
    assert listed.query["labelSelector"] == "grafana.com/namespace=prod"
    assert isinstance(deleted.json, dict)
    assert deleted.json["preconditions"] == {
        "uid": "uid-no-downscale-prod",
        "resourceVersion": "1",
    }


async def test_the_command_fails_and_names_verb_and_resource(
    tmp_path: Path, capsys: Captured
) -> None:
    message = (
        'validatingwebhookconfigurations "no-downscale-prod" is forbidden: User "u" cannot delete'
        ' resource "validatingwebhookconfigurations"'
    )
    async with FakeApi() as api:
        path = serve(api, configuration("no-downscale-prod"))
        api.on("DELETE", path, refuse(403, "Forbidden", message))

        assert await run(api, tmp_path) == 1

    shown = capsys.readouterr()
    assert 'grant verb delete on "validatingwebhookconfigurations"' in shown.out
    assert shown.err == (
        "rollout-operator: webhook configurations may be left: 1 failed, see above\n"
    )


async def test_the_command_finds_nothing(tmp_path: Path, capsys: Captured) -> None:
    async with FakeApi() as api:
        serve(api)

        assert await run(api, tmp_path, "-dry-run") == 0

    assert capsys.readouterr().out == f"{NOTHING}\n"


@pytest.mark.parametrize("words", [[], ["-n", NAMESPACE], [f"--namespace={NAMESPACE}"]])
async def test_a_kubeconfig_says_it_all(
    words: list[str], tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-76: an outage is no time for three long flags."""
    async with FakeApi() as api:
        path = serve(api, configuration("no-downscale-prod"))
        api.on("DELETE", path, reply({"kind": "Status", "status": "Success"}))
        file = kubeconfig(tmp_path, server=api.url, namespace="" if words else NAMESPACE)
        monkeypatch.setenv("KUBECONFIG", str(file))

        assert await asyncio.to_thread(main, ["uninstall-webhooks", *words]) == 0

    assert api.requests[0].query["labelSelector"] == "grafana.com/namespace=prod"
    assert capsys.readouterr().out == f"{NO_DOWNSCALE}: deleted\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["-n=a/b"], '-namespace: "a/b" is not a name'),
        (["-n="], "-namespace is empty"),
        (["-n=a", "b"], "unexpected word: b"),
        (["-log.level=info"], "flag provided but not defined: -log.level"),
    ],
)
def test_a_bad_command_line_touches_nothing(
    words: list[str],
    line: str,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, server="https://127.0.0.1:1")))
    assert main(["uninstall-webhooks", *words]) == 2

    shown = capsys.readouterr().err
    assert shown.startswith(f"rollout-operator: {line}")
    assert shown.endswith(". See rollout-operator admin -help\n")
    assert shown.count("\n") == 1


def test_the_command_shows_its_own_help(capsys: Captured) -> None:
    assert main(["uninstall-webhooks", "-h"]) == 0
    assert capsys.readouterr().out == render_usage()
    assert max(map(len, render_usage().splitlines())) <= 100
