"""What a start costs before the first line of the log (D-51)."""

import json
import subprocess
import sys
from typing import Final

_PROBE: Final = """
import gc, json
from rollout_operator.cli.main import import_operator
before = sum(one["collections"] for one in gc.get_stats())
run = import_operator()
after = sum(one["collections"] for one in gc.get_stats())
print(json.dumps([after - before, gc.isenabled(), gc.get_freeze_count(), run.__module__]))
"""


def test_d51_nothing_is_looked_through_for_garbage_while_the_operator_is_imported() -> None:
    """Nor later what was imported; what comes to be after that is looked through as ever."""
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, check=True)
    looks, is_enabled, frozen, module = json.loads(done.stdout)
    assert looks == 0
    assert is_enabled
    assert frozen > 50_000
    assert module == "rollout_operator.operator.main"
