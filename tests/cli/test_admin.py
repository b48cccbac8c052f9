"""`admin`: what its tasks do to a cluster, and how they end (DEP-80, DEP-85)."""

from collections import deque
from pathlib import Path
from typing import Final

import pytest

from rollout_operator.cli.admin import LeftOver, read_definitions, uninstall
from rollout_operator.kube.api import (
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
from tests.code_rules import ROOT
from tests.controllers.fake_client import FakeClient
from tests.stories import Steps, check_stories

CRDS: Final = ROOT / "manifests" / "crds"
KIND: Final = (
    "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}"
)
NAMESPACE: Final = "prod"
NAME: Final = "no-downscale-prod"
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


test_uninstall = check_stories(__file__, admin=UninstallStage)


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
