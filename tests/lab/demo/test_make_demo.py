"""The demo shows what there is, in 80 columns, and leaves nothing behind."""

import io
import os
import re
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from rollout_operator.lab.demo.screen import BEGIN, END, Plain
from tests.demo.__main__ import _parser
from tests.demo.show import Settings, present
from tests.terminal import PATIENCE, on_terminal, read_until
from tests.world.plane import ControlPlane

ROOT = Path(__file__).parents[3]


# The command


@pytest.mark.parametrize("words", [["--replicas=0"], ["--limit=99"], ["--replicas=x"], ["more"]])
def test_what_cannot_be_shown_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(words)

    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.controlplane
async def test_a_whole_rollout_in_plain_lines(plane: ControlPlane) -> None:
    """SEED-001, LI-01: as `make demo` shows it in a pipe, with pods that are quick."""
    stream = io.StringIO()
    settings = Settings(
        replicas=2,
        ready_after=timedelta(milliseconds=150),
        terminates_after=timedelta(milliseconds=50),
    )

    assert await present(plane, settings, Plain(stream)), stream.getvalue()

    text = stream.getvalue()
    lines = text.splitlines()
    assert "\x1b" not in text
    for zone in "abc":
        for ordinal in range(2):
            assert f"  zone-{zone}-{ordinal}   o v1 ready -> " in text
        assert f"rolled_out: zone-{zone}: recording revision" in text
    assert "6 of 6 pods ready on v2" in text
    assert [line.split()[-1] for line in lines if line.startswith("pods short")] == ["1"]
    assert any(line.split()[:2] == ["deletes", "6"] for line in lines)
    assert any(line.split()[:3] == ["zones", "short", "1"] for line in lines)
    assert lines[-1].split()[:2] == ["judge", "clean"]
    times = [float(found[1]) for line in lines if (found := re.match(r" *([0-9.]+) s  ", line))]
    assert times == sorted(times)


@pytest.mark.controlplane
def test_an_interrupt_from_the_keyboard_leaves_nothing_behind(tmp_path: Path) -> None:
    """The terminal sends it to our children as well, which must not disturb the clean-up."""
    command = [sys.executable, "-m", "tests.demo"]
    with on_terminal(command, cwd=ROOT, TMPDIR=str(tmp_path)) as (demo, master):
        shown = read_until(master, "pods_starting")
        os.write(master, b"\x03\x03")
        shown += read_until(master, "nothing is left")
        code = demo.wait(PATIENCE)

    assert code == 130
    assert BEGIN in shown
    assert shown.rstrip().endswith(f"{END}stopped, nothing is left running"), shown[-2000:]
    assert "Traceback" not in shown
    assert _session_members(demo.pid) == []
    assert list(tmp_path.glob("test-world-*")) == []


def _session_members(session: int) -> list[str]:
    """Return the command lines of the processes that belong to a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append((stat.parent / "cmdline").read_text())
        except OSError:  # it has ended meanwhile
            continue
    return found
