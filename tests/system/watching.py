"""An operator of several namespaces, and what it sent to the API server."""

from collections.abc import Collection, Sequence
from typing import Final

from msgspec.structs import replace

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS
from tests.world.api import Json, Resource
from tests.world.operatorproc import OperatorProcess
from tests.world.several import permit_following
from tests.world.world import World

POLICIES: Final = Resource("rollout.grafana.com/v1alpha1", MULTI_AZ_ROLLOUTS.plural)
# What it needs to find the namespaces of a cluster.
CLUSTER_RULES: Final = (
    permit_following("apps", "statefulsets"),
    permit_following("rollout-operator.grafana.com", "zoneawarepoddisruptionbudgets"),
    permit_following("rollout.grafana.com", "multiazrollouts"),
)
CLUSTER_SCOPED: Final = frozenset(
    ("validatingwebhookconfigurations", "mutatingwebhookconfigurations", "nodes")
)


def launch(home: World, watched: str, *flags: str) -> OperatorProcess:
    """Return an operator of `home` that watches what the variable says; it is not started."""
    home.may_be_forbidden = True
    limits = ("-kubernetes.client-qps=100", "-kubernetes.client-burst=100")
    variables = {
        "WATCH_NAMESPACE": watched,
        "POD_NAMESPACE": home.namespace,
        "LOG_LEVEL": "debug",
    }
    started = home.launch(*limits, "-multi-az-rollouts.enabled", *flags)
    return OperatorProcess(replace(started, namespace="", env=variables))


def make_policy(name: str) -> Json:
    """Return a MultiAZRollout of the sets with this label `app`, without a pause."""
    return {
        "apiVersion": POLICIES.api_version,
        "kind": MULTI_AZ_ROLLOUTS.kind,
        "metadata": {"name": name},
        "spec": {
            "statefulSetSelector": {"matchLabels": {"app": name}},
            "rollingUpdate": {"intervalSeconds": 0},
        },
    }


async def list_requests(home: World, begun: int) -> list[Json]:
    """Return what the audit log has of the operator since then."""
    await home.judge.settle()
    entries, _ = home.plane.read_audit(begun)
    return [one for one in entries if one["user"].get("username") == home.user]


def list_strays(entries: Sequence[Json], watched: Collection[str]) -> list[str]:
    """Return the requests that were about objects elsewhere."""
    assert {entry.get("objectRef", {}).get("namespace") for entry in entries} >= {*watched}
    return [
        entry["requestURI"]
        for entry in entries
        if (target := entry.get("objectRef", {})).get("namespace") not in watched
        and target.get("resource") not in CLUSTER_SCOPED
    ]


def collect_watches(entries: Sequence[Json]) -> set[tuple[str, str | None]]:
    """Return what was watched: kinds and namespaces, None where that is all of them."""
    targets = [entry["objectRef"] for entry in entries if entry["verb"] == "watch"]
    return {(target["resource"], target.get("namespace")) for target in targets}
