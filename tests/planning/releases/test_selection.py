"""Which release is requested by name, and which is left out for its past."""

import pytest

from rollout_operator.model.releases.compat import KUBERIK, OURS
from rollout_operator.model.releases.rollout import ReleaseIntents, ReleaseSpec
from rollout_operator.model.releases.status import BakeStatus, ConsumedIntent, ReleaseStatus
from rollout_operator.planning.releases.intents import (
    consume,
    list_left_over,
    without_left_over,
)
from rollout_operator.planning.releases.selection import (
    ManualRequest,
    find_manual,
    is_done_already,
    list_excluded,
)
from tests.planning.releases.builders import entry, releases, rollout

KNOWN = releases("1.0.0 2.0.0")
FORCE = "rollout.kuberik.com/force-deploy"
USER = "rollout.kuberik.com/deploy-user"


@pytest.mark.parametrize(
    ("wanted", "forced", "expected"),
    [
        pytest.param(None, None, None, id="REL-44 nothing"),
        pytest.param(None, "", None, id="REL-44 an empty annotation"),
        pytest.param("9.9.9", None, ManualRequest(tag="9.9.9"), id="RT-09 a pin of any tag"),
        pytest.param(None, "2.0.0", ManualRequest(tag="2.0.0"), id="RT-61 a known release"),
        pytest.param(
            None, "3.0.0",
            ManualRequest(problem='force-deploy: "3.0.0" is none of the available releases'),
            id="RT-63 an unknown one",
        ),
        pytest.param("1.0.0", "3.0.0", ManualRequest(tag="1.0.0"), id="RT-64 the pin goes first"),
    ],
)  # fmt: skip
def test_what_is_requested_by_name(
    wanted: str | None, forced: str | None, expected: ManualRequest | None
) -> None:
    """REL-46."""
    spec = ReleaseSpec(policy_name="app", wanted_version=wanted)

    assert find_manual(spec, ReleaseIntents(force_deploy=forced), KNOWN) == expected


@pytest.mark.parametrize(
    ("wanted", "forced", "current", "is_done"),
    [
        (None, "1.0.0", "1.0.0", True),
        (None, "2.0.0", "1.0.0", False),
        ("1.0.0", "1.0.0", "1.0.0", False),
        (None, "1.0.0", None, False),
        (None, None, "1.0.0", False),
        (None, "", "", False),
    ],
)
def test_what_is_deployed_already_need_not_be_forced(
    wanted: str | None, forced: str | None, current: str | None, is_done: bool
) -> None:
    """RELB-09; below a pin the annotation stays (REL-48)."""
    spec = ReleaseSpec(policy_name="app", wanted_version=wanted)
    deployed = None if current is None else entry(current)

    assert is_done_already(spec, ReleaseIntents(force_deploy=forced), deployed) is is_done


@pytest.mark.parametrize(
    ("history", "unblock", "excluded"),
    [
        ("1", None, ""),
        ("1 2F", None, "2"),
        ("1 2F 2", None, "2"),
        ("1 2 2F", None, ""),
        ("1 2F", "true", ""),
        ("1 2F", "yes", "2"),
    ],
)
def test_a_release_that_failed_is_not_deployed_again_by_itself(
    history: str, unblock: str | None, excluded: str
) -> None:
    """RELB-24: after a pin went back from it, and was removed."""
    past = tuple(
        entry(one.strip("F"), BakeStatus.FAILED if "F" in one else BakeStatus.SUCCEEDED)
        for one in history.split()
    )
    intents = ReleaseIntents(unblock_failed=unblock)

    found = list_excluded(releases("3 2"), past, intents, OURS)
    assert " ".join(one.tag for one in found) == excluded
    assert list_excluded(releases("3 2"), past, intents, KUBERIK) == ()


def test_what_had_its_effect_is_not_applied_twice() -> None:
    """RELB-10: a crash came before its annotation was removed. Another value is another intent."""
    requested = ReleaseIntents(force_deploy="2.0.0", deploy_user="ann", retry="")
    consumed = (
        ConsumedIntent(annotation=FORCE, value="2.0.0"),
        ConsumedIntent(annotation=USER, value="bob"),
        ConsumedIntent(annotation="other", value=""),
    )
    known = rollout(intents=requested, status=ReleaseStatus(consumed_intents=consumed))

    assert list_left_over(known) == consumed[:1]
    assert without_left_over(known) == ReleaseIntents(deploy_user="ann", retry="")


def test_only_annotations_that_are_there_are_recorded() -> None:
    """RELB-10."""
    requested = ReleaseIntents(force_deploy="2.0.0")

    assert consume(requested, (FORCE, USER)) == (ConsumedIntent(annotation=FORCE, value="2.0.0"),)
