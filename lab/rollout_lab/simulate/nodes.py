"""Nodes of a simulated copy: where pods go that are created there.

A new pod gets the node that the pod of its name had, another node where that is cordoned, and none
where there is no room.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_lab.drains import EVICTION
from rollout_lab.model.fields import name_of
from rollout_lab.model.history import Called, Record, Reviewed
from rollout_lab.nodes.kubelet import SCHEDULER
from rollout_operator.kube.api import JsonObject

_PLACE: Final = re.compile(r"; (?:\d+ evictions? ahead|the next eviction in line)$")
# Where pods go whose node is not known, or is cordoned: nothing is known of other nodes.
ELSEWHERE: Final = "another-node"


class Places(msgspec.Struct, kw_only=True):
    """Which node each new pod gets."""

    homes: Mapping[str, str]
    """The node of each pod of the input."""
    say: Callable[[str, str], None]
    """Has the readers of the story know what has happened, and to whom."""
    retry: Callable[[], None]
    """Has the scheduler try again for pods that wait."""
    _cordoned: set[str] = set()
    _missing: int = 0
    _waiting: set[str] = set()

    def cordon(self, nodes: Collection[str]) -> None:
        """Place no pod on these nodes any more."""
        self._cordoned.update(nodes)

    def limit(self, pods: int) -> None:
        """Place so many pods nowhere; those that wait already count."""
        self._missing = pods
        self._waiting.clear()
        self.retry()

    def choose(self, pod: JsonObject) -> str | None:
        """Return the node that a pod gets, None where it waits."""
        name = name_of(pod)
        if name in self._waiting:
            return None
        if len(self._waiting) < self._missing:
            self._waiting.add(name)
            self.say(SCHEDULER, f"no room for {name}: it waits for a node")
            return None
        home = self.homes.get(name, ELSEWHERE)
        return ELSEWHERE if home in self._cordoned else home


def drop_repeats(records: Sequence[Record]) -> Iterator[Record]:
    """Yield the records without evictions that are refused once more for the same reason.

    Of a pod that is down, its state in parentheses changes, and with it the place in the line.
    """
    last: dict[str, tuple[int, str]] = {}
    repeated: set[int] = set()
    for record in records:
        if isinstance(record, Called) and record.request.subresource == EVICTION:
            reason = (record.status, record.message.partition(" (")[0])
            if record.status >= 400 and last.get(record.request.name) == reason:
                repeated.add(record.number)
            last[record.request.name] = reason
    for record in records:
        match record:
            case Called(number=call) | Reviewed(call=call) if call in repeated:
                pass
            case Reviewed():
                # How many are ahead differs for pods that are refused together.
                yield replace(record, message=_PLACE.sub("", record.message))
            case _:
                yield record
