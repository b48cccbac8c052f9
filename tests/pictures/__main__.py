"""Draw the pictures of the documents anew, all or those that are named; `schema` is written too.

Each comes from a real run, so that none shows what the operator does not do.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Final

from rollout_operator.web.admin import render_schema
from tests.code_rules import ROOT
from tests.lab.simulate.schema import render_simulation_schema
from tests.pictures.demo import draw_demo
from tests.pictures.status_command import draw_status_command
from tests.pictures.status_page import draw_status_page

DOCS: Final = ROOT / "docs"


async def _write_schema() -> bytes:
    return render_schema()


async def _write_simulation_schema() -> bytes:
    return render_simulation_schema()


PICTURES: Final[Mapping[str, tuple[str, Callable[[], Coroutine[None, None, bytes]]]]] = {
    "demo": ("pictures/demo.svg", draw_demo),
    "status": ("pictures/status.svg", draw_status_command),
    "page": ("pictures/status-page.png", draw_status_page),
    "schema": ("status.schema.json", _write_schema),
    "simulation": ("simulate.schema.json", _write_simulation_schema),
}


def main() -> int:
    """Write what the command line names; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.pictures", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"any of: {', '.join(PICTURES)}")
    given = parser.parse_args()
    unknown = {*given.names} - PICTURES.keys()
    if unknown:
        parser.error(f"no picture is called {', '.join(sorted(unknown))}")
    for name in given.names or PICTURES:
        path, draw = PICTURES[name]
        content = asyncio.run(draw())
        (DOCS / path).parent.mkdir(exist_ok=True)
        (DOCS / path).write_bytes(content)
        sys.stdout.write(f"docs/{path}: {len(content) / 1024:.0f} KiB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
