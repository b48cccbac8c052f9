"""Scenarios of policies: zones in their order, batches, pauses, and what begins a pause anew."""

import asyncio
from typing import Final

from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import JsonObject
from tests.simulation.scenarios_people import People
from tests.simulation.scenarios_policies import (
    KEY,
    LABELS,
    OBEYING,
    SAMPLE,
    change_policy,
    create_policy,
)
from tests.simulation.traces import Director, GoldenScenario

ORDER: Final = ("us-west-2c", "us-west-2a")
PAUSE: Final = 30
IN_THE_PAUSE: Final = 10.0  # seconds


def _list_zones() -> list[ZoneSpec]:
    return [
        ZoneSpec(
            name=f"db-{letter}",
            group=None,
            replicas=2,
            labels={**LABELS, KEY: f"us-west-2{letter}"},
        )
        for letter in "abc"
    ]


async def _create(people: People) -> None:
    await create_policy(people, SAMPLE)
    update: JsonObject = {"maxUnavailable": 1, "intervalSeconds": PAUSE}
    await change_policy(people, SAMPLE, {"azOrder": [*ORDER], "rollingUpdate": update})


async def _fail_in_the_pause(director: Director) -> None:
    await director.roll("v2")
    await director.until_rolled_out("db-c")
    await asyncio.sleep(IN_THE_PAUSE)
    director.fail("db-c-0")
    await asyncio.sleep(PAUSE)
    director.mend("db-c-0")
    await director.until_rolled()


TRACES: Final = (
    GoldenScenario(
        name="policy-with-pauses",
        title="Three zones by a MultiAZRollout, with a pause after each batch",
        about="The policy has db-c go first, then db-a, then the zones that it does not name. From"
        " when a batch is complete 30 seconds pass before the next one. In the second pause a pod"
        " fails: nothing goes until it is back, and the pause begins anew.",
        zones=_list_zones(),
        play=_fail_in_the_pause,
        prepare=_create,
        args=OBEYING,
    ),
)
