"""How far one zone is, in pods.

What is up and down is settled in `readiness`; here it is only counted, from what a plan has read
anyway.
"""

from itertools import chain

from rollout_operator.model.outcome import ZoneProgress
from rollout_operator.planning.rollout.readiness import DownCause, Readiness


def count_pods(readiness: Readiness) -> ZoneProgress:
    """Return the numbers of a zone; pods that cannot be read are neither updated nor outdated."""
    sts = readiness.sts
    # Settling pods are among the standing pods as well.
    down = (down_pod.pod for down_pod in readiness.down if down_pod.why is not DownCause.SETTLING)
    revisions = [pod.revision for pod in chain(readiness.standing, down, readiness.newcomers)]
    # Without an update revision nothing is known to be outdated.
    updated = revisions.count(sts.update_revision) if sts.update_revision else 0
    return ZoneProgress(
        zone=sts.name,
        desired=sts.replicas,
        ready=readiness.used - readiness.unavailable,
        updated=updated,
        outdated=len(revisions) - updated if sts.update_revision else 0,
    )
