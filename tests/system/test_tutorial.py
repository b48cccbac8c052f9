"""docs/tutorial.md, each command of it run on a cluster that `make demo-cluster` would keep."""

import asyncio
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from rollout_operator.lab.demo.screen import Plain
from tests.demo.__main__ import open_cluster, present
from tests.demo.flags import Settings
from tests.demo.kept import COMMANDS, render_invitation, write_kubeconfig
from tests.world.kubectl import find_kubectl
from tests.world.plane import ControlPlane

TUTORIAL: Final = Path(__file__).parents[2] / "docs" / "tutorial.md"
ANYTHING: Final = "..."
NAMESPACE: Final = "demo"
LIMIT_SECONDS: Final = 150


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the tutorial, and what it prints."""

    line: str
    code: int
    printed: tuple[str, ...]


def _list_commands() -> Iterator[Command]:
    for block in re.findall(r"```console\n(.*?)```", TUTORIAL.read_text(), re.DOTALL):
        for text in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, *printed = text.splitlines()
            words, _, code = line.partition("# exit code ")
            yield Command(words.strip(), int(code or 0), tuple(printed))


def _is_printed(line: str, output: str) -> bool:
    """Tell whether a line of the output looks so; blanks and `...` stand for any."""
    words = [re.escape(" ".join(part.split())) for part in line.split(ANYTHING)]
    pattern = re.compile(r".*".join(words))
    return any(pattern.search(" ".join(each.split())) for each in output.splitlines())


@pytest.mark.controlplane
@pytest.mark.slow
async def test_every_command_does_what_the_tutorial_says(plane: ControlPlane) -> None:
    """SEED-001: after the story, on the same cluster, with kubectl and our own commands."""
    settings = Settings(ready_after=timedelta(milliseconds=700), is_kept=True)
    programs = os.pathsep.join(
        (str(Path(sys.executable).parent), str(find_kubectl()), os.environ["PATH"])
    )
    async with open_cluster(plane, settings, Plain(io.StringIO()), NAMESPACE) as cluster:
        config = write_kubeconfig(cluster.world)
        env = {**os.environ, "KUBECONFIG": str(config), "PATH": programs}
        for command in _list_commands():
            ended = await asyncio.to_thread(
                subprocess.run,
                command.line.split(),
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_SECONDS,
                check=False,
            )
            output = ended.stdout.decode()
            assert ended.returncode == command.code, (command, output)
            missing = [line for line in command.printed if not _is_printed(line, output)]
            assert not missing, f"{command.line}\n{output}"
        await cluster.world.judge.assert_clean()


@pytest.mark.controlplane
async def test_a_whole_rollout_in_plain_lines(plane: ControlPlane) -> None:
    """SEED-001, LI-01: as `make demo-cluster` shows it in a pipe, with pods that are quick."""
    stream = io.StringIO()
    settings = Settings(pods=2, ready_after=timedelta(milliseconds=150))
    screen = Plain(stream)

    async with open_cluster(plane, settings, screen) as cluster:
        assert await present(cluster, settings, screen), stream.getvalue()

    text = stream.getvalue()
    first, last = re.findall(r"\d of 6 pods ready on \w+", text)
    assert (first, last) == ("0 of 6 pods ready on v2", "6 of 6 pods ready on v2")
    assert "\x1b" not in text
    assert all(f"deletes zone-{zone}-{n}: " in text for zone in "abc" for n in range(2))
    assert not re.search(r"\b(SI|LI)-\d\d|pod_outdated|rolled_out", text)
    assert text.splitlines()[-2:] == [
        "the operator deleted 6 pods",
        "etcd's own history, read by a judge: every promise was kept",
    ]


def test_the_invitation_has_five_commands_of_the_tutorial() -> None:
    """Each with what it shows, after how to reach the cluster."""
    lines = render_invitation(Path("/kept/kubeconfig"), "/bin")
    known = TUTORIAL.read_text()

    assert "  export KUBECONFIG=/kept/kubeconfig" in lines
    assert any(line.startswith("  export PATH=") for line in lines)
    assert [line.strip() for line in lines if line.strip() in dict(COMMANDS)] == [*dict(COMMANDS)]
    assert len(COMMANDS) == 5
    for command in dict(COMMANDS):
        assert command.partition(" -o ")[0].partition(",")[0] in known, command
