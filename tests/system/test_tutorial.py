"""The tutorials, each command of them run on a cluster that `make demo-cluster` would keep."""

import io
import re
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from rollout_lab.demo.screen import Plain

from tests.demo.__main__ import open_cluster, present
from tests.demo.flags import Settings
from tests.demo.kept import COMMANDS, render_invitation, write_kubeconfig
from tests.system.pages import DOCS, Terminal
from tests.world.plane import ControlPlane

TUTORIAL: Final = DOCS / "tutorial.md"
POLICIES: Final = DOCS / "tutorial-policies.md"
NAMESPACE: Final = "demo"


@pytest.mark.controlplane
@pytest.mark.slow
async def test_every_command_does_what_the_tutorials_say(plane: ControlPlane) -> None:
    """SEED-001: after the story, on the same cluster, with kubectl and our own commands."""
    settings = Settings(ready_after=timedelta(milliseconds=700), is_kept=True)
    async with open_cluster(plane, settings, Plain(io.StringIO()), NAMESPACE) as cluster:
        config = write_kubeconfig(cluster.world)
        terminal = Terminal(kubeconfig=config, folder=cluster.world.folder)
        await terminal.follow(TUTORIAL)
        await terminal.follow(POLICIES)
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
    assert text.rstrip().splitlines()[-2:] == [
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
