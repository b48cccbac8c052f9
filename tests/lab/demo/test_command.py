"""`rollout-operator demo` as a process: on a terminal, in a pipe, interrupted, and serving.

The pages that it serves are those of the operator, for this machine alone.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import termios
import urllib.request

import pytest
from rollout_lab.demo.command import HOST, make_admin

from rollout_operator.aio.clock import LoopClock
from rollout_operator.controllers.context import Telemetry
from rollout_operator.web.admin import AdminServer
from tests.terminal import PATIENCE, on_terminal, read_until

COMMAND = [sys.executable, "-m", "rollout_operator", "demo"]
SHOW_CURSOR = "\x1b[?25h"
AGAIN = "\x1b[23A"
QUICK = ["-zones=2", "-pods=1", "-ready-after=200ms", "-speed=4"]


def read_end(master: int, demo: subprocess.Popen[bytes]) -> str:
    """Return what is shown once the terminal is left as it was."""
    shown = read_until(master, SHOW_CURSOR)
    assert demo.wait(PATIENCE) == 0
    return shown


def strip(shown: str) -> str:
    """Return it without colours and the like."""
    return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", shown).replace("\r", "")


@pytest.mark.parametrize(
    ("words", "is_coloured"),
    [pytest.param([], True, id="colours"), pytest.param(["-color=never"], False, id="none")],
)
def test_a_story_on_a_terminal_stays_until_a_key_ends_it(
    words: list[str], is_coloured: bool
) -> None:
    with on_terminal([*COMMAND, *QUICK, *words]) as (demo, master):
        shown = read_until(master, "q quit") + read_until(master, "2 pods replaced in")
        os.write(master, b"n")
        shown += read_until(master, "A bad revision")
        os.write(master, b"q")
        shown += read_end(master, demo)

    assert ("\x1b[32m" in shown) == is_coloured
    frames = [strip(frame).splitlines() for frame in shown.split(AGAIN)[1:-1]]
    assert len(frames) > 3  # fewer where the machine is slow
    # The story after the first is drawn below its end, which stays in the scroll-back.
    assert {len(lines) for lines in frames} <= {23, 46}
    assert max(len(line) for lines in frames for line in lines) <= 80
    assert "level=" not in shown, "the operator's log does not get into the picture"


@pytest.mark.parametrize("words", [["-ready-after=1m"], ["-ready-after=1m", "-ascii"]])
def test_an_interrupt_from_the_keyboard_ends_it_cleanly(words: list[str]) -> None:
    """Also while time stands still."""
    with on_terminal([*COMMAND, *words]) as (demo, master):
        shown = read_until(master, "pods_starting")
        os.write(master, b" ")
        shown += read_until(master, "paused")
        os.write(master, b"\x03")
        shown += read_end(master, demo)
        attributes = termios.tcgetattr(master)

    assert "Traceback" not in shown
    assert shown.isascii() == ("-ascii" in words)
    assert attributes[3] & termios.ICANON
    assert attributes[3] & termios.ECHO


def test_a_dumb_terminal_gets_lines_and_an_end() -> None:
    with on_terminal([*COMMAND, *QUICK], TERM="dumb") as (demo, master):
        shown = read_until(master, "the operator never took pods of two zones")
        assert demo.wait(PATIENCE) == 0

    assert "\x1b" not in shown


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
        read_until(master, "new template for all zones: v3")
        demo.send_signal(signal.SIGTERM)
        read_end(master, demo)

    assert pages["ready"] == "ready\n"
    assert 'rollout_operator_group_reconciles_total{rollout_group="ingester"}' in pages["metrics"]
    assert "\ningester  " in pages[""]


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return str(answer.read().decode())


def admin(port: int = 0) -> AdminServer:
    return make_admin(port, "demo", Telemetry.begin(LoopClock()))


async def get(port: int, path: str, host: str = "127.0.0.1") -> str:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {path} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


async def test_the_pages_of_the_operator_are_served_to_no_other_client() -> None:
    """Every other address of this machine refuses: 127.0.0.2 stands for them."""
    server = admin()
    await server.start(HOST)
    try:
        assert "operator: starting" in await get(server.port, "/ready")
        assert "rollout_operator_" in await get(server.port, "/metrics")
        assert "0 rollout groups" in await get(server.port, "/")
        with pytest.raises(ConnectionRefusedError):
            await get(server.port, "/ready", host="127.0.0.2")
    finally:
        await server.stop()
