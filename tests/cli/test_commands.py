"""`status`, `explain` and `wait`, as a person types them: texts beside this file."""

import pytest
from msgspec.structs import replace

from rollout_operator.cli.wait import await_release
from rollout_operator.model.description import ReleasePhase
from tests.cli.command_stage import CommandStage
from tests.stories import check_stories
from tests.virtual_time import in_virtual_time
from tests.web.status.descriptions import release

test_story = in_virtual_time(check_stories(__file__, wait=CommandStage, explain=CommandStage))
test_long_story = pytest.mark.slow(in_virtual_time(check_stories(__file__, wait_long=CommandStage)))


def test_what_is_requested_of_a_rollout_counts_before_it_has_had_an_effect() -> None:
    through = replace(release("app", ReleasePhase.DEPLOYED), next="", waits=())
    retried = replace(through, is_retry_requested=True)
    forced, again = (replace(through, next=tag) for tag in ("0.9.0", "1.0.0"))
    spare = replace(through, requests=("rollout.kuberik.com/unblock-failed: true",))
    reached = [await_release(one).is_reached for one in (through, retried, forced, spare)]
    reached += [await_release(one, "1.0.0").is_reached for one in (through, again)]
    assert reached == [True, False, False, True, True, False]
