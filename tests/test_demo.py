"""The demo shows what there is, in 80 columns, and leaves nothing behind."""

import asyncio
import fcntl
import io
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.demo.__main__ import _cancel_once, _is_only, _parser
from tests.demo.drawing import (
    COLUMNS,
    Line,
    Style,
    draw_frame,
)
from tests.demo.figures import Record, measure
from tests.demo.picture import Note, Picture, Row, State
from tests.demo.show import Settings, present
from tests.demo.terminal import BEGIN, END, Live, Plain, choose_screen
from tests.world.plane import ControlPlane
from tests.world.stories import begin
from tests.world.timings import Restart

ROOT = Path(__file__).parents[1]
SIZE = os.terminal_size((COLUMNS, 24))
PATIENCE = 60.0

ROW = Row(name="zone-a", cells=(State.OLD, State.OLD), ready=2, current="1f", update="2e")
STILL = Picture(title="3 zones of 3 pods", elapsed=0.0, rows=(ROW,))
MOVED = replace(STILL, rows=(replace(ROW, cells=(State.ENDING, State.OLD), ready=1),), elapsed=1.0)
SUMMARY: Sequence[Line] = ((("judge clean", Style.PLAIN),),)


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
    told = begin()
    start = told.at
    told.ask("a-0")
    told.wait(1.0)
    told.change_pod("a-1", is_ready=False)
    told.change_pod("a-1", is_ready=True)
    told.change_pod("b-2", is_ready=False)
    told.come_back("a-0")
    told.wait(1.0)
    told.write("pod/c-1", None)

    found = measure(
        Record(
            begin=start,
            changes=told.changes,
            restarts=[restart("a", 0, start, start + 1.0)],
            deletes=[*told.deletes, replace(told.deletes[0], code=409)],
            violations=[],
        ),
        limit=1,
    )

    assert (found.zones_short, found.pods_short, found.refused) == (2, 2, 1)


# Screens


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "env", "is_plain", "shown"),
    [
        (Terminal(), {"TERM": "xterm"}, False, "in place, coloured"),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, False, "in place, coloured"),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False, "in place"),
        (Terminal(), {"TERM": "dumb"}, False, "plain"),
        (Terminal(), {}, False, "plain"),
        (Terminal(), {"TERM": "xterm"}, True, "plain"),
        (io.StringIO(), {"TERM": "xterm"}, False, "plain"),
    ],
)
def test_the_screen_that_fits(
    stream: io.StringIO, env: Mapping[str, str], is_plain: bool, shown: str
) -> None:
    screen = choose_screen(stream, env, is_plain=is_plain)

    if isinstance(screen, Live):
        assert shown == ("in place, coloured" if screen.is_coloured else "in place")
    else:
        assert shown == "plain"


def test_a_terminal_is_redrawn_in_place_and_left_as_it_was() -> None:
    stream = Terminal()
    with Live(stream, is_coloured=False, size=lambda: SIZE) as screen:
        screen.show(STILL)
        stream.truncate(stream.seek(0))
        screen.show(STILL)
        again = stream.getvalue()
        screen.finish(STILL, SUMMARY)
    height = len(draw_frame(STILL, SIZE.lines - 1))

    assert again.startswith(f"\r\x1b[{height}A3 zones of 3 pods")
    assert again.count("\n") == height
    assert again.endswith("\n\x1b[J")
    assert stream.getvalue().endswith(END)


def test_a_terminal_is_left_as_it_was_after_an_error() -> None:
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt), Live(stream, is_coloured=True, size=lambda: SIZE):
        raise KeyboardInterrupt

    assert stream.getvalue() == BEGIN + END


def test_a_frame_is_lower_than_the_terminal_and_not_wider() -> None:
    stream = Terminal()
    Live(stream, is_coloured=False, size=lambda: os.terminal_size((20, 6))).show(STILL)
    lines = stream.getvalue().split("\n")

    assert len(lines) == 6
    assert max(len(line.removeprefix("\r").removesuffix("\x1b[K")) for line in lines) <= 20


def test_plain_lines_come_once_and_in_order_of_time() -> None:
    stream = io.StringIO()
    screen = Plain(stream)
    screen.show(STILL)
    grid = stream.getvalue()
    moved = replace(MOVED, elapsed=0.50)
    screen.show(moved)
    # The word that the pod has to go is read after it was seen to go.
    told = replace(moved, notes=(Note(at=0.49, code="paused", text="x"),), elapsed=0.55)
    screen.show(told)
    assert stream.getvalue() == grid, "young lines wait"
    screen.show(replace(told, elapsed=0.9))
    screen.show(replace(told, elapsed=1.2))

    assert stream.getvalue().removeprefix(grid).splitlines() == [
        " 0.49 s  operator  paused: x",
        " 0.50 s  zone-a-0  o v1 ready -> x ending",
    ]


def test_plain_lines_that_wait_are_not_lost_at_the_end() -> None:
    stream = io.StringIO()
    screen = Plain(stream)
    screen.show(STILL)
    screen.finish(MOVED, SUMMARY)

    text = stream.getvalue()
    assert " 1.00 s  zone-a-0  o v1 ready -> x ending\n" in text
    assert text.endswith("judge clean\n")
    assert "\x1b" not in text


# The command


@pytest.mark.parametrize("words", [["--replicas=0"], ["--limit=99"], ["--replicas=x"], ["more"]])
def test_what_cannot_be_shown_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(words)

    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_a_reader_that_is_gone_is_known_in_whatever_it_is_wrapped() -> None:
    gone = BrokenPipeError()

    assert _is_only(ExceptionGroup("a", [gone, ExceptionGroup("b", [gone])]), BrokenPipeError)
    assert not _is_only(ExceptionGroup("a", [gone, OSError()]), BrokenPipeError)


async def test_a_second_signal_does_not_cut_the_clean_up_short() -> None:
    cleaned: list[bool] = []

    async def show() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancel()
            await asyncio.sleep(0)
            cleaned.append(True)

    outcome = asyncio.gather(show())
    cancel = _cancel_once(outcome)
    asyncio.get_running_loop().call_soon(cancel)
    with pytest.raises(asyncio.CancelledError):
        await outcome

    assert cleaned == [True]


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
            assert f"  zone-{zone}-{ordinal}  o v1 ready -> " in text
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
    master, slave = pty.openpty()
    demo = subprocess.Popen(
        [sys.executable, "-m", "tests.demo"],
        cwd=ROOT,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm", "TMPDIR": str(tmp_path)},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    try:
        shown = _read_until(master, "pods_starting")
        os.write(master, b"\x03\x03")
        shown += _read_until(master, "nothing is left")
        code = demo.wait(PATIENCE)
    finally:
        demo.kill()
        os.close(master)

    assert code == 130
    assert BEGIN in shown
    assert shown.rstrip().endswith(f"{END}stopped, nothing is left running"), shown[-2000:]
    assert "Traceback" not in shown
    assert _session_members(demo.pid) == []
    assert list(tmp_path.glob("test-world-*")) == []


def _read_until(master: int, awaited: str) -> str:
    text, end = "", time.monotonic() + PATIENCE
    while awaited not in text:
        readable, _, _ = select.select([master], [], [], max(0.0, end - time.monotonic()))
        assert readable, f"no {awaited!r} in {text[-2000:]}"
        try:
            text += os.read(master, 65536).decode(errors="replace")
        except OSError:  # nobody writes any more
            pytest.fail(f"no {awaited!r} in {text[-2000:]}")
    return text


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
