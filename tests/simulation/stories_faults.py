"""Stories of the moment between a delete and the knowledge of it."""

import asyncio
from typing import Final

from rollout_operator.lab.network.faults import CrashPoint, Failure, FaultDecision
from tests.simulation.stories import Mishap, Story, Teller
from tests.simulation.stories_rollouts import roll, zones

POD: Final = "zone-a-1"


async def _crash(teller: Teller) -> None:
    await teller.roll("v2")
    await teller.until_dead()
    await asyncio.sleep(1)
    teller.start()
    await teller.until_rolled()


STORIES: Final = (
    Story(
        name="crash-after-delete",
        title="The operator dies right after a delete, and comes back",
        about=f"The API server has carried out the delete of {POD}; nobody reads its answer. The "
        "next life of the operator knows of nothing but the API server, finds the pod down, and "
        "takes no other before it is back.",
        zones=zones("ab"),
        play=_crash,
        mishap=Mishap(
            verb="delete",
            pod=POD,
            fate=FaultDecision(crash=CrashPoint.AFTER_COMMIT),
            kind="crash",
            text=f"the process dies when the delete of {POD} has been carried out",
        ),
    ),
    Story(
        name="lost-answer",
        title="The answer to a delete is lost",
        about=f"The delete of {POD} is carried out, and no answer comes. The operator waits "
        "until its patience is over, and takes no other pod meanwhile. Then it reads back what has "
        "become of this one, finds another in its place, and goes on.",
        zones=zones("ab"),
        play=roll,
        mishap=Mishap(
            verb="delete",
            pod=POD,
            fate=FaultDecision(fails=Failure.TIMEOUT),
            kind="timeout",
            text=f"the delete of {POD} is carried out, and its answer lost",
        ),
    ),
)
