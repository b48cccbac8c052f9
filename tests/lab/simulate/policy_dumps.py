"""Inputs with a MultiAZRollout, and what is read of their simulations."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from rollout_lab.model.history import Called
from rollout_lab.simulate.command import simulate
from rollout_lab.simulate.flags import read_settings
from rollout_lab.simulate.report import SimulationRun, render_text
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, PODS
from tests.lab.simulate.dumps import NAMESPACE, Json, to_yaml
from tests.virtual_time import EPOCH

KEY: Final = "topology.kubernetes.io/zone"
LABELS: Final = {"app": "db"}
ORDER: Final = ["us-west-2c"]
"""Of the zones of `db_zones`, the last one by name goes first."""


def db_zones() -> list[ZoneSpec]:
    """Return three zones of no rollout group, each with one StatefulSet that says its zone."""
    return [
        ZoneSpec(
            name=f"db-{letter}",
            group=None,
            replicas=2,
            labels={**LABELS, KEY: f"us-west-2{letter}"},
        )
        for letter in "abc"
    ]


def policy(name: str = "db", created: str = "2026-01-01T00:00:00Z", **spec: object) -> Json:
    """Return a policy over all that has LABELS, as the API server prints it."""
    head = {"uid": f"u-{name}", "resourceVersion": "9", "creationTimestamp": created}
    return {
        "apiVersion": f"{MULTI_AZ_ROLLOUTS.group}/{MULTI_AZ_ROLLOUTS.version}",
        "kind": MULTI_AZ_ROLLOUTS.kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "generation": 1, **head},
        "spec": {"statefulSetSelector": {"matchLabels": LABELS}, "azOrder": ORDER, **spec},
    }


def run_changes(objects: Sequence[Json], *changes: str, flags: str = "") -> SimulationRun:
    """Return a simulation of objects with these changes."""
    words = [word for change in changes for word in ("-change", change)]
    settings = read_settings(["-f", "-", *flags.split(), *words])
    return simulate(settings, to_yaml(objects), EPOCH)


def render_words(run: SimulationRun) -> str:
    """Return its text as one line."""
    return " ".join(word for line in render_text(run) for word in line.split())


def list_delete_times(run: SimulationRun) -> list[timedelta]:
    """Return when the operator has deleted pods."""
    return [
        one.at
        for one in run.play.history.list_all(Called)
        if one.actor == "operator" and one.request.verb == "delete"
        if one.request.resource == PODS
    ]
