"""What prepare-downscale is asked: T-07, PREP-01 to 05, D-21, SI-13, SI-15."""

from typing import Final

import pytest
from hypothesis import given, settings

from rollout_operator.model.downscale import Decrease
from rollout_operator.model.names import PREPARE_DOWNSCALE
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.review import Review, Scalable, Unusable
from rollout_operator.planning.downscales.request import assess_prepare_change
from tests.planning.reviews import (
    BROKEN,
    CANNOT_DECODE,
    NIL,
    NO_SCALE,
    allowed,
    decrease,
    is_decrease,
    objects,
    one,
    refused,
    review,
    warned,
)

REPEATABLE: Final = settings(derandomize=True, deadline=None, max_examples=300, database=None)
PREPARED: Final = {PREPARE_DOWNSCALE: "true"}
CANNOT_RULE_OUT: Final = (
    "can't decode {} object, so that the label grafana.com/prepare-downscale cannot be ruled out,"
    " err: no kind"
)
NIL_AND_LABELLED: Final = (
    "old/new replicas of statefulsets/mock in default is nil, and it has the label"
    " 'grafana.com/prepare-downscale=true'"
)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(
            review(one(3, PREPARED), one(1, PREPARED), dry_run=True),
            allowed(Code.DRY_RUN),
            id="PREP-01 SEED-094 dry run",
        ),
        pytest.param(
            review(BROKEN, BROKEN, dry_run=True),
            allowed(Code.DRY_RUN),
            id="PREP-01 SI-15 nothing is looked at in a dry run",
        ),
        pytest.param(review(one(2, PREPARED), one(5)), NO_SCALE, id="T-07 1 2 to 5"),
        pytest.param(review(one(5, PREPARED), one(5)), NO_SCALE, id="T-07 1 SEED-089 5 to 5"),
        pytest.param(review(one(3), one(1)), decrease(3, 1), id="PREP-04 labels come later"),
        pytest.param(
            review(one(3, PREPARED), one(0)), decrease(3, 0), id="PREP-04 all pods are to go"
        ),
        pytest.param(
            review(one(3, kind="Scale"), one(1, kind="Scale")),
            decrease(3, 1),
            id="PREP-04 by scale",
        ),
        pytest.param(
            review(BROKEN, one(1)),
            refused(Code.CANNOT_CHECK, CANNOT_RULE_OUT.format("old")),
            id="D-21 SI-13 W-12 old cannot be decoded",
        ),
        pytest.param(
            review(one(3), BROKEN),
            refused(Code.CANNOT_CHECK, CANNOT_RULE_OUT.format("new")),
            id="D-21 SI-13 new cannot be decoded",
        ),
        pytest.param(
            review(BROKEN, one(1), resource="pods"),
            warned(Code.CANNOT_CHECK, CANNOT_DECODE.format("old")),
            id="PREP-02 another kind cannot be decoded",
        ),
        pytest.param(
            review(one(3, PREPARED, "Deployment"), one(1), resource="deployments"),
            warned(Code.CANNOT_CHECK, "deployments are not prepared, allowing the change"),
            id="PREP-04 another kind",
        ),
        pytest.param(
            review(one(1, PREPARED, "Deployment"), one(3), resource="deployments"),
            NO_SCALE,
            id="PREP-03 another kind goes up",
        ),
        pytest.param(
            review(one(None), one(1)), warned(Code.CANNOT_CHECK, NIL), id="PREP-03 nil, no label"
        ),
        pytest.param(
            review(one(3, PREPARED), one(None)),
            refused(Code.CANNOT_CHECK, NIL_AND_LABELLED, 429),
            id="SI-13 labelled, and replicas go",
        ),
        pytest.param(
            review(one(None, PREPARED), one(1)),
            refused(Code.CANNOT_CHECK, NIL_AND_LABELLED, 429),
            id="SI-13 labelled, and replicas come",
        ),
        pytest.param(review(one(None, PREPARED), one(None)), NO_SCALE, id="PREP-03 nil to nil"),
        pytest.param(
            review(one(3), one(None, PREPARED)),
            warned(Code.CANNOT_CHECK, NIL),
            id="SI-14 only the old labels count",
        ),
    ],
)
def test_what_prepare_downscale_is_asked(asked: Review, expected: Verdict | Decrease) -> None:
    assert assess_prepare_change(asked) == expected


@REPEATABLE
@given(objects, objects)
def test_si13_no_labelled_decrease_of_a_set_passes_unchecked(
    old: Scalable | Unusable, new: Scalable | Unusable
) -> None:
    """What is allowed at once is certainly not a decrease of a labelled set."""
    change = assess_prepare_change(review(old, new))

    if isinstance(change, Verdict) and change.is_allowed:
        assert isinstance(old, Scalable)
        assert isinstance(new, Scalable)
        is_unclear = (old.replicas is None) is not (new.replicas is None)
        is_labelled = old.labels.get(PREPARE_DOWNSCALE) == "true"
        assert not is_labelled or not (is_decrease(old, new) or is_unclear)
