"""Errors in how a process keeps to its own rate limits, and in what it does while it waits."""

from typing import Final

from tests.mutants.entry import CROWDED, Mutant

LIMITS: Final = (
    Mutant(
        name="looks-without-tokens",
        old="            for resource in (STATEFULSETS, *(PODS for _ in range(pages))):\n",
        new="            for resource in ():\n",
        breaks="LI-11: live reads pass by the limits of the process (D-65)",
        scenarios=CROWDED,
        units="tests/controllers/test_live_reads.py",
    ),
    Mutant(
        name="looks-without-end",
        old="    return min(max(int(qps * DELETES_WITHIN.total_seconds()), 1), MOST_LOOKS)\n",
        new="    return MOST_LOOKS\n",
        breaks="LI-01: more groups wait for tokens than a look lasts for",
        scenarios=CROWDED,
        unseen="a look that is cut short backs off, and others get their turn",
        units="tests/controllers/test_live_reads.py",
    ),
    Mutant(
        name="read-under-way-serves-later-groups",
        old="        self._line = [one for one in self._line if one not in together]\n",
        new="        together = self._line\n",
        breaks="SI-09: a group is decided on by a read that was sent before it asked",
        scenarios=CROWDED,
        unseen="it takes a change between the sending of a read and the lock of another group",
        units="tests/controllers/test_live_reads.py",
    ),
    Mutant(
        name="expired-look-is-a-success",
        old="if report.is_cut_short and not report.deleted:",
        new="if not report:",
        breaks="LI-11: looks that are always too old come back after 50 ms for ever",
        scenarios=("s1",),
        unseen="no fault makes lists so slow for long",
        units="tests/controllers/rollout/test_controller.py",
    ),
    Mutant(
        name="deletes-wait-behind-lists",
        old="    Priority.DELETE: 0,\n",
        new="    Priority.DELETE: 50,\n",
        breaks="LI-01: what a look has shown is too old when its delete gets a token (D-65)",
        scenarios=CROWDED,
        unseen="few groups are read at a time: deletes get tokens in time from behind as well",
        units="tests/kube/client/test_rate_limit.py",
    ),
    Mutant(
        name="limits-for-each-client",
        old="            limits=self._limits,\n",
        new="            limits=RateLimiter(self._config.client_qps, self._config.client_burst),\n",
        breaks="LI-11: sixteen clients send sixteen times what the flag says (D-65)",
        scenarios=CROWDED,
        units="tests/operator/test_limits.py",
    ),
)
