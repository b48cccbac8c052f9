"""`python -m tests.demo`: read the options, run, clean up, and answer with an exit code.

0: rolled out, and the judge saw nothing wrong. 1: otherwise. 130: interrupted; 141: nobody reads.
"""

import argparse
import asyncio
import io
import os
import sys
from collections.abc import Sequence

from rollout_operator.lab.demo.drawing import MOST_PODS
from rollout_operator.lab.demo.screen import choose_screen
from rollout_operator.lab.end import INTERRUPTED, end_by_signal
from tests.demo.show import Settings, run
from tests.world.assets import NoControlPlaneError, find_assets
from tests.world.plane import ControlPlane


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
        return asyncio.run(end_by_signal(run(plane, settings, screen)))
    except NoControlPlaneError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument(
        "--replicas",
        type=_count,
        default=3,
        metavar="N",
        help=f"pods in each of the three zones, up to {MOST_PODS} (default 3)",
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
    if not 1 <= number <= MOST_PODS:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and {MOST_PODS}")
    return number


if __name__ == "__main__":
    sys.exit(main())
