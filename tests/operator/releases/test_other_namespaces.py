"""HealthChecks of namespaces that this process does not look after."""

import gc
from typing import Final

from rollout_operator.kube.api import HEALTH_CHECKS, NAMESPACES, ROLLOUTS, JsonObject
from rollout_operator.releases.health_checks import CheckController
from tests.controllers.releases.world import ReleaseSandbox
from tests.virtual_time import in_virtual_time

WIDE: Final[JsonObject] = {"selector": {}, "namespaceSelector": {}}
POLICY: Final = {"releasesImagePolicy": {"name": "app"}, "healthCheckSelector": WIDE}


def count_controllers() -> int:
    gc.collect()
    return sum(isinstance(each, CheckController) for each in gc.get_objects())


@in_virtual_time
async def test_namespaces_that_come_and_go_leave_nothing_behind() -> None:
    async with ReleaseSandbox.opened() as world:
        await world.create(ROLLOUTS, "app", POLICY)
        await world.start()
        await world.sleep(5)
        alone = count_controllers()
        for number in range(3):
            name = f"team-{number}"
            await world.create(NAMESPACES, name, {})
            for check in ("web", "db"):
                await world.create(HEALTH_CHECKS, check, {}, namespace=name)
        await world.sleep(5)
        assert count_controllers() == alone + 3

        await world.delete(HEALTH_CHECKS, "web", namespace="team-0")
        await world.sleep(5)
        assert count_controllers() == alone + 3, "another one is there"

        for check in ("web", "db"):
            await world.delete(HEALTH_CHECKS, check, namespace="team-1")
        await world.delete(HEALTH_CHECKS, "db", namespace="team-0")
        await world.sleep(5)
        assert count_controllers() == alone + 1

        await world.create(HEALTH_CHECKS, "web", {}, namespace="team-1")
        await world.sleep(5)
        assert count_controllers() == alone + 2
