"""What prepare-downscale is asked: T-07, PREP-01 to 05, D-21, SI-13, SI-15."""

from typing import Final

import pytest
from hypothesis import given, settings

from rollout_operator.model.names import PREPARE_DOWNSCALE
from rollout_operator.model.outcome import Verdict
from rollout_operator.model.review import Review, Scalable, Unusable
from rollout_operator.planning.downscales.request import assess_prepare_change
from tests.planning.reviews import is_decrease, objects, read_review, render_verdict, review
from tests.planning.tables import read_table

REPEATABLE: Final = settings(derandomize=True, deadline=None, max_examples=300, database=None)
CHANGES = """
PREP-01 SEED-094 dry run
  3 prepared -> 1 prepared; dry run | allow dry_run
PREP-01 SI-15 nothing is looked at in a dry run
  broken -> broken; dry run | allow dry_run
T-07 1 2 to 5
  2 prepared -> 5 | allow not_a_downscale
T-07 1 SEED-089 5 to 5
  5 prepared -> 5 | allow not_a_downscale
PREP-04 labels come later
  3 -> 1 | decrease 3 1 of statefulsets
PREP-04 all pods are to go
  3 prepared -> 0 | decrease 3 0 of statefulsets
PREP-04 by scale
  scale 3 -> scale 1 | decrease 3 1 of statefulsets
D-21 SI-13 W-12 old cannot be decoded
  broken -> 1
  | refuse cannot_check 0: can't decode old object, so that the label grafana.com/prepare-downscale
    cannot be ruled out, err: no kind
D-21 SI-13 new cannot be decoded
  3 -> broken
  | refuse cannot_check 0: can't decode new object, so that the label grafana.com/prepare-downscale
    cannot be ruled out, err: no kind
PREP-02 another kind cannot be decoded
  broken -> 1; pods | warn cannot_check can't decode old object, allowing the change, err: no kind
PREP-04 another kind
  deployment 3 prepared -> 1; deployments
  | warn cannot_check deployments are not prepared, allowing the change
PREP-03 another kind goes up
  deployment 1 prepared -> 3; deployments | allow not_a_downscale
PREP-03 nil, no label
  nil -> 1 | warn cannot_check old/new replicas is nil, allowing the change
SI-13 labelled, and replicas go
  3 prepared -> nil
  | refuse cannot_check 429: old/new replicas of statefulsets/mock in default is nil, and it has the
    label 'grafana.com/prepare-downscale=true'
SI-13 labelled, and replicas come
  nil prepared -> 1
  | refuse cannot_check 429: old/new replicas of statefulsets/mock in default is nil, and it has the
    label 'grafana.com/prepare-downscale=true'
PREP-03 nil to nil
  nil prepared -> nil | allow not_a_downscale
SI-14 only the old labels count
  3 -> nil prepared | warn cannot_check old/new replicas is nil, allowing the change
"""


@pytest.mark.parametrize(("asked", "expected"), read_table(CHANGES, read_review))
def test_what_prepare_downscale_is_asked(asked: Review, expected: list[str]) -> None:
    assert [render_verdict(assess_prepare_change(asked))] == expected


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
