"""When the status of a policy is written, and that numbers alone do not hurry."""

from datetime import timedelta
from itertools import pairwise

import msgspec
from rollout_lab.model.history import Commit
from rollout_lab.network.faults import OUTCOME, Failure, FaultDecision, NoFaults, SentCall
from rollout_lab.world import Sandbox

from rollout_operator.controllers.policies import WRITE_PAUSE
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS
from rollout_operator.model.decode.custom import decode_watched_policy
from rollout_operator.model.policy import PolicyStatus
from rollout_operator.planning.policy_status import is_urgent
from tests.controllers.policies.world import PolicyWorld
from tests.virtual_time import in_virtual_time


def list_written(sandbox: Sandbox) -> list[tuple[timedelta, PolicyStatus]]:
    """Return when the operator wrote which status."""
    return [
        (commit.at, decode_watched_policy(msgspec.json.encode(commit.after)).status)
        for commit in sandbox.history.list_all(Commit)
        if commit.resource == MULTI_AZ_ROLLOUTS
        and commit.actor.startswith("operator")
        and commit.after is not None
    ]


class Contested(NoFaults):
    """Refuses every write of a status once: another client has changed the object meanwhile."""

    def on_call(self, sent_call: SentCall) -> FaultDecision:
        is_status = (sent_call.plural, sent_call.verb) == (MULTI_AZ_ROLLOUTS.plural, "patch")
        is_refused = is_status and sent_call.round % 2 == 1
        return FaultDecision(fails=Failure.CONFLICT) if is_refused else OUTCOME


@in_virtual_time
async def test_a_policy_that_was_edited_meanwhile_is_no_trouble(lines: list[str]) -> None:
    """A person edits it while a batch is recorded: it is read back, without a warning."""
    async with Sandbox(faults=Contested()) as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", replicas=2)
        await world.create_policy(rollingUpdate={"intervalSeconds": 3})
        await world.start()
        await world.roll_out(letters="ab")
        await world.sleep(120)
        written = list_written(sandbox)
    assert world.pods() == ["db-a-1", "db-a-0", "db-b-1", "db-b-0"]
    assert any("Policy has changed meanwhile" in line for line in lines)
    assert [line for line in lines if "level=warn" in line] == []
    messages = [one.message for _, status in written for one in status.conditions]
    assert not [text for text in messages if "409" in text]


@in_virtual_time
async def test_maz54_numbers_alone_are_written_once_a_second() -> None:
    """The last ones as well: where nothing goes on any more, the status is that of the pods."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", replicas=3)
        await world.create_policy(rollingUpdate={"intervalSeconds": 3, "maxUnavailable": 3})
        await world.start()
        await world.roll_out(letters="ab")
        await world.sleep(120)
        written = list_written(sandbox)
        status = (await world.get())["status"]
    hasty = [
        (one, after)
        for (at, one), (then, after) in pairwise(written)
        if then - at < WRITE_PAUSE and not is_urgent(one, after)
    ]
    assert not hasty
    assert (status["updatedPods"], status["readyPods"], status["totalPods"]) == (6, 6, 6)
    # Two batches, each recorded, open, and complete; some numbers between.
    assert 8 <= len(written) <= 24
