"""README's commands on zones of one's own, run on a cluster that `make demo-cluster` would keep."""

import io
import re
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from rollout_lab.demo.screen import Plain

from tests.code_rules import ROOT
from tests.demo.__main__ import open_cluster
from tests.demo.flags import Settings
from tests.demo.kept import write_kubeconfig
from tests.system.pages import Terminal
from tests.world.plane import ControlPlane

NAMESPACE: Final = "demo"
SECTIONS: Final = ("Roll out your own zones", "When a rollout stands still")
# What README takes the zones to be before: alone, and rolled out by Kubernetes.
AS_BEFORE: Final = """```console
$ kubectl label statefulset --all rollout-group-
$ kubectl patch statefulset zone-a -p '{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}'
$ kubectl patch statefulset zone-b -p '{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}'
$ kubectl patch statefulset zone-c -p '{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}'
```
"""


def _write_page(folder: Path) -> Path:
    """Write the sections whose commands need a cluster, with what comes before."""
    parts = re.split(r"^## (.+)$", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    page = folder / "page.md"
    page.write_text("\n".join([AS_BEFORE, *(texts[title] for title in SECTIONS)]))
    return page


@pytest.mark.controlplane
@pytest.mark.slow
async def test_every_command_does_what_the_readme_says(plane: ControlPlane) -> None:
    """SEED-001: plain zones are adopted and rolled out, and the commands that explain end well."""
    settings = Settings(ready_after=timedelta(milliseconds=300))
    async with open_cluster(plane, settings, Plain(io.StringIO()), NAMESPACE) as cluster:
        folder = cluster.world.folder
        terminal = Terminal(kubeconfig=write_kubeconfig(cluster.world), folder=folder)
        await terminal.follow(_write_page(folder))
        await cluster.world.judge.assert_clean()
