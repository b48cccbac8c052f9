"""Zones of whose settings `doctor` says something: a part of its one world."""

from typing import Final

from rollout_lab.zones import ZoneSpec

TROUBLE: Final = (
    ZoneSpec(name="alone", group="single", replicas=0),
    ZoneSpec(name="rolling", group="ruled", replicas=0, strategy="RollingUpdate"),
    ZoneSpec(
        name="odd",
        group="ruled",
        replicas=0,
        max_unavailable="many",
        labels={"grafana.com/prepare-downscale": "true", "rollout-max-unavailable": "1"},
        annotations={
            "grafana.com/rollout-downscale-leeder": "a",
            "grafana.com/no-downscale": "true",
            "grafana.com/rollout-downscale-leader": "absent",
        },
    ),
)
