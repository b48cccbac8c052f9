"""How far each rollout group is: pods of each zone by state, and since when nothing has changed.

One gauge a number, because the numbers overlap and make no sum. Times are moments, from which a
query makes seconds. Series are written where a number has changed, and go with their zone or group;
what the numbers mean is decided in `planning.rollout.readiness`.
"""

from collections.abc import Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry

from rollout_operator.model.outcome import ZoneProgress
from rollout_operator.telemetry.families import Gauge


class ProgressMetrics:
    """The gauges of all groups and zones. Must be used from one event loop."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._since = Gauge(
            "rollout_operator_group_state_since_timestamp_seconds",
            "Unix time since when the leading reason of a rollout group is the same.",
            ("rollout_group",),
            registry=registry,
        )
        self._desired = _make_gauge(registry, "desired", "Pods that a zone is to have.")
        self._ready = _make_gauge(
            registry, "ready", "Desired pods of a zone that are up, by the lower of two counts."
        )
        self._updated = _make_gauge(
            registry, "updated", "Desired pods of a zone at the update revision, ready or not."
        )
        self._outdated = _make_gauge(
            registry, "outdated", "Desired pods of a zone that exist at another revision."
        )
        self._changed = _make_gauge(
            registry,
            "last_change_timestamp_seconds",
            "Unix time at which the pods of a zone in any state last changed in number, as far as "
            "this process has seen.",
        )
        self._moments: dict[str, datetime] = {}
        self._zones: dict[str, dict[str, ZoneProgress]] = {}

    def show_state(self, group: str, since: datetime) -> None:
        """Show since when the leading reason of a group is the same."""
        if self._moments.get(group) != since:
            self._moments[group] = since
            self._since.labels(group).set(since.timestamp())

    def show_zones(self, group: str, zones: Sequence[ZoneProgress], now: datetime) -> None:
        """Show `zones` as all zones of a group."""
        before = self._zones.get(group, {})
        current = {zone.zone: zone for zone in zones}
        for name in before.keys() - current.keys():
            self._remove(group, name)
        for name, state in current.items():
            if before.get(name) != state:
                self._set(group, state, now)
        self._zones[group] = current

    def forget(self, group: str) -> None:
        """Remove all series of a group; an unknown name is fine."""
        if self._moments.pop(group, None) is not None:
            self._since.remove(group)
        for name in self._zones.pop(group, {}):
            self._remove(group, name)

    def _set(self, group: str, zone_progress: ZoneProgress, now: datetime) -> None:
        self._desired.labels(group, zone_progress.zone).set(zone_progress.desired)
        self._ready.labels(group, zone_progress.zone).set(zone_progress.ready)
        self._updated.labels(group, zone_progress.zone).set(zone_progress.updated)
        self._outdated.labels(group, zone_progress.zone).set(zone_progress.outdated)
        self._changed.labels(group, zone_progress.zone).set(now.timestamp())

    def _remove(self, group: str, zone: str) -> None:
        for gauge in (self._desired, self._ready, self._updated, self._outdated, self._changed):
            gauge.remove(group, zone)


def _make_gauge(registry: CollectorRegistry, name: str, text: str) -> Gauge:
    return Gauge(
        f"rollout_operator_zone_pods_{name}", text, ("rollout_group", "zone"), registry=registry
    )
