"""Levels, time, the way of libraries into the log, and stderr itself (section 17, DEP-06)."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from rollout_operator.model.names import InvalidInput
from rollout_operator.model.outcome import Severity
from rollout_operator.telemetry import logs
from rollout_operator.telemetry.logs import log

NOON: Final = 1_767_355_445_000_000_006  # nanoseconds: 2026-01-02T12:04:05 and six of them
ROOT: Final = Path(__file__).parents[2]


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """Everything that is logged, at debug, as logfmt, at noon."""
    written: list[str] = []
    logs.configure(write=lambda line: written.append(line.decode()), now=lambda: NOON)
    yield written
    logs.configure()


def rebind(lines: list[str], *, level: str = "debug", format: str = "logfmt") -> None:
    logs.configure(
        format=format,
        level=level,
        write=lambda line: lines.append(line.decode()),
        now=lambda: NOON,
    )


@contextmanager
def bridge() -> Iterator[None]:
    """Install the bridge; within one phase of a test, since pytest has handlers for each."""
    root = logging.getLogger()
    before = (root.handlers, root.level)
    logs.install_stdlib_bridge()
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.handlers, root.level = before


def log_at_each_level() -> None:
    log.debug("Looking")
    log.info("Deleting pod")
    log.warn("Waiting long")
    log.error("Giving up")


def levels(lines: list[str]) -> list[str]:
    return [line.split()[0].removeprefix("level=") for line in lines]


def test_a_record_has_level_time_and_message_first(lines: list[str]) -> None:
    """LOG-01, DEP-06: UTC, RFC 3339 with nanoseconds."""
    log.info("Deleting pod", pod="zone-a-0", err=InvalidInput("spec.a: 0 < 1"))

    assert lines == [
        'level=info ts=2026-01-02T12:04:05.000000006Z msg="Deleting pod" pod=zone-a-0'
        ' err="spec.a: 0 < 1"\n'
    ]


def test_json_is_a_choice(lines: list[str]) -> None:
    """DEP-06, FLAG-10."""
    rebind(lines, format="json")

    log.warn("Waiting long", zone="a")

    assert list(json.loads(lines[0]).items()) == [
        ("level", "warn"),
        ("ts", "2026-01-02T12:04:05.000000006Z"),
        ("msg", "Waiting long"),
        ("zone", "a"),
    ]


def test_the_time_goes_on() -> None:
    written: list[str] = []
    times = iter([NOON, NOON + 1, NOON + 999_999_994, NOON + 86_400_000_000_000])
    logs.configure(write=lambda line: written.append(line.decode()), now=lambda: next(times))
    for _ in range(4):
        log.info("Looking")
    logs.configure()

    assert [line.split()[1] for line in written] == [
        "ts=2026-01-02T12:04:05.000000006Z",
        "ts=2026-01-02T12:04:05.000000007Z",
        "ts=2026-01-02T12:04:06.000000000Z",
        "ts=2026-01-03T12:04:05.000000006Z",
    ]


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("debug", ["debug", "info", "warn", "error"]),
        ("info", ["info", "warn", "error"]),
        ("warn", ["warn", "error"]),
        ("error", ["error"]),
    ],
)
def test_lower_levels_are_suppressed(lines: list[str], level: str, written: list[str]) -> None:
    """FLAG-11."""
    rebind(lines, level=level)

    log_at_each_level()

    assert levels(lines) == written


def test_a_suppressed_record_is_not_even_rendered(lines: list[str]) -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError("rendered")

    rebind(lines, level="info")

    log.debug("Looking", value=Costly())

    assert lines == []


def test_debug_is_the_default(lines: list[str]) -> None:
    """DEP-06: the binary's default stays debug."""
    log_at_each_level()

    assert levels(lines) == ["debug", "info", "warn", "error"]


def test_a_level_can_be_chosen_by_value(lines: list[str]) -> None:
    for severity in Severity:
        log.at(severity)("Group waits")

    assert levels(lines) == ["debug", "info", "warn", "error"]


def test_the_logger_of_a_module_follows_a_new_configuration(lines: list[str]) -> None:
    """`log` is bound at import everywhere; only what it does changes."""
    kept = log
    rebind(lines, level="error")

    kept.info("Looking")

    assert lines == []


@pytest.mark.parametrize(
    ("format", "level", "message"),
    [("xml", "info", "unknown log format: xml"), ("json", "trace", "unknown log level: trace")],
)
def test_other_formats_and_levels_are_refused(format: str, level: str, message: str) -> None:
    """FLAG-10, FLAG-11."""
    with pytest.raises(InvalidInput) as caught:
        logs.configure(format=format, level=level)

    assert str(caught.value) == message


def test_records_of_libraries_read_like_ours(lines: list[str]) -> None:
    """LOG-05."""
    with bridge():
        logging.getLogger("aiohttp.server").error("Error in %s", "request")
        logging.getLogger("aiohttp").warning("odd\nthing")
        logging.getLogger("asyncio").info("fine")
        logging.getLogger("asyncio").critical("out of memory")

    parts = [line.split(" ", 2) for line in lines]
    assert [(level, text) for level, _, text in parts] == [
        ("level=error", 'msg="Error in request" logger=aiohttp.server\n'),
        ("level=warn", 'msg="odd\\nthing" logger=aiohttp\n'),
        ("level=info", "msg=fine logger=asyncio\n"),
        ("level=error", 'msg="out of memory" logger=asyncio\n'),
    ]


def test_errors_of_libraries_come_with_their_stack(lines: list[str]) -> None:
    with bridge():
        try:
            raise KeyError("x")
        except KeyError:
            logging.getLogger("aiohttp").exception("Error in request")

    assert len(lines) == 1
    assert ' err="KeyError: \'x\'" stack="Traceback (most recent call last):\\n' in lines[0]
    assert lines[0].count("\n") == 1


def test_debug_records_of_libraries_stay_out(lines: list[str]) -> None:
    """SEC-14: the client library writes whole response bodies at debug, Secrets included."""
    with bridge():
        logging.getLogger("kubernetes_asyncio.client.rest").debug("response body: %s", "s3cret")

    assert lines == []


def test_the_level_holds_for_libraries_too(lines: list[str]) -> None:
    rebind(lines, level="error")

    with bridge():
        logging.getLogger("aiohttp").warning("odd")
        logging.getLogger("aiohttp").error("broken")
        assert not logging.getLogger("aiohttp").isEnabledFor(logging.WARNING)

    assert levels(lines) == ["error"]


def test_a_library_that_logs_wrongly_does_no_harm(lines: list[str]) -> None:
    with bridge():
        logging.getLogger("x").error("%d of %d", "a")

    assert lines[0].endswith('msg="%d of %d" logger=x\n')


def test_warnings_of_python_are_records(lines: list[str]) -> None:
    with bridge(), warnings.catch_warnings():
        warnings.simplefilter("always")
        # pytest replaces what shows a warning for each test, so it is installed once more.
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("old thing", DeprecationWarning, stacklevel=1)

    assert len(lines) == 1
    assert "DeprecationWarning: old thing" in lines[0]
    assert lines[0].endswith("logger=py.warnings\n")


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


async def test_maz62_what_is_bound_is_said_by_all_that_begins_within(lines: list[str]) -> None:
    async def work() -> None:
        log.info("Working", zone="a", namespace="own")

    with logs.bind_keys(namespace="prod"), logs.bind_keys(operator="x"):
        task = asyncio.create_task(work())
        log.info("Starting")
    await task
    log.info("Outside")

    begun, working, outside = (line.partition("msg=")[2] for line in lines)
    assert begun == "Starting namespace=prod operator=x\n"
    assert working == "Working namespace=own operator=x zone=a\n", "its own word counts"
    assert outside == "Outside\n"
