"""Errors in how a process keeps to its own rate limits, and in what it does while it waits."""

from typing import Final

from tests.mutants.entry import CROWDED, Mutant

LIMITS: Final = (
    Mutant(
        name="reads-without-tokens",
        old="        for resource in (STATEFULSETS, *(PODS for _ in range(pages))):\n",
        new="        for resource in ():\n",
        breaks="LI-11: live reads pass by the limits of the process (D-65)",
        scenarios=CROWDED,
    ),
    Mutant(
        name="limits-for-each-client",
        old="            limits=self._limits,\n",
        new="            limits=RateLimiter(self._config.client_qps, self._config.client_burst),\n",
        breaks="LI-11: sixteen clients send sixteen times what the flag says (D-65)",
        scenarios=CROWDED,
    ),
)
