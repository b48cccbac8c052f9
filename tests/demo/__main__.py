"""`python -m tests.demo`: read the options, run, clean up, and answer with an exit code.

0: rolled out, and the judge saw nothing wrong. 1: otherwise. 130: interrupted; 141: nobody reads.
"""

import argparse
import asyncio
import io
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from tests.demo.drawing import MOST_REPLICAS
from tests.demo.show import Settings, run
from tests.demo.terminal import choose_screen
from tests.world.assets import NoControlPlaneError, find_assets
from tests.world.plane import ControlPlane

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED: Final = 128 + signal.SIGINT
UNREAD: Final = 128 + signal.SIGPIPE


def main(words: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    options = _parser().parse_args(words)
    settings = Settings(replicas=options.replicas, limit=options.limit)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    screen = choose_screen(sys.stdout, os.environ, is_plain=options.plain)
    try:
        screen.tell("A rollout on a real control plane:\n")
        plane = ControlPlane(find_assets(screen.tell))
        return asyncio.run(_until_signal(run(plane, settings, screen)))
    except NoControlPlaneError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


async def _until_signal(show: Awaitable[bool]) -> int:
    """Return the exit code; a first signal cancels the show, the others wait for its clean-up."""
    # Ctrl-C ends our children as well, so that the clean-up may find them gone: what it raises
    # then is of no interest, and gather() keeps it to itself.
    outcome = asyncio.gather(show, return_exceptions=True)
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, _cancel_once(outcome))
    try:
        (result,) = await outcome
    except asyncio.CancelledError:
        sys.stderr.write("stopped, nothing is left running\n")
        return INTERRUPTED
    if not isinstance(result, BaseException):
        return 0 if result else 1
    if not _is_only(result, BrokenPipeError):
        raise result
    # What is still in the buffer would be written, and fail, at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return UNREAD


def _cancel_once(outcome: asyncio.Future[Any]) -> Callable[[], None]:
    is_first = True

    def cancel() -> None:
        nonlocal is_first
        if is_first:
            outcome.cancel()
        is_first = False

    return cancel


def _is_only(error: BaseException, kind: type[BaseException]) -> bool:
    """Say whether an error is of a kind, or a group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_only(each, kind) for each in error.exceptions)
    return isinstance(error, kind)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument(
        "--replicas",
        type=_count,
        default=3,
        metavar="N",
        help=f"pods in each of the three zones, up to {MOST_REPLICAS} (default 3)",
    )
    parser.add_argument(
        "--limit",
        type=_count,
        default=1,
        metavar="N",
        help="rollout-max-unavailable: how many pods of a zone may be down (default 1)",
    )
    parser.add_argument(
        "--plain", action="store_true", help="a line for each change, no cursor movement"
    )
    return parser


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= MOST_REPLICAS:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and {MOST_REPLICAS}")
    return number


if __name__ == "__main__":
    sys.exit(main())
