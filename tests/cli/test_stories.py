"""Command lines with what comes of them, and dumps with what is read: tables beside this file."""

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from rollout_operator.cli.admin import read_definitions
from rollout_operator.cli.dumps import BadDump, read_objects
from rollout_operator.cli.main import COMMANDS, main
from rollout_operator.kube.api import JsonObject
from rollout_operator.model.names import ConfigError, OperatorError
from tests.cli.kubeconfig import write_kubeconfig
from tests.goldens import Golden
from tests.stories import Story, check_tables, read_stories

HERE = Path(__file__).parent
SECRET = "hunter2"
KIND = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a}"


def show(output: str) -> str:
    """Return the first line of an output and the last."""
    first, *rest = output.splitlines()
    return f"{first} ... {rest[-1]}" if rest else first


def show_line(
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """Type it with a kubeconfig whose server refuses connections: none of them gets so far."""
    monkeypatch.setenv(
        "KUBECONFIG", str(write_kubeconfig(tmp_path / "config", "https://127.0.0.1:1"))
    )
    is_installed = not command.startswith("LAB=no ")
    if not is_installed:
        # What is imported stays so.
        for one in COMMANDS:
            one.load()
        found = [path for path in sys.path if "site-packages" not in path]
        monkeypatch.setattr(sys, "path", found)
    code = main([decode(word) for word in shlex.split(command)[0 if is_installed else 1 :]])
    shown = capsys.readouterr()
    outputs = {"out": shown.out, "err": shown.err}
    parts = [f"{code}", *(f"{name} {show(text)}" for name, text in outputs.items() if text)]
    if not is_installed:
        parts += [f"names {name}" for name in ("demo", "simulate") if f" {name} " in shown.out]
    return "; ".join(parts)


test_line = check_tables(__file__, lines=show_line)


def decode(text: str) -> str:
    r"""Return a text in which \n is a new line."""
    return text.encode().decode("unicode_escape")


@pytest.mark.parametrize("story", read_stories(HERE / "dumps.txt"))
def test_dump(story: Story, golden: Golden, tmp_path: Path) -> None:
    """SI-23: a dump may hold Secrets, and an error goes into terminals and logs."""
    [command] = story.commands
    text = decode(command).replace("KIND", KIND)
    is_definition = story.title.startswith("of apply-crds")
    found = read(text, tmp_path if is_definition else None)
    if isinstance(found, OperatorError):
        assert found.__cause__ is None
        said = f"refused: {found}".replace(f"{tmp_path}/", "").replace(f"{tmp_path}", "FOLDER")
    else:
        said = msgspec.json.encode(found).decode()
    assert SECRET not in said
    said = said.replace("`kubectl get statefulsets,pods -o yaml`", "kubectl")
    story.check(re.sub(r"\s+", " ", said), golden)


def read(text: str, folder: Path | None) -> Sequence[JsonObject] | OperatorError:
    """Read a dump, or a definition in a folder; return the objects or the error."""
    try:
        if folder is None:
            return read_objects(text.encode())
        (folder / "a.yaml").write_text(text)
        return read_definitions(folder)
    except (BadDump, ConfigError) as error:
        return error
