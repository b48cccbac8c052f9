"""Read the scales of references once, for a command that ends after that."""

from collections.abc import Iterable, Mapping

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import gather_all
from rollout_operator.kube.api import ApiClient
from rollout_operator.kube.client.discovery import KindCatalog
from rollout_operator.kube.scales.decode import SCALE, check_kind, decode_scale, explain
from rollout_operator.model.errors import ApiError, InvalidInput
from rollout_operator.model.scaling import Reading, Reference


class ScaleReader:
    """Reads scales by one client; what kinds there are is remembered."""

    def __init__(self, client: ApiClient, namespace: str, clock: Clock) -> None:
        self._client = client
        self._namespace = namespace
        self._catalog = KindCatalog(client, clock)

    async def read(self, references: Iterable[Reference]) -> Mapping[Reference, Reading]:
        """Return what each reference shows, or why it shows nothing."""
        wanted = sorted(set(references))
        readings = await gather_all(self._read(reference) for reference in wanted)
        return dict(zip(wanted, readings, strict=True))

    async def _read(self, reference: Reference) -> Reading:
        try:
            served = await self._catalog.find(reference.group, reference.kind)
            resource = check_kind(reference, served)
            raw = await self._client.fetch(resource, self._namespace, reference.name, SCALE)
            return decode_scale(raw).scale
        except (ApiError, InvalidInput) as error:
            return explain(reference, error, self._namespace)
