"""The log of a process: what is suppressed costs nothing, and who does not read holds up nothing.

Decisions go on while stderr is full (SEC-26).
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from rollout_operator.telemetry import logs
from rollout_operator.telemetry.logs import Sink, log

ROOT: Final = Path(__file__).parents[2]
# More than any pipe takes.
MANY = 100_000
# A write that waits would wait for ever, or a little for each of a thousand lines.
WAITED = 30


@dataclass
class Pipe:
    reader: int
    writer: int

    def read(self) -> bytes:
        """Return everything that is in the pipe now."""
        os.set_blocking(self.reader, False)
        parts: list[bytes] = []
        try:
            while part := os.read(self.reader, 1 << 20):
                parts.append(part)
        except BlockingIOError:
            pass
        return b"".join(parts)


@pytest.fixture(params=["blocking", "not blocking"])
def pipe(request: pytest.FixtureRequest) -> Iterator[Pipe]:
    reader, writer = os.pipe()
    os.set_blocking(writer, request.param == "blocking")
    yield Pipe(reader, writer)
    os.close(reader)
    os.close(writer)


def describe_loss(lines: int) -> bytes:
    return b"lost %d\n" % lines


def test_lines_arrive_whole_and_in_order(pipe: Pipe) -> None:
    sink = Sink(pipe.writer, describe_loss)

    sink.write(b"one\n")
    sink.write(b"x" * 20_000 + b"\n")
    sink.write(b"three\n")

    assert pipe.read() == b"one\n" + b"x" * 20_000 + b"\nthree\n"
    assert sink.lost == 0


def test_a_full_pipe_loses_lines_without_waiting_and_says_so_later(pipe: Pipe) -> None:
    """SEC-26: also a pipe whose writes block must not stop the event loop."""
    sink = Sink(pipe.writer, describe_loss)
    begin = time.monotonic()

    for _ in range(1000):
        sink.write(b"x" * 999 + b"\n")

    assert time.monotonic() - begin < WAITED
    assert sink.lost > 800
    lines = pipe.read().splitlines()
    assert len(lines) + sink.lost in {1000, 1001}, "of one line a part may wait to be finished"

    lost = sink.lost
    sink.write(b"there is room\n")

    assert pipe.read().endswith(b"lost %d\nthere is room\n" % lost)
    assert sink.lost == 0


def test_records_are_never_mixed(pipe: Pipe) -> None:
    """A line of which only a part was taken is finished before the next begins."""
    sink = Sink(pipe.writer, describe_loss)
    long = b"y" * MANY + b"\n"

    sink.write(long)
    sink.write(b"no room\n")
    first = pipe.read()
    sink.write(b"next\n")
    second = pipe.read()
    sink.write(b"last\n")

    assert 0 < len(first) < len(long)
    whole = first + second + pipe.read()
    assert whole.startswith(long)
    assert set(whole.removeprefix(long).splitlines()) <= {b"next", b"last", b"lost 1", b"lost 2"}
    assert whole.endswith(b"last\n")


def test_threads_may_write_at_the_same_time(pipe: Pipe) -> None:
    sink = Sink(pipe.writer, describe_loss)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: sink.write(b"%04d" % number * 10 + b"\n"), range(500)))

    lines = pipe.read().splitlines()
    assert sorted(lines) == [b"%04d" % number * 10 for number in range(500)]


@pytest.mark.parametrize("error", ["EPIPE", "EBADF", "ENOSPC"])
def test_what_takes_no_line_does_not_raise(error: str) -> None:
    """Nothing reads it, the process was started without it, or its disk is full."""
    if error == "ENOSPC" and not os.path.exists("/dev/full"):
        pytest.skip("needs a device that is always full")
    reader, writer = os.pipe()
    os.close(reader)
    if error != "EPIPE":
        os.close(writer)
    if error == "ENOSPC":
        writer = os.open("/dev/full", os.O_WRONLY)
    sink = Sink(writer, describe_loss)

    for _ in range(3):
        sink.write(b"x\n")
    assert sink.lost == 3

    if error != "EBADF":
        os.close(writer)


def test_a_suppressed_record_is_not_even_rendered() -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError("rendered")

    logs.configure(level="info", write=lambda line: None)
    try:
        log.debug("Looking", value=Costly())
    finally:
        logs.configure()


def start_script(script: str) -> "subprocess.Popen[bytes]":
    prelude = "from rollout_operator.telemetry.logs import log"
    return subprocess.Popen(
        [sys.executable, "-c", f"{prelude}\n{script}"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_the_log_goes_to_stderr() -> None:
    """LOG-01: stderr, one record per line; before any configuration too."""
    with start_script("log.info('Deleting pod', pod='a-0')") as process:
        out, err = process.communicate(timeout=60)

    assert out == b""
    assert err.startswith(b"level=info ts=")
    assert err.endswith(b'Z msg="Deleting pod" pod=a-0\n')


UNREAD: Final = """
for number in range(2000):
    log.info("Looking", text="x" * 500)
print("done", flush=True)
input()
log.info("Last")
"""


def test_a_process_whose_log_is_not_read_goes_on() -> None:
    """SEC-26: a full pipe; what was lost is reported when the pipe is read again."""
    with start_script(UNREAD) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"done\n"
        first = os.read(process.stderr.fileno(), 1 << 20)
        process.stdin.write(b"\n")
        process.stdin.flush()
        lines = (first + process.stderr.read()).splitlines()

    assert b'msg="Log lines were lost" lines=' in lines[-2]
    assert lines[-1].endswith(b"msg=Last")
    assert all(line.startswith(b"level=") for line in lines)
