"""What Flux has yet to do for the current release of a Rollout, in one sentence."""

from collections.abc import Iterable

from rollout_operator.model.releases.compat import ReleaseCompat
from rollout_operator.model.releases.plan import FluxTarget
from rollout_operator.model.releases.rollout import ReleaseRollout


def describe_flux_wait(
    rollout: ReleaseRollout,
    tag: str | None,
    targets: Iterable[FluxTarget],
    compat: ReleaseCompat,
) -> str:
    """Return what is waited for until all targets run a tag (RELB-16); empty for nothing.

    Without a bake its writes are enough.
    """
    waits = compat.waits_for_flux and rollout.waits_for_flux and rollout.spec.has_bake
    for target in targets:
        if target.tag != tag:
            return f"{target.kind} {target.name} does not have the tag yet"
        if waits and target.waiting_for:
            return f"{target.kind} {target.name}: {target.waiting_for}"
    return ""
