"""Run `simulate` on a dump, and read from its answer for machines which pods go, and why."""

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.prediction.comparison import Cause, Going
from tests.world.api import Json
from tests.world.forkserver import run_program

LIMIT_S = 120


class ForecastFailedError(RuntimeError):
    """The command ended otherwise than with an answer; the text says how."""


async def foresee(dump: Path, changes: Sequence[str], flags: Sequence[str]) -> list[Going]:
    """Return the pods that would go, in order. Raises ForecastFailedError."""
    words = [word for change in changes for word in ("-change", change)]
    command = ("simulate", "-f", str(dump), "-o", "json", *flags, *words)
    ended = await asyncio.to_thread(run_program, *command, env=os.environ, limit_s=LIMIT_S)
    if ended.returncode != 0:
        raise ForecastFailedError(f"{dump}: {ended.stderr}")
    return list(read_goings(json.loads(ended.stdout)))


def read_goings(answer: Json) -> Iterator[Going]:
    """Yield the pods that go, for the cause that was reported.

    One whose eviction is allowed goes only then: it may be going already.
    """
    announced: dict[str, Cause] = {}
    for step in answer["steps"]:
        at, text, what = step["at"], step["text"], step["what"]
        if text.startswith("deletes "):
            pod = text.split()[1].rstrip(":")
            announced[pod] = Cause.DELETED
            yield Going(pod, Cause.DELETED, at)
        elif text == "eviction allowed by the webhook":
            announced.setdefault(what, Cause.EVICTED)
        elif text == "going down":
            cause = announced.pop(what, Cause.SCALED)
            if cause is not Cause.DELETED:
                yield Going(what, cause, at)
        elif text.startswith("created"):
            announced.pop(what, None)
