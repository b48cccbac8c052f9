"""Which pods of a zone with a delay are told that they stay, and when: DELAY-05, 06, 10, W-20."""

from collections.abc import Mapping
from typing import Final

import pytest

from rollout_operator.model.downscale import Underway
from rollout_operator.model.names import Uid
from rollout_operator.model.scaling import Talk
from rollout_operator.planning.scaling.delays import ASK_AGAIN, CANCEL_AGAIN, SOON_TRIES
from rollout_operator.planning.scaling.plan import plan_scaling
from tests.builders import NOW, with_pods
from tests.planning.scalings import MINUTE, SECOND, SHOWN, counts, delayed, outline, view, word

FAILED: Final = word(None, problem="zone-b-3 answered 500")
DUE: Final = word(70 * MINUTE)
TOLD: Final = Talk(cancelled_at=NOW - MINUTE)


def test_who_is_owed_a_cancel_gets_it_whatever_other_zones_do() -> None:
    """A zone that can never be scaled, as a quota refuses it, must not keep others prepared."""
    zones = [delayed("a", 2), delayed("b", 5)]
    plan = plan_scaling(view(*zones, delayed("c", 7), scale="5/5", words={"b-4": DUE}))

    assert counts(plan) == {"zone-a": 5}
    assert "talk zone-b: stay 4" in outline(plan)


@pytest.mark.parametrize(
    ("talk", "is_told"),
    [
        pytest.param(None, True, id="never told by this process"),
        pytest.param(Talk(word=DUE), True, id="DELAY-10 SEED-077 asked since"),
        pytest.param(Talk(word=FAILED), True, id="asked since, without a good answer"),
        pytest.param(TOLD, False, id="W-20 told a minute ago"),
        pytest.param(
            Talk(cancelled_at=NOW - CANCEL_AGAIN + SECOND), False, id="W-20 told lately"
        ),
        pytest.param(Talk(cancelled_at=NOW - CANCEL_AGAIN), True, id="SEED-079 told long ago"),
        pytest.param(Talk(tried_at=NOW - MINUTE), False, id="LI-11 it does not know the word"),
        pytest.param(Talk(tried_at=NOW - CANCEL_AGAIN), True, id="and is tried again rarely"),
        pytest.param(
            Talk(tried_at=NOW - MINUTE, tries=1), True,
            id="LI-05 not reached since the start: another process may have asked it",
        ),
        pytest.param(Talk(tried_at=NOW - MINUTE, tries=SOON_TRIES), True, id="LI-05 some times"),
        pytest.param(
            Talk(tried_at=NOW - MINUTE, tries=SOON_TRIES + 1), False, id="LI-11 and no more"
        ),
        pytest.param(
            Talk(tried_at=NOW - ASK_AGAIN + SECOND, tries=1), False, id="not all the time"
        ),
        pytest.param(
            Talk(cancelled_at=NOW - CANCEL_AGAIN, tried_at=NOW - MINUTE, tries=1), False,
            id="it had confirmed before",
        ),
        pytest.param(
            Talk(word=DUE, tried_at=NOW - ASK_AGAIN + SECOND), False, id="did not confirm"
        ),
        pytest.param(
            Talk(word=DUE, tried_at=NOW - ASK_AGAIN), True,
            id="LI-05 owed: tried again after a minute",
        ),
        pytest.param(
            Talk(cancelled_at=NOW - CANCEL_AGAIN, tried_at=NOW - MINUTE), False,
            id="the newest counts",
        ),
        pytest.param(
            Talk(cancelled_at=NOW + CANCEL_AGAIN), True, id="FP-17 the server's clock went back"
        ),
    ],
)  # fmt: skip
def test_seed079_when_a_pod_is_told_that_it_stays(talk: Talk | None, is_told: bool) -> None:
    for scale in ("5/5", "7/5"):
        stay = {} if talk is None else {"b-1": talk}
        others = dict.fromkeys(("b-0", "b-2", "b-3", "b-4"), TOLD)
        plan = plan_scaling(view(delayed("b", 5), scale=scale, stay={**others, **stay}))

        assert [line for line in outline(plan) if line.startswith("talk")] == (
            ["talk zone-b: stay 1"] if is_told else []
        )


def test_seed079_it_is_known_when_the_next_of_them_is_due() -> None:
    stay = {f"b-{number}": Talk(cancelled_at=NOW - number * MINUTE) for number in range(5)}

    assert plan_scaling(view(delayed("b", 5), scale="5/5", stay=stay)).look_again == (
        CANCEL_AGAIN - 4 * MINUTE
    )


def test_seed077_an_upscale_in_the_midst_of_the_wait_takes_it_back() -> None:
    words = {"b-4": word(30 * MINUTE), "b-3": word(30 * MINUTE)}
    plan = plan_scaling(
        view(
            delayed("b", 5),
            scale="6/5",
            words=words,
            stay={f"b-{number}": TOLD for number in range(3)},
        )
    )

    assert outline(plan) == [f"scale_up: zone-b mirrors {SHOWN}: 5 → 6", "talk zone-b: stay 3 4"]


def test_si12_what_may_still_be_scaled_away_is_not_told_that_it_stays() -> None:
    """5 → 3 was sent without an answer, and now 5 are wanted again."""
    underway = Underway(zone="zone-b", replicas_from=5, replicas_to=3)
    words = {"b-4": DUE, "b-3": DUE, "b-2": DUE}
    plan = plan_scaling(view(delayed("b", 5), scale="5/5", words=words, downscale=underway))

    assert outline(plan) == ["talk zone-b: stay 0 1 2"]


@pytest.mark.parametrize(
    "changes",
    [
        {"is_terminating": True},
        {"phase": "Pending"},
        {"phase": "Failed"},
        {"phase": "Unknown"},
        {"phase": ""},
        {"ip": ""},
        {"ip": "nowhere"},
        {"owner_uid": Uid("stranger")},
        {"name": "zone-b-x"},
        {"name": "zone-c-1"},
        {"name": "zone-b-01"},
    ],
)
def test_only_own_pods_that_run_are_told_anything(changes: Mapping[str, object]) -> None:
    plan = plan_scaling(view(with_pods(delayed("b", 3), **changes), scale="3/3"))

    assert plan.talks == ()
