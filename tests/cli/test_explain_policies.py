"""`explain` and `status` where a MultiAZRollout replaces pods, from the objects alone (D-76)."""

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace
from rollout_lab.world import Sandbox

from rollout_operator.cli.explain import draw_explanation, read_target
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.outcome import Code
from rollout_operator.operator.inspect import Inspection, list_namespaces
from rollout_operator.planning.text import StatusLayout, render_line
from tests.controllers.policies.world import PolicyWorld
from tests.operator.diagnosis.inspected import observe_sandbox, requesting
from tests.virtual_time import in_virtual_time


async def explain(seen: Inspection, *words: str) -> str:
    lines = await draw_explanation(seen, read_target(words), StatusLayout(width=200))
    return "\n".join(render_line(line, 200, is_coloured=False) for line in lines)


@in_virtual_time
async def test_d_76_a_pod_of_a_policy_names_it_and_what_it_waits_for() -> None:
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", group="db", replicas=2)
        await world.create_policy(rollingUpdate={"intervalSeconds": 600})
        await world.start()
        await world.roll_out(letters="ab")
        await world.sleep(60)
        seen = await observe_sandbox(sandbox).inspect()

        waiting = await explain(seen, "pod/db-a-0")
        assert waiting.startswith("pod db-a-0 of MultiAZRollout default/db\nrollout: ")
        assert "it cannot go yet [pod_outdated]" in waiting
        assert "first: MultiAZRollout default/db replaces the pods [driven_by_policy]" in waiting
        assert "[interval_wait]" in waiting
        assert "another_zone_first" not in waiting
        later = await explain(seen, "db-b-1")
        assert "first: us-west-2a has outdated pods, which go first" in later
        assert "no rollout deletes it" in await explain(seen, "pod", "db-a-1")
        assert "cannot go yet" in await explain(seen, "sts/db-b")
        policy = await explain(seen, "mazr/db")
        assert policy.startswith("MultiAZRollout default/db  Waiting")
        assert "[interval_wait]" in policy
        assert "Ready is False, RollingOut" in policy
        with pytest.raises(InvalidInput, match="did you mean db"):
            await explain(seen, "multiazrollout/dbb")

    (group,) = seen.description.groups
    assert (group.policy, group.code) == ("default/db", Code.DRIVEN_BY_POLICY)
    (found,) = seen.description.list_policies()
    assert (found.code, found.phase) == (Code.INTERVAL_WAIT, "Waiting")


@in_virtual_time
async def test_a_policy_that_no_operator_obeys_drives_nothing() -> None:
    """Its kind may be installed long before an operator has the flag to obey it."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", group="db", replicas=1)
        await world.create_policy()
        await world.roll_out(letters="ab")
        await world.sleep(10)
        seen = await observe_sandbox(sandbox).inspect()
        assert "pod db-a-0 of group db" in await explain(seen, "db-a-0")
        assert "it goes now" in await explain(seen, "db-a-0")

    (found,) = seen.description.list_policies()
    assert found.headline == "nothing has been decided yet"


@in_virtual_time
async def test_a_policy_drives_nothing_once_its_operator_has_lost_the_flag() -> None:
    """MAZ-82: its status still says what it has done, and the label moves the group."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", group="db", replicas=2)
        await world.create_policy(rollingUpdate={"intervalSeconds": 600})
        process = await world.start()
        await world.roll_out(letters="ab")
        await world.sleep(60)
        # As one without the flag describes the namespace.
        own = replace(await process.describe(), policies=UNSET)
        answer = msgspec.json.encode(own)
        seen = await requesting(observe_sandbox(sandbox), services=answer).inspect()

        assert (await explain(seen, "pod/db-a-0")).startswith("pod db-a-0 of group db\n")
        assert "it goes now" in await explain(seen, "pod/db-a-0")
        assert "[policy_not_obeyed]" in await explain(seen, "mazr/db")
        (group,) = seen.description.groups
        assert (group.policy, group.code) == (UNSET, Code.POD_OUTDATED)


@pytest.mark.parametrize("acts", [True, False])
@in_virtual_time
async def test_si26_a_policy_is_held_by_a_zone_that_only_the_operator_knows_of(acts: bool) -> None:
    """SI-26, D-76: also by a replica that does not act."""
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("abc", group="db", replicas=2)
        await world.create_policy()
        process = await world.start()
        sandbox.cluster.fail_pod("db-a-1")
        await world.sleep(5)
        await world.delete_set("db-a")
        await world.roll_out(letters="bc")
        await world.sleep(20)
        described = await process.describe()
        assert described.operator is not None
        replica = replace(described.operator, is_acting=acts)
        answer = msgspec.json.encode(replace(described, operator=replica))
        seen = await requesting(observe_sandbox(sandbox), services=answer).inspect()

        for target in ("pod/db-b-0", "sts/db-b", "mazr/db"):
            text = await explain(seen, target)
            assert "[zone_left_short]" in text, text
            assert "it goes now" not in text
        # As `wait` reads it.
        [driving] = seen.driven
        assert [wait.code for wait in driving.plan.waits] == [Code.ZONE_LEFT_SHORT]


@in_virtual_time
async def test_all_namespaces_are_those_with_policies_as_well() -> None:
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        client = observe_sandbox(sandbox).client
        assert await list_namespaces(client) == []
        await world.create_policy()
        assert await list_namespaces(client) == [sandbox.namespace]


@in_virtual_time
async def test_without_policies_the_description_has_none() -> None:
    async with Sandbox() as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", group="db", replicas=1)
        seen = await observe_sandbox(sandbox).inspect()

    assert seen.description.list_policies() == ()
    assert not isinstance(seen.description.policies, tuple)
