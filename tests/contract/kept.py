"""What the real control plane answered to sequences, kept in the user's cache folder.

Answers come from the programs of the control plane, the sequences, the clients and the kinds: when
one of these changes, all sequences are played again. `make prove ARGS=contract` plays them always.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tests.contract.plays import Sequence
from tests.contract.simulated import play_simulated
from tests.contract.transcript import name_difference
from tests.world.assets import locate_assets
from tests.world.gobuild import cache_folder

ROOT: Final = Path(__file__).parent.parent.parent
SOURCES: Final = (
    "tests/contract",
    "tests/world",
    "rollout_operator/kube",
    "lab/rollout_lab",
    "rollout_operator/model",
    "manifests",
)

# The simulation's answer without a seed or a pace of its own: two tests compare with it.
play_plainly = cache(play_simulated)


def name_file(root: Path, assets: Path) -> Path:
    """Return where answers are kept that come from these sources and programs."""
    program = (assets / "kube-apiserver").stat()
    digest = hashlib.sha256(f"{program.st_size} {program.st_mtime_ns}".encode())
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*.*")):
            if path.suffix in (".py", ".yaml", ".json"):
                digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return cache_folder() / f"contract-{digest.hexdigest()[:16]}.json"


def locate_answers() -> Path:
    """Return where answers to today's sequences are kept, which need not be there yet."""
    return name_file(ROOT, locate_assets())


def read_answers(file: Path) -> dict[str, list[str]]:
    """Return the transcripts that were kept, by the names of their sequences."""
    try:
        known: dict[str, list[str]] = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):  # none yet, or a disk that was full
        return {}
    return known


def keep_answers(
    file: Path, played: Mapping[Sequence, list[str] | Exception], known: Mapping[str, list[str]]
) -> None:
    """Add transcripts to those that are kept, and remove what older sources left.

    Only those on which both worlds agree: an answer that a busy machine spoilt is not repeated.
    """
    agreed = {
        str(one): real
        for one, real in played.items()
        if not isinstance(real, Exception) and _agrees(one, real)
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    for older in file.parent.glob("contract-*.json"):
        older.unlink(missing_ok=True)
    scratch = file.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps({**known, **agreed}))
    scratch.rename(file)


def _agrees(one: Sequence, real: list[str]) -> bool:
    simulated = play_plainly(one)
    return not isinstance(simulated, Exception) and not name_difference(real, simulated)
