"""Play the contract and print where the two worlds differ: `python -m tests.contract [words]`.

Words choose sequences whose names contain one of them. `--keep FILE` saves what the real control
plane answered, `--against FILE` compares with that instead of starting one, `--show` prints it.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from tests.contract.plays import Sequence, list_sequences
from tests.contract.recording import record_all
from tests.contract.simulated import play_simulated
from tests.contract.transcript import name_difference
from tests.world.assets import locate_assets
from tests.world.plane import ControlPlane


async def record(sequences: list[Sequence]) -> dict[str, list[str]]:
    """Return what the real control plane answers, or the errors of sequences as a line."""
    plane = ControlPlane(locate_assets(lambda line: print(line, file=sys.stderr)))  # noqa: T201
    try:
        await plane.start()
        found = await record_all(plane, sequences)
    finally:
        await plane.stop()
    return {name: _lines(outcome) for name, outcome in found.items()}


def main() -> int:
    """Return 1 where a sequence differs."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.contract")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--show", action="store_true")
    requested = parser.parse_args()
    chosen = [
        one
        for one in list_sequences()
        if not requested.words or any(word in str(one) for word in requested.words)
    ]
    kept = requested.against
    real = json.loads(kept.read_text()) if kept else asyncio.run(record(chosen))
    if requested.keep:
        known = json.loads(requested.keep.read_text()) if requested.keep.exists() else {}
        requested.keep.write_text(json.dumps(known | real))
    texts = {str(one): _report(one, real[str(one)], requested.show) for one in chosen}
    print("\n".join(text for text in texts.values() if text))  # noqa: T201
    different = [name for name, text in texts.items() if text and not requested.show]
    print(f"{len(chosen)} sequences, {len(different)} differ")  # noqa: T201
    return 1 if different else 0


def _report(one: Sequence, real: list[str], is_shown: bool) -> str:
    return "\n".join((f"#### {one}", *real)) if is_shown else name_differences(one, real)


def name_differences(one: Sequence, real: list[str]) -> str:
    """Return where the simulation differs from a transcript, or nothing."""
    difference = name_difference(real, _lines(play_simulated(one)))
    return f"#### {one}\n{difference}\n" if difference else ""


def _lines(outcome: list[str] | Exception) -> list[str]:
    return [f"broke off: {outcome!r}"] if isinstance(outcome, Exception) else outcome


if __name__ == "__main__":
    sys.exit(main())
