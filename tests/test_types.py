"""D-61: `mypy --strict` of all that is Python here, as a test: it runs beside the others."""

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]


def test_types_hold_everywhere() -> None:
    words = (sys.executable, "-m", "mypy", "--strict", "--no-color-output")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
