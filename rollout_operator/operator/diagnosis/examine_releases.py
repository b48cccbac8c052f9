"""The reads of `doctor` about releases: few where there is none, and no operator makes them."""

from typing import Final

from msgspec.structs import replace

from rollout_operator.kube import release_kinds as kinds
from rollout_operator.kube.api import DEPLOYMENTS
from rollout_operator.model.decode.installation import decode_kuberik
from rollout_operator.model.diagnosis.installation import Installation, Source
from rollout_operator.model.releases.objects import gather_releases
from rollout_operator.operator.diagnosis.listing import Lister, Reading
from rollout_operator.operator.diagnosis.releases import ReleaseReader
from rollout_operator.planning.diagnosis.releases import OF_FLUX, makes

_DEPLOYMENTS: Final = replace(DEPLOYMENTS, is_namespaced=False)
_OTHERS: Final = (
    *((kinds.ROLLOUT_GATES,), (kinds.HEALTH_CHECKS,)),
    *((kinds.ROLLOUT_SCHEDULES,), (kinds.CLUSTER_ROLLOUT_SCHEDULES,)),
    *(kinds.IMAGE_POLICIES, kinds.IMAGE_REPOSITORIES),
    *(kinds.OCI_REPOSITORIES, kinds.KUSTOMIZATIONS),
)


async def add_releases(reading: Reading, installation: Installation) -> Installation:
    """Return an installation with its releases; unchanged where there are none."""
    reader = ReleaseReader(Lister(reading.client, None), reading.namespace)
    objects = await reader.list_all((kinds.ROLLOUTS,))
    if not objects and not makes(installation):
        return installation  # most users need no right to read them
    objects += await reader.list_all(*_OTHERS)
    for resource, error in reader.failures:
        # Where these may not be listed, there are none for the operator.
        if resource is not kinds.CLUSTER_ROLLOUT_SCHEDULES:
            source = Source.FLUX if resource.kind in OF_FLUX else Source.RELEASES
            reading.record(source, error)
    return replace(
        installation,
        releases=gather_releases(objects, reader.absent),
        kuberik=await _list_kuberik(reading),
    )


async def _list_kuberik(reading: Reading) -> tuple[str, ...]:
    """Return Deployments of the cluster; where they may not be listed none, without a remark."""
    own = Reading(reading.client, reading.namespace)
    return tuple(filter(None, await own.list_all(Source.RELEASES, _DEPLOYMENTS, decode_kuberik)))
