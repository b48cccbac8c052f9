"""`uninstall-webhooks` as a command: flags, kubeconfig, exit codes, help (DEP-85)."""

import asyncio
from pathlib import Path

import pytest

from rollout_operator.cli.main import main
from rollout_operator.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, JsonObject
from tests.cli.kubeconfig import write_kubeconfig
from tests.cli.test_uninstall_webhooks import NAMESPACE, NO_DOWNSCALE, NOTHING, configuration
from tests.kube.fake_api import FakeApi, refuse, reply

Captured = pytest.CaptureFixture[str]


async def run(api: FakeApi, at: Path, *words: str) -> int:
    """Return the exit code of the command, run beside the server as a process would be."""
    flags = [f"-namespace={NAMESPACE}", f"-kubeconfig={write_kubeconfig(at / 'config', api.url)}"]
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
        file = write_kubeconfig(tmp_path / "config", api.url, "" if words else NAMESPACE)
        monkeypatch.setenv("KUBECONFIG", str(file))

        assert await asyncio.to_thread(main, ["uninstall-webhooks", *words]) == 0

    assert api.requests[0].query["labelSelector"] == "grafana.com/namespace=prod"
    assert capsys.readouterr().out == f"{NO_DOWNSCALE}: deleted\n"
