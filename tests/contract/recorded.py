"""What the real control plane answered to the sequences, as it was recorded, by its version.

So the lab is compared with it in each run of the tests, without a control plane. `make prove
ARGS=contract` plays all of them again and compares with the recording too, `ARGS='contract
--record'` writes it, and `python -m tests.contract --record WORD` that of some sequences.
"""

import lzma
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.contract.transcript import name_difference
from tests.world.assets import VERSION

FOLDER: Final = Path(__file__).parent / "recorded"
HOW: Final = "make prove ARGS='contract --record'"


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """Transcripts of the real control plane by the names of their sequences."""

    kubernetes: str
    """The version, as the API server gives it."""
    answers: Mapping[str, Sequence[str]]


def read_recording(kubernetes: str = VERSION) -> Recording:
    """Return what was recorded of a minor version, perhaps nothing."""
    try:
        content = lzma.decompress(_name_file(kubernetes).read_bytes())
    except FileNotFoundError:
        return Recording(kubernetes=kubernetes, answers={})
    return msgspec.json.decode(content, type=Recording)


def write_recording(recording: Recording, names: Collection[str]) -> None:
    """Add answers to those that were recorded of the same version; only these names stay.

    An equal recording is not written: another library might compress it to other bytes.
    """
    known = read_recording(recording.kubernetes)
    earlier = known.answers if known.kubernetes == recording.kubernetes else {}
    answers = {**earlier, **recording.answers}
    whole = Recording(
        kubernetes=recording.kubernetes,
        answers={name: answers[name] for name in sorted(answers) if name in names},
    )
    if whole != known:
        FOLDER.mkdir(exist_ok=True)
        content = msgspec.json.format(msgspec.json.encode(whole), indent=0)
        _name_file(whole.kubernetes).write_bytes(lzma.compress(content, preset=9))


def name_problem(name: str, answer: Sequence[str], recording: Recording, of: str) -> str:
    """Return how an answer, of the lab for example, is not what was recorded; empty if it is."""
    if name not in recording.answers:
        return f"{name}: no answer of Kubernetes {recording.kubernetes} is recorded: {HOW}"
    difference = name_difference(recording.answers[name], answer, "recorded", of)
    if not difference:
        return ""
    return (
        f"{name}: not what Kubernetes {recording.kubernetes} answered; if the sequence has"
        f" changed: {HOW}\n{difference}"
    )


def list_outdated(recording: Recording, names: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with a recording as a whole."""
    if recording.kubernetes != VERSION:
        yield f"Kubernetes {recording.kubernetes} is recorded, and {VERSION} used: {HOW}"
    for name in sorted({*recording.answers} - {*names}):
        yield f"{name}: recorded, but there is no such sequence: {HOW}"


def _name_file(kubernetes: str) -> Path:
    major, minor, *_ = kubernetes.removeprefix("v").split(".")
    return FOLDER / f"{major}.{minor}.json.xz"
