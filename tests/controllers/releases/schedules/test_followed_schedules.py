"""Schedules of the cluster by what is known of them and of namespaces (RELB-42)."""

import json
from datetime import timedelta

import pytest

from rollout_operator.controllers.schedules import ScheduleKinds, WideSchedules
from rollout_operator.kube import api as kinds
from rollout_operator.model.decode.flux import DECODERS
from tests.controllers.releases.bench import NAMESPACE, FakeKind, ReleaseBench
from tests.virtual_time import in_virtual_time

FROZEN = {
    "rolloutSelector": {},
    "namespaceSelector": {"matchLabels": {"env": "prod"}},
    "rules": [{"name": "always"}],
}


def follow(bench: ReleaseBench) -> WideSchedules:
    """Have a schedule that is never open for namespaces of production; ours is for development."""
    wide = WideSchedules(
        ScheduleKinds(
            schedules=FakeKind([kinds.CLUSTER_ROLLOUT_SCHEDULES], bench.api),
            rollouts=FakeKind([kinds.ROLLOUTS], bench.api),
            gates=FakeKind([kinds.ROLLOUT_GATES], bench.api),
            namespaces=bench.namespaces,
        )
    )
    wide.set_followed(is_followed=True)
    for kind, name, body in (
        (wide.kinds.schedules, "freeze", {"spec": FROZEN}),
        (bench.namespaces, NAMESPACE, {}),
    ):
        labels = {} if body else {"env": "dev"}
        head = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels}
        decode = DECODERS[kind.kind]
        kind.store.upsert(decode(json.dumps({"metadata": head, **body}).encode()))
    bench.wide_schedules = wide
    bench.restart()
    return wide


@pytest.mark.parametrize("what", ["Namespace", "ClusterRolloutSchedule"])
@in_virtual_time
async def test_what_may_no_longer_be_so_holds_versions(what: str) -> None:
    """RELB-42: labels that were read minutes ago select nothing, and exempt nothing."""
    bench = ReleaseBench()
    wide = follow(bench)
    await bench.rest()
    bench.announce("1.1.0")
    await bench.rest()
    assert bench.history() == "1.1.0 1.0.0", "the schedule is for other namespaces"

    stale = bench.namespaces if what == "Namespace" else wide.kinds.schedules
    assert isinstance(stale, FakeKind)
    stale.proved_ago = timedelta(minutes=5)
    bench.announce("1.2.0")
    await bench.rest()
    assert bench.history() == "1.1.0 1.0.0"
    assert f"{what}: the cache is too old" in bench.condition("GatesPassing")

    stale.proved_ago = timedelta(0)
    await bench.rest()
    assert bench.history() == "1.2.0 1.1.0 1.0.0"
