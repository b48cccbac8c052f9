"""How many examples a property is tried with: as many as it says, a fifth of them in a fast run.

`conftest.py` has the profiles; `make test-fast` chooses the smaller.
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
