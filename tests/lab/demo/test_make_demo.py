"""The demo shows what there is, in 80 columns, and leaves nothing behind."""

import io
import os
import re
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from rollout_operator.lab.demo.screen import BEGIN, END, Plain
from tests.demo.__main__ import _parser
from tests.demo.figures import Record, measure
from tests.demo.show import Settings, present
from tests.judge.builder import HistoryBuilder
from tests.terminal import PATIENCE, on_terminal, read_until
from tests.world.forged import observe
from tests.world.plane import ControlPlane
from tests.world.timings import Restart

ROOT = Path(__file__).parents[3]


# Measuring


def restart(zone: str, ordinal: int, deleted: float, counted: float | None) -> Restart:
    return Restart(pod=f"{zone}-{ordinal}", zone=zone, deleted=deleted, counted=counted)


def record(*restarts: Restart) -> Record:
    return Record(begin=100.0, changes=(), restarts=restarts, deletes=(), violations=())


def test_one_at_a_time_the_floor_is_the_sum_of_the_restarts() -> None:
    found = measure(
        record(
            restart("a", 0, 100.5, 101.5),
            restart("a", 1, 101.6, 102.6),
            restart("b", 0, 102.9, 104.4),
        ),
        limit=1,
    )

    assert found.wall == pytest.approx(4.4)
    assert found.floor == pytest.approx(3.5)
    assert found.reaction == pytest.approx(0.2), "of 0.1 and 0.3; the template allowed the first"
    assert found.replaced == 3


def test_two_at_a_time_the_floor_runs_beside_itself() -> None:
    found = measure(
        record(
            restart("a", 0, 100.1, 101.1),
            restart("a", 1, 100.1, 102.1),
            restart("a", 2, 101.2, 102.2),  # as soon as a-0 counts, not a-1
            restart("b", 0, 102.5, 103.5),
            restart("b", 1, 102.5, 103.5),  # both since a-2 counts
        ),
        limit=2,
    )

    assert found.floor == pytest.approx(2.0 + 1.0)
    assert found.reaction == pytest.approx(0.3), "of 0.1, 0.3, 0.3"


def test_a_restart_that_is_not_over_has_no_length() -> None:
    found = measure(record(restart("a", 0, 101.0, 102.0), restart("a", 1, 102.5, None)), limit=1)

    assert (found.replaced, found.reaction) == (1, None)
    with pytest.raises(ValueError, match=r"max\(\)"):
        measure(record(restart("a", 1, 102.5, None)), limit=1)


def test_what_was_short_at_once_is_counted_from_the_begin_on() -> None:
    """Before, as while the sets are new, all of them are short."""
    t = HistoryBuilder().zones().delete(160, "a-0").pod(161, "a-1", ready=False).pod(161, "a-1")
    t.pod(161, "b-2", ready=False).replace(161, "a-0").gone(162, "c-1")
    seen = observe(t)

    found = measure(
        Record(
            begin=160.0,
            changes=seen.changes,
            restarts=[restart("a", 0, 160.0, 161.0)],
            deletes=[*seen.deletes, replace(seen.deletes[0], code=409)],
            violations=[],
        ),
        limit=1,
    )

    assert (found.zones_short, found.pods_short, found.refused) == (2, 2, 1)


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
