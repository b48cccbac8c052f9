"""`rollout-operator demo` as a process: on a terminal, in a pipe, interrupted, and serving."""

import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from rollout_operator.lab.demo.screen import BEGIN, END
from tests.terminal import PATIENCE, on_terminal, read_until

COMMAND = [sys.executable, "-m", "rollout_operator", "demo"]
QUICK = ["-zones=2", "-pods=1", "-ready-after=200ms", "-speed=4"]


def frames(shown: str) -> list[list[str]]:
    """Return the lines of each frame, without what steers the terminal."""
    return [
        re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", frame).replace("\r", "").split("\n")
        for frame in shown.split("\x1b[J")
    ]


@pytest.mark.parametrize(
    ("words", "is_coloured"),
    [pytest.param([], True, id="colours"), pytest.param(["-color=never"], False, id="none")],
)
def test_a_story_on_a_terminal_of_80_columns_and_24_lines(
    words: list[str], is_coloured: bool
) -> None:
    with on_terminal([*COMMAND, *QUICK, *words]) as (demo, master):
        shown = read_until(master, END)
        assert demo.wait(PATIENCE) == 0

    assert BEGIN in shown
    assert ("\x1b[32m" in shown) == is_coloured
    drawn = frames(shown)
    assert len(drawn) > 10
    assert all(len(lines) <= 24 and max(map(len, lines)) <= 80 for lines in drawn)
    assert any("2 of 2 pods ready on v2" in line for line in drawn[-2])
    assert any("2 pods replaced in" in line for line in drawn[-2])
    assert "level=" not in shown, "the operator's log does not get into the picture"


def test_a_dumb_terminal_gets_lines() -> None:
    with on_terminal([*COMMAND, *QUICK], TERM="dumb") as (demo, master):
        shown = read_until(master, "the operator never took pods of two zones")
        assert demo.wait(PATIENCE) == 0

    assert "\x1b" not in shown


def test_an_interrupt_from_the_keyboard_ends_it_cleanly() -> None:
    with on_terminal([*COMMAND, "-ready-after=1m"]) as (demo, master):
        shown = read_until(master, "pods_starting")
        os.write(master, b"\x03\x03")
        shown += read_until(master, "nothing is left")
        assert demo.wait(PATIENCE) == 130

    assert "Traceback" not in shown
    assert END in shown


def test_a_reader_that_goes_away_ends_it_without_a_word() -> None:
    demo = subprocess.Popen([*COMMAND, *QUICK], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert demo.stdout is not None
    assert demo.stderr is not None
    with demo.stderr, demo:
        demo.stdout.readline()
        demo.stdout.close()
        assert demo.stderr.read() == b""
        assert demo.wait(PATIENCE) == 141


def test_a_demo_that_serves_goes_on_and_ends_with_0_by_a_signal() -> None:
    words = [*QUICK, "-speed=10", "-serve", "-server.port=0"]
    with on_terminal([*COMMAND, *words], NO_COLOR="1") as (demo, master):
        shown = read_until(master, "2 pods replaced in")
        found = re.search(r"http://127\.0\.0\.1:[0-9]+/", shown)
        assert found is not None
        pages = {path: fetch(found[0] + path) for path in ("ready", "metrics", "")}
        read_until(master, "pods ready on v3")
        demo.send_signal(signal.SIGTERM)
        read_until(master, "nothing is left")
        assert demo.wait(PATIENCE) == 0

    assert pages["ready"] == "ready\n"
    assert 'rollout_operator_group_reconciles_total{rollout_group="ingester"}' in pages["metrics"]
    assert 'group "ingester"' in pages[""]


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return str(answer.read().decode())
