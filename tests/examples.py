"""How many examples a property is tried with: half of what it says, ten times as many in a proof.

`conftest.py` has the profiles; `make test-fast` chooses a fifth, `make prove` the thousand.
"""

from typing import Final

from hypothesis import HealthCheck, settings

# Of Hypothesis, where a test says nothing.
USUAL: Final = 100


def repeatable(examples: int = USUAL) -> settings:
    """Return the settings of a property: the same examples in every run."""
    return settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=examples * settings().max_examples // USUAL,
        # Groups of whole zones take long to draw on a busy machine.
        suppress_health_check=[HealthCheck.too_slow],
    )
