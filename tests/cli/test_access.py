"""Where a person's command finds its cluster (D-76), and what it makes of answers: texts beside
this file."""

import asyncio
import re
from collections.abc import Sequence
from errno import EACCES
from pathlib import Path
from typing import Any, Final

import pytest

from rollout_operator.cli.access import ACCESS_FLAGS, choose_access, open_client
from rollout_operator.cli.admin import read_definitions
from rollout_operator.cli.main import main
from rollout_operator.config.grammar import UsageError, parse_mixed
from rollout_operator.kube.api import (
    DEFINITIONS,
    MUTATING_WEBHOOKS,
    PODS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
)
from rollout_operator.model.names import ConfigError
from tests.cli.kubeconfig import write_kubeconfig
from tests.cli.test_admin import CRDS, configuration
from tests.kube.fake_api import Answer, FakeApi, refuse, reply
from tests.stories import Steps, check_stories, check_tables

HERE: Final = Path(__file__).parent
HOOK: Final = "no-downscale-prod"
NAMES: Final = [f"{one['metadata']['name']}" for one in map(dict[str, Any], read_definitions(CRDS))]
PATHS: Final = {
    "sets": STATEFULSETS.path("mimir"),
    "pods": PODS.path("mimir"),
    "all-sets": "/apis/apps/v1/statefulsets",
    "all-pods": "/api/v1/pods",
    "namespace": "/api/v1/namespaces/mimir",
    "budgets": ZONE_BUDGETS.path("mimir"),
    "hooks": VALIDATING_WEBHOOKS.path(""),
    "hook": VALIDATING_WEBHOOKS.path("", HOOK),
    "mutating": MUTATING_WEBHOOKS.path(""),
}
ANSWERS: Final[dict[str, Answer]] = {
    "ok": reply({"metadata": {"name": "mimir"}}),
    "empty": reply({"metadata": {"resourceVersion": "1"}, "items": []}),
    "hook": reply({"metadata": {"resourceVersion": "1"}, "items": [configuration(HOOK)]}),
    "403": refuse(403, "Forbidden", 'x is forbidden: User "u" cannot touch resource "x"'),
    "404": refuse(404, "NotFound", 'namespaces "mimir" not found'),
}


def show_place(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("flag", "config", "home/.kube/config"):
        write_kubeconfig(tmp_path / name)
    write_kubeconfig(tmp_path / "plain", "10.0.0.1:6443")
    for name, namespace in (("one", "one"), ("two", "two"), ("odd", "../x")):
        write_kubeconfig(tmp_path / name, namespace=namespace)
    (tmp_path / "namespace").write_text("ops\n")

    def forbid(path: Path, **options: bool) -> None:
        raise PermissionError(EACCES, "Permission denied", f"{path}")

    words = case.replace("AT", f"{tmp_path}").split()
    environ = dict(word.split("=") for word in words if word[0].isupper() and "=" in word)
    flags = [word for word in words if not word[0].isupper()]
    with monkeypatch.context() as patches:
        if "LOCKED" in words:
            patches.setattr(Path, "stat", forbid)
            patches.setattr(Path, "read_bytes", forbid)
        try:
            access = choose_access(parse_mixed(ACCESS_FLAGS, flags), environ, tmp_path)
        except (ConfigError, UsageError) as error:
            found = f"{type(error).__name__}: {error}"
        else:
            files = access.kubeconfig.files if access.kubeconfig else [access.service_account]
            found = f"{access.namespace} by {' '.join(map(str, files))}"
    return found.replace(f"{tmp_path}", "AT")


test_place = check_tables(__file__, access=show_place)


class ServedStage(Steps):
    """A person who types commands beside an API server whose answers are scripted."""

    def __init__(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.folder, self.capsys, self.patches = tmp_path, capsys, monkeypatch
        self.out = ""
        self.namespace = "404"

    async def set_up(self) -> None:
        self.server = server = await self.stack.enter_async_context(FakeApi())
        server.on("GET", PATHS["namespace"], lambda request: ANSWERS[self.namespace](request))
        self.file = write_kubeconfig(self.folder / "config", server.url)
        self.patches.setenv("KUBECONFIG", f"{self.file}")

    def find_command(self, word: str, rest: Sequence[str]) -> Any:
        return self._type if word == "$" else super().find_command(word, rest)

    async def _type(self, *words: str) -> str:
        flags = [word.replace("FILE", f"{self.file}") for word in words]
        code = await asyncio.to_thread(main, flags)
        self.out, error = self.capsys.readouterr()
        error = re.sub(r"127\.0\.0\.1:\d\d+", "AT", error)
        error = re.sub(r"(no TLS with AT: )[a-z ]+;", r"\1...;", error)
        assert error.count("\n") <= 1
        lines = [line.rstrip() for line in (self.out.splitlines() or [""])]
        shown = " ... ".join(dict.fromkeys((lines[0], lines[-1])))
        return f"{code:d} {error.removeprefix('rollout-operator: ').rstrip() or shown}".rstrip()

    async def do_namespace(self, answer: str) -> None:
        self.namespace = answer

    async def do_on(self, method: str, places: str, answer: str) -> None:
        """Answer so at some paths; `crds` are those of all our definitions."""
        for place in places.split(","):
            names = NAMES if place == "crds" else []
            for path in [DEFINITIONS.path("", one) for one in names] or [PATHS[place]]:
                self.server.on(method, path, ANSWERS[answer])

    async def do_at(self, url: str, namespace: str = "mimir") -> None:
        """Have the kubeconfig name another URL: that of the server is URL, or TLS for https."""
        known = {"URL": self.server.url, "TLS": self.server.url.replace("http", "https")}
        write_kubeconfig(self.file, known.get(url, url), namespace)

    async def do_anywhere(self, *words: str) -> str:
        """Type it where the namespace is there, is unread and is absent; show what differs."""
        found = {}
        for self.namespace in ("ok", "403", "404"):
            found[self.namespace] = await self._type(*words)
        assert found["ok"] == found["403"]
        assert found["404"].startswith("0") or not self.out
        return f"{found['ok']}; absent: {found['404']}"

    async def do_lines(self, *parts: str) -> str:
        """Show the lines with these parts."""
        lines = self.out.splitlines()
        return " / ".join(line for part in parts for line in lines if part in line)

    async def do_sent(self, part: str, *methods: str) -> str:
        """Count the requests whose path has this part, of some methods."""
        return str(
            sum(
                part in one.path and (not methods or one.method in methods)
                for one in self.server.requests
            )
        )

    async def do_deleted(self) -> str:
        """Show the first list, and with what the delete was sent that followed it."""
        listed, deleted, *_ = self.server.requests
        return f"by {listed.query['labelSelector']}: {deleted.method} {deleted.json}"

    async def do_applied(self) -> str:
        sent = self.server.requests
        assert [one.path for one in sent] == [DEFINITIONS.path("", name) for name in NAMES]
        assert [one.json for one in sent] == read_definitions(CRDS)
        return ", ".join(
            f"{name} force={one.query['force']}" for name, one in zip(NAMES, sent, strict=True)
        )


test_story = check_stories(__file__, served=ServedStage)


async def test_the_server_of_the_file_is_called(tmp_path: Path) -> None:
    async with FakeApi() as server:
        server.on("GET", PODS.path("mimir", "a-0"), reply({}))
        file = write_kubeconfig(tmp_path / "config", server.url)
        access = choose_access(parse_mixed(ACCESS_FLAGS, ()), {"KUBECONFIG": f"{file}"}, HERE)
        async with open_client(access) as client:
            assert await client.fetch(PODS, "mimir", "a-0") == b"{}"
