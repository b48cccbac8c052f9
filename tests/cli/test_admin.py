"""`admin`: what its tasks do to a cluster, and how they end (DEP-80, DEP-85)."""

import asyncio
from collections import deque
from pathlib import Path
from typing import Final

import pytest

from rollout_operator.cli.admin import LeftOver, read_definitions, uninstall
from rollout_operator.cli.main import main
from rollout_operator.kube.api import (
    DEFINITIONS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
    JsonObject,
)
from rollout_operator.model.names import (
    ApiError,
    ConfigError,
    Conflict,
    Denied,
    NotFound,
    UnknownOutcome,
)
from tests.cli.kubeconfig import write_kubeconfig
from tests.code_rules import ROOT
from tests.controllers.fake_client import FakeClient
from tests.goldens import Golden
from tests.kube.fake_api import FakeApi, refuse, reply
from tests.stories import Steps, Story, read_stories

Captured = pytest.CaptureFixture[str]

CRDS: Final = ROOT / "manifests" / "crds"
KIND: Final = (
    "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}"
)
NAMESPACE: Final = "prod"
NAME: Final = "no-downscale-prod"
DELETED: Final = f"ValidatingWebhookConfiguration {NAME}: deleted\n"
ERRORS: Final[dict[str, type[ApiError]]] = {
    error.__name__: error for error in (Conflict, Denied, NotFound, UnknownOutcome)
}


def configuration(
    name: str, path: str = "/admission/no-downscale", of: str = NAMESPACE, version: str = "1"
) -> JsonObject:
    """Return a configuration with an operator's labels and one hook."""
    service: JsonObject = {"name": "rollout-operator", "namespace": of, "path": path}
    head: JsonObject = {"name": name, "uid": f"uid-{name}", "resourceVersion": version}
    return {
        "metadata": {**head, "labels": {"grafana.com/namespace": of}},
        "webhooks": [{"name": f"{name}.grafana.com", "clientConfig": {"service": service}}],
    }


class UninstallStage(Steps):
    """The webhook configurations of a cluster."""

    def __init__(self) -> None:
        self.cluster = FakeClient([], [])

    async def do_hook(self, name: str, *words: str) -> None:
        """Add a configuration: `path=/x of=other version=2 mutating unreadable`."""
        self._put(name, words)

    def _put(self, name: str, words: tuple[str, ...]) -> None:
        fields = dict(word.split("=", 1) for word in words if "=" in word)
        made = configuration(name, **fields)
        if "unreadable" in words:
            made["webhooks"] = "none"
        kind = MUTATING_WEBHOOKS if "mutating" in words else VALIDATING_WEBHOOKS
        self.cluster.put(kind.plural, made)

    async def do_hooks(self, number: str) -> None:
        for place in range(int(number)):
            self._put(f"hook-{place:03}", ())

    async def do_fail(self, error: str, times: str = "1") -> None:
        """Have deletes of `a` fail so often."""
        made = [ERRORS[error]("no", status=409) for _ in range(int(times))]
        self.cluster.fail_delete["a"] = deque(made)

    async def do_meanwhile(self, call: str, act: str, name: str = "", *words: str) -> None:
        """Before the first call of this kind, `hook` as above, `clear` all, or `forbid` it."""
        is_over = False

        def before(said: str) -> None:
            nonlocal is_over
            if is_over or not said.startswith(call):
                return
            is_over = True
            if act == "forbid":
                raise Denied("grant verb list", status=403)
            if act == "clear":
                self.cluster.objects.clear()
            else:
                self._put(name, words)

        self.cluster.before = before

    async def do_uninstall(self, dry: str = "") -> str:
        lines: list[str] = []
        try:
            await uninstall(self.cluster, NAMESPACE, lines.append, is_dry_run=bool(dry))
        except LeftOver as error:
            lines.append(f"failed: {error}")
        shown = [line.replace("WebhookConfiguration", "") for line in lines]
        return " / ".join(shown) if len(shown) < 9 else f"{len(shown)} lines"

    async def do_left(self) -> str:
        return "left " + (" ".join(name for _, name in self.cluster.objects) or "nothing")

    async def do_deletes(self) -> str:
        return f"{sum(call.startswith('delete') for call in self.cluster.calls)} deletes"


@pytest.mark.parametrize("story", read_stories(Path(__file__).with_name("admin.txt")))
async def test_uninstall(story: Story, golden: Golden) -> None:
    story.check(await UninstallStage().play(story.commands), golden)


def serve(api: FakeApi, *items: JsonObject) -> str:
    """Let the server list these, and nothing of the other kind; return the path of the first."""
    for resource, found in (VALIDATING_WEBHOOKS, list(items)), (MUTATING_WEBHOOKS, []):
        page: JsonObject = {"metadata": {"resourceVersion": "1"}, "items": found}
        api.on("GET", resource.path(""), reply(page))
    return VALIDATING_WEBHOOKS.path("", NAME)


@pytest.mark.parametrize("words", [[], ["-n", NAMESPACE], [f"--namespace={NAMESPACE}"]])
async def test_a_kubeconfig_says_it_all(
    words: list[str], tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DEP-85, D-76: an outage is no time for three long flags."""
    async with FakeApi() as api:
        api.on("DELETE", serve(api, configuration(NAME)), reply({"status": "Success"}))
        file = write_kubeconfig(tmp_path / "config", api.url, "" if words else NAMESPACE)
        monkeypatch.setenv("KUBECONFIG", str(file))
        assert await asyncio.to_thread(main, ["uninstall-webhooks", *words]) == 0
    listed, deleted = api.requests[0], api.requests[1]
    assert listed.query["labelSelector"] == "grafana.com/namespace=prod"
    assert isinstance(deleted.json, dict)
    assert deleted.json["preconditions"] == {"uid": f"uid-{NAME}", "resourceVersion": "1"}
    assert capsys.readouterr().out == DELETED


async def test_a_refused_delete_fails_and_names_verb_and_resource(
    tmp_path: Path, capsys: Captured
) -> None:
    message = (
        'validatingwebhookconfigurations "no-downscale-prod" is forbidden: User "u" cannot delete'
        ' resource "validatingwebhookconfigurations"'
    )
    async with FakeApi() as api:
        api.on("DELETE", serve(api, configuration(NAME)), refuse(403, "Forbidden", message))
        assert await run(api, tmp_path, "uninstall-webhooks", "-n=prod") == 1
    shown = capsys.readouterr()
    assert 'grant verb delete on "validatingwebhookconfigurations"' in shown.out
    assert shown.err == (
        "rollout-operator: webhook configurations may be left: 1 failed, see above\n"
    )


async def test_a_dry_run_of_nothing(tmp_path: Path, capsys: Captured) -> None:
    async with FakeApi() as api:
        serve(api)
        assert await run(api, tmp_path, "uninstall-webhooks", "-n=prod", "-dry-run") == 0
    expected = "there are no webhook configurations of namespace prod\n"
    assert capsys.readouterr().out == expected


def list_names(definitions: list[JsonObject]) -> list[str]:
    heads = (definition["metadata"] for definition in definitions)
    return [f"{head['name']}" for head in heads if isinstance(head, dict)]


@pytest.mark.parametrize("name", ["a.yml", "a.yaml"])
def test_files_end_as_kubectl_takes_them(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(f"{KIND}\nspec: {{group: {ZONE_BUDGETS.group}}}\n")
    (tmp_path / f"kustomization{Path(name).suffix}").write_text("resources: []\n")
    assert list_names(read_definitions(tmp_path)) == ["a"]


@pytest.mark.parametrize("content", [b"\xff\xfea", b"a: \x80", "é".encode("latin-1")])
def test_a_file_that_is_no_text_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.yaml: the input is not text in UTF-8"):
        read_definitions(tmp_path)


@pytest.mark.parametrize(
    ("name", "error"),
    [("nope", "nope: No such file or directory"), ("a.yaml", "a.yaml: Not a directory")],
)
def test_what_is_no_folder_is_told(name: str, error: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: Pod")
    with pytest.raises(ConfigError, match=error):
        read_definitions(tmp_path / name)


async def test_definitions_are_applied(tmp_path: Path, capsys: Captured) -> None:
    """DEP-80: what is there is changed and what is missing is created, whoever made it."""
    bodies = read_definitions(CRDS)
    names = list_names(bodies)
    assert {name.partition(".")[0] for name in names} == {
        *("multiazrollouts", "replicatemplates", "zoneawarepoddisruptionbudgets")
    }
    async with FakeApi() as api:
        for name in names:
            api.on("PATCH", DEFINITIONS.path("", name), reply({}))
        assert await run(api, tmp_path, "admin", "apply-crds", str(CRDS)) == 0
        sent = api.requests
    assert [each.path for each in sent] == [DEFINITIONS.path("", name) for name in names]
    assert [each.json for each in sent] == bodies
    assert all(each.query["force"] == "true" for each in sent)
    assert capsys.readouterr().out.splitlines() == [
        f"CustomResourceDefinition {name}: applied" for name in names
    ]


async def test_a_refusal_is_an_error(tmp_path: Path, capsys: Captured) -> None:
    """DEP-80: the Job fails, and with it the upgrade, before anything else has changed."""
    async with FakeApi() as api:
        for name in list_names(read_definitions(CRDS)):
            message = f'customresourcedefinitions "{name}" is forbidden: User "u" cannot patch'
            api.on("PATCH", DEFINITIONS.path("", name), refuse(403, "Forbidden", message))
        assert await run(api, tmp_path, "admin", "apply-crds", str(CRDS)) == 1
    assert "customresourcedefinitions" in capsys.readouterr().err


async def run(api: FakeApi, at: Path, *words: str) -> int:
    """Return the exit code of the program, run beside the server as a process would be."""
    flag = f"-kubeconfig={write_kubeconfig(at / 'config', api.url)}"
    return await asyncio.to_thread(main, [*words, flag])
