"""Play the contract and print where the lab is not as it was recorded: `python -m tests.contract`.

Words choose sequences whose names contain one of them. `--real` plays them on a control plane too,
`--record` keeps what that answers, `--show` prints the answers.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Many
from typing import Final

from tests.contract.plays import Sequence, list_sequences
from tests.contract.recorded import (
    Recording,
    list_outdated,
    name_problem,
    read_recording,
    write_recording,
)
from tests.contract.recording import Recordings, record_all
from tests.contract.simulated import play_simulated
from tests.world.assets import locate_assets
from tests.world.plane import ControlPlane


def main() -> int:
    """Return 1 where a sequence differs."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.contract")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    chosen = [
        one
        for one in list_sequences()
        if not given.words or any(word in str(one) for word in given.words)
    ]
    if given.real or given.record:
        problems = prove_contract(chosen, is_recording=given.record)
    else:
        problems = [*list_problems(chosen)]
    known = read_recording().answers
    shown = [
        line for one in chosen for line in (f"#### {one}", *known.get(str(one), [])) if given.show
    ]
    print("\n".join((*shown, *problems)))  # noqa: T201
    print(f"{len(chosen)} sequences, {len(problems)} problems")  # noqa: T201
    return 1 if problems else 0


def list_problems(sequences: Many[Sequence]) -> Iterator[str]:
    """Yield where the lab is not as it was recorded, and where the recording is out of date."""
    recording = read_recording()
    yield from list_outdated(recording, _NAMES)
    for one in sequences:
        if problem := name_problem(str(one), _lines(play_simulated(one)), recording, "lab"):
            yield problem


def prove_contract(sequences: Many[Sequence], *, is_recording: bool) -> list[str]:
    """Play on the real control plane; return where that or the lab is not as recorded."""
    lab = {str(one): _lines(play_simulated(one)) for one in sequences}
    kubernetes, real = asyncio.run(_play(sequences, lab))
    whole = {name: found for name, found in real.items() if not isinstance(found, Exception)}
    if is_recording:
        write_recording(Recording(kubernetes=kubernetes, answers=whole), _NAMES)
    recording = read_recording(kubernetes)
    answers = ("real", {name: _lines(found) for name, found in real.items()}), ("lab", lab)
    problems = [
        name_problem(name, lines, recording, side)
        for side, by_name in answers
        for name, lines in by_name.items()
    ]
    return [*list_outdated(recording, _NAMES), *filter(None, dict.fromkeys(problems))]


async def _play(sequences: Many[Sequence], lab: Mapping[str, list[str]]) -> tuple[str, Recordings]:
    """Return version and answers of the real control plane.

    A busy machine may spoil an answer, so what the lab answers otherwise is played once more.
    """
    async with ControlPlane(locate_assets()).running() as plane:
        async with plane.api() as api:
            kubernetes = (await api.call("GET", "/version"))["gitVersion"]
        found = await record_all(plane, sequences)
        doubtful = [one for one in sequences if found[str(one)] != lab[str(one)]]
        again = await record_all(plane, doubtful) if doubtful else {}
    return kubernetes, {**found, **again}


def _lines(outcome: list[str] | Exception) -> list[str]:
    return [f"broke off: {outcome!r}"] if isinstance(outcome, Exception) else outcome


_NAMES: Final = frozenset(map(str, list_sequences()))

if __name__ == "__main__":
    sys.exit(main())
