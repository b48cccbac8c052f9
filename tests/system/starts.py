"""Ways to start the operator that a `World` has no method for."""

import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec

from tests.world.forkserver import run_program

# An interpreter on a machine whose cores are all taken needs some seconds to start.
END_LIMIT: Final = timedelta(seconds=180)

# Tests may run in a pod themselves; what they start must not take that cluster for its own.
OUTSIDE: Final = {"KUBERNETES_SERVICE_HOST": "", "KUBERNETES_SERVICE_PORT": ""}

# The real composition root, with a shorter wait for caches that do not fill.
_WITH_LIMITS: Final = """
import sys
from datetime import timedelta
from rollout_operator.operator.main import LifeLimits, run
from rollout_operator.config.checks import read_config
from rollout_operator.model.names import OperatorError

try:
    limits = LifeLimits(sync=timedelta(seconds=float(sys.argv[1])))
    sys.exit(run(read_config(sys.argv[2:]), limits))
except OperatorError as error:
    sys.exit(f"could not start: {error}")
"""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended that was run to its end."""

    code: int
    out: str
    err: str

    @property
    def complaints(self) -> list[str]:
        """Return the lines that the program says in its own name; logs are not among them."""
        return [line for line in self.err.splitlines() if line.startswith("rollout-operator: ")]


def run_words(*words: str, env: Mapping[str, str] | None = None) -> Ended:
    """Run the program with these words until it ends by itself. Raises TimeoutExpired."""
    environ = {**os.environ, **OUTSIDE, **(env or {})}
    done = run_program(*words, env=environ, limit_s=END_LIMIT.total_seconds())
    return Ended(code=done.returncode, out=done.stdout, err=done.stderr)


def run_command(*command: str, env: Mapping[str, str] | None = None) -> Ended:
    """Run a command until it ends by itself. Raises TimeoutExpired."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **OUTSIDE, **(env or {})},
        timeout=END_LIMIT.total_seconds(),
        check=False,
    )
    return Ended(code=done.returncode, out=done.stdout, err=done.stderr)


def waiting_at_most(sync: timedelta) -> tuple[str, ...]:
    """Return the command of an operator that waits only so long for its caches."""
    return (sys.executable, "-c", _WITH_LIMITS, f"{sync.total_seconds()}")
