"""`simulate -releases` on the real control plane: of a cluster it says the same as of its files."""

import asyncio
import json
import os
from typing import Final

import pytest
import yaml

from rollout_operator.model.names import SCHEDULE_NAME
from tests.system.grants import grant_reads
from tests.system.releasing import (
    CHECKS,
    GATES,
    GROUP,
    ON,
    ROLLOUTS,
    announce,
    create,
    create_targets,
    prepare,
    wait_gate,
    wait_history,
    wait_release_condition,
)
from tests.world.api import Json, Resource
from tests.world.flux import IMAGE_POLICIES, KUSTOMIZATIONS, OCI_REPOSITORIES
from tests.world.forkserver import run_program
from tests.world.world import World

pytestmark = pytest.mark.controlplane

SCHEDULES: Final = Resource(GROUP, "rolloutschedules")
BEGINS: Final = "2126-03-29T00:00:00Z"
KINDS: Final = (
    *(ROLLOUTS, GATES, CHECKS, SCHEDULES),
    *(IMAGE_POLICIES, OCI_REPOSITORIES, KUSTOMIZATIONS),
)


async def test_a_cluster_and_its_files_have_the_same_future(world: World) -> None:
    """What a running operator has come to: one gate by a schedule, one by a person."""
    await prepare(world)
    await create_targets(world)
    await announce(world, "1.0.0")
    for name in ("app", "web"):
        spec = {"releasesImagePolicy": {"name": "app"}}
        await create(world, ROLLOUTS, "Rollout", name, spec, labels={"of": name})
    window = {"name": "window", "timeRange": {"start": "22:00", "end": "06:00"}}
    rules = {"timezone": "Asia/Tokyo", "action": "Allow", "rules": [window]}
    # Closed until the year that is read: whatever the hour of the test is.
    dated = {**window, "dateRange": {"start": "2126-01-01", "end": "2126-12-31"}}
    selector = {"rolloutSelector": {"matchLabels": {"of": "app"}}}
    await create(
        world, SCHEDULES, "RolloutSchedule", "nights", {**selector, **rules, "rules": [dated]}
    )
    manual = {"rolloutRef": {"name": "web"}, "passing": False}
    await create(world, GATES, "RolloutGate", "manual", manual)
    operator = await world.operator(ON, "-releases.metadata=none")
    for name in ("app", "web"):
        await wait_history(world, "1.0.0 Succeeded", name)
    # A version that is announced before its schedule has made the gate would pass.
    await wait_gate(world, "nights-app", is_passing=False)
    await announce(world, "1.1.0")
    for name in ("app", "web"):
        await wait_release_condition(world, "GatesPassing", "False SomeGatesBlocking", name)
    assert await operator.terminate() == 0
    assert SCHEDULE_NAME in (await world.get(GATES, "nights-app"))["metadata"]["labels"]

    path = world.folder / "dump.yaml"
    path.write_text(
        yaml.safe_dump_all([await world.api.list(kind, world.namespace) for kind in KINDS])
    )
    reader = await grant_reads(
        world,
        [
            ("list", name)
            for name in (
                *("rollouts", "rolloutgates", "rolloutschedules", "healthchecks"),
                *("imagepolicies", "ocirepositories", "kustomizations"),
            )
        ],
    )
    of_file = await _foresee("-f", str(path))
    of_cluster = await _foresee("-kubeconfig", str(reader))

    assert of_cluster["rollouts"] == of_file["rollouts"]
    app, web = of_cluster["rollouts"]
    assert (app["name"], app["versions"][0]["tag"], app["versions"][0]["localTime"]) == (
        "app",
        "1.1.0",
        "2126-03-29T22:00:00+09:00",
    )
    (hold,) = app["versions"][0]["holds"]
    assert (hold["reason"], hold["gates"][0]["schedule"]) == (
        "SomeGatesBlocking",
        f"RolloutSchedule {world.namespace}/nights",
    )
    assert [version["verdict"] for version in web["versions"]] == ["person"]
    await world.assert_permitted()


async def _foresee(*words: str) -> Json:
    command = ("simulate", "-releases", "-o", "json", "-as-of", BEGINS, *words)
    ended = await asyncio.to_thread(run_program, *command, env=os.environ, limit_s=120)
    assert ended.returncode == 0, ended.stderr
    printed: Json = json.loads(ended.stdout)
    return printed
