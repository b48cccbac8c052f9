"""Labels of the few nodes that pods of a policy run on, read one by one where they are asked for.

A cluster has thousands of nodes, and most policies ask for none: nothing is followed. The zone of a
node stays for as long as the node does, so what was read is kept for a while.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.api import NODES, Reader
from rollout_operator.model.decode.node import decode_node_labels
from rollout_operator.model.errors import Denied
from rollout_operator.model.names import TOPOLOGY_KEYS
from rollout_operator.telemetry.logs import log

# Another node may have the same name by then.
READ_AGAIN: Final = timedelta(minutes=10)
# A role is changed by a person.
ASK_AGAIN: Final = timedelta(minutes=1)


class NodeReads:
    """Reads nodes by name, and remembers their topology."""

    def __init__(self, reader: Reader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._labels: dict[str, tuple[timedelta, str, Mapping[str, str]]] = {}
        self._denied_at: timedelta | None = None
        self._has_warned = False

    async def fetch_labels(
        self, names: Iterable[str], key: str
    ) -> Mapping[str, Mapping[str, str]] | None:
        """Return the topology labels of nodes that are there; None where nodes may not be read.

        Raises what `Reader.fetch_page` raises, other than Denied, and DecodeError.
        """
        now = self._clock.elapsed()
        if self._denied_at is not None and now - self._denied_at < ASK_AGAIN:
            return None
        self._forget_old(now)
        try:
            return {name: await self._fetch(name, key) for name in sorted({*names})}
        except Denied as error:
            self._denied_at = now
            if not self._has_warned:
                log.info("Nodes are not read: zones are told by other means", err=error)
            self._has_warned = True
            return None

    async def _fetch(self, name: str, key: str) -> Mapping[str, str]:
        known = self._labels.get(name)
        if known is not None and known[1] == key:
            return known[2]
        # Not the node by itself: that asks for the verb `get`.
        page = await self._reader.fetch_page(
            NODES, "", field_selector=f"metadata.name={name}", limit=1
        )
        labels = decode_node_labels(page.items[0]) if page.items else {}
        kept = {one: labels[one] for one in (key, *TOPOLOGY_KEYS) if one in labels}
        self._labels[name] = (self._clock.elapsed(), key, kept)
        return kept

    def _forget_old(self, now: timedelta) -> None:
        for name, (read_at, _, _) in list(self._labels.items()):
            if now - read_at >= READ_AGAIN:
                del self._labels[name]
