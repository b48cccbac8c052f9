"""Whom the operator may call: pods of its sets, and by which path (SI-21).

The port is part of no record: a pod that listens elsewhere never hears of the call.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from rollout_operator.lab.model.history import PodCalled
from rollout_operator.model.names import PREPARE_PATH
from tests.simulation.views import Book, annotations
from tests.simulation.wishes import read_delay_path
from tests.world.history import Pod, Set

# For so long after a change of the annotation the former path may still be called.
STALE: Final = timedelta(seconds=120)

_Paths = tuple[timedelta, tuple[str, ...]]


@dataclass(slots=True)
class Targets:
    """All pods and sets that there have been."""

    owners: dict[str, str] = field(default_factory=dict)
    """UID of the set, by UID of the pod."""
    names: dict[str, str] = field(default_factory=dict)
    """Of pods, by UID."""
    paths: dict[str, list[_Paths]] = field(default_factory=dict)
    """By UID of the set: those of preparations and of delayed downscales, and since when."""

    def find_fault(self, call: PodCalled) -> str:
        """Return what is wrong with a call, empty where nothing is."""
        if call.method not in ("POST", "DELETE"):
            return "no such call is ever made"
        if self.names.get(call.uid) != call.pod:
            return f"no pod of the namespace has the uid {call.uid}"
        paths = self.paths.get(self.owners.get(call.uid, ""))
        if paths is None:
            return "no statefulset owns it"
        known = self._list_paths(paths, call.begun)
        if call.method == "DELETE":
            # Where a pod was told to go it is told that it stays, however late (D-24).
            known = [path for since, each in paths if since <= call.begun for path in each]
        path = call.path.strip("/")
        return "" if path in known else f"its set asks for {' or '.join(known) or 'none'}"

    def _list_paths(self, paths: list[_Paths], at: timedelta) -> list[str]:
        begun = [place for place, (since, _) in enumerate(paths) if since <= at - STALE]
        recent = paths[begun[-1] if begun else 0 :]
        return [path for since, known in recent if since <= at for path in known]


def read_targets(book: Book) -> Targets:
    """Return whom the operator may call."""
    targets = Targets()
    for write in book.writes:
        match write.now:
            case Pod() as pod:
                targets.owners[pod.uid] = pod.owner
                targets.names[pod.uid] = pod.name
            case Set() as zone:
                after = write.commit.after
                path = str(annotations(after).get(PREPARE_PATH, "")).strip("/")
                paths = tuple(one for one in (path, read_delay_path(after)) if one)
                targets.paths.setdefault(zone.uid, []).append((write.at, paths))
    return targets
