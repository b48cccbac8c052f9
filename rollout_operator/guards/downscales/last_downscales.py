"""When sets were scaled down last, as this process has seen it, until their records show it.

A record is the truth, and this memory only a bridge to it (D-66). Cached objects are distinguished
by version: a version from before the record was written proves nothing, and what was seen counts; a
version that is not older shows the record, or what a person has made of it since, and that alone
counts.
"""

from collections.abc import Mapping
from datetime import datetime

from rollout_operator.kube.cache.store import is_older
from rollout_operator.model.names import Uid


class LastDownscales:
    """Times by UID of the set, with the version from which on a record shows each."""

    def __init__(self) -> None:
        self._times: dict[Uid, datetime] = {}
        self._shown_from: dict[Uid, str] = {}

    @property
    def times(self) -> Mapping[Uid, datetime]:
        """Return all times that were seen, recorded or not."""
        return self._times

    def record(self, set_uid: Uid, at: datetime) -> None:
        """Remember that a set was scaled down; no record shows it yet. No time moves back."""
        self._times[set_uid] = max(at, self._times.get(set_uid, at))
        self._shown_from.pop(set_uid, None)

    def record_shown(self, set_uid: Uid, at: datetime, version: str) -> None:
        """Remember which version shows a time, or a later time, unless a later time was seen."""
        if self._times.get(set_uid) == at:
            self._shown_from[set_uid] = version

    def map_unshown(self, versions: Mapping[Uid, str]) -> dict[Uid, datetime]:
        """Return the times that objects of these versions, by set, do not show."""
        return {
            uid: self._times[uid]
            for uid, version in versions.items()
            if uid in self._times and not self._is_shown(uid, version)
        }

    def forget(self, set_uid: Uid) -> None:
        """Forget a set that is gone."""
        self._times.pop(set_uid, None)
        self._shown_from.pop(set_uid, None)

    def _is_shown(self, set_uid: Uid, version: str) -> bool:
        since = self._shown_from.get(set_uid)
        return since is not None and not is_older(version, than=since)
