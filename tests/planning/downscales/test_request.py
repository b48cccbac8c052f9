"""What a review requests, and no-downscale: T-06, NODOWN-01 to 08, PREP-01 to 05, SI-13 to 15."""

from collections.abc import Mapping
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout_operator.model.names import NO_DOWNSCALE, PREPARE_DOWNSCALE, PREPARE_PATH, PREPARE_PORT
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.scaling import Review, Scalable, Unusable
from rollout_operator.planning.requests import (
    assess_no_downscale,
    assess_no_downscale_change,
    assess_prepare_change,
    assess_unprepared,
    explain_misplaced,
)
from tests.examples import repeatable
from tests.planning.reviews import (
    BROKEN,
    NIL,
    NO_SCALE,
    allowed,
    decrease,
    is_decrease,
    label_sets,
    objects,
    one,
    read_review,
    refused,
    render_verdict,
    review,
    warned,
)
from tests.planning.tables import read_table

REPEATABLE: Final = repeatable(300)
NO: Final = {NO_DOWNSCALE: "true"}
PREPARED: Final = {PREPARE_DOWNSCALE: "true"}
DENIED: Final = (
    "downscale of {0}/mock in default from 2 to 1 replicas is not allowed because it has the label"
    " 'grafana.com/no-downscale=true'"
)


def answer(
    requested: Review, parent: Mapping[str, str] | None = None, *, fails_closed: bool = False
) -> Verdict:
    """Return the whole answer of no-downscale; `parent` are the labels of a Scale's object."""
    change = assess_no_downscale_change(requested, fails_closed=fails_closed)
    if isinstance(change, Verdict):
        return change
    assert isinstance(requested.old, Scalable)
    if requested.old.kind == "Scale":
        return assess_no_downscale(change, parent or {}, {})
    return assess_no_downscale(change, requested.old.labels, requested.old.annotations)


ANSWERS = """
T-06 SEED-084 2 to 1, no label
  2 -> 1 | allow not_guarded
T-06 SEED-082 2 to 1, labelled
  2 no -> 1 no | denied statefulsets
SEED-082 a Deployment
  deployment 2 no -> deployment 1 no; deployments | denied deployments
SEED-082 a ReplicaSet
  replicaset 2 no -> replicaset 1 no; replicasets | denied replicasets
T-06 NODOWN-08 dry run
  2 no -> 1 no; dry run | denied statefulsets
T-06 2 to 3
  2 no -> 3 no | allow not_a_downscale
NODOWN-03 2 to 2
  2 no -> 2 no | allow not_a_downscale
NODOWN-04 SI-14 the label goes in the same request
  2 no -> 1 | denied statefulsets
NODOWN-04 the label comes in the request
  2 -> 1 no | allow not_guarded
T-06 SEED-083 by scale, of a labelled object
  scale 2 -> scale 1 | denied statefulsets
T-06 by scale, dry run, of a labelled object
  scale 2 -> scale 1; dry run | denied statefulsets
T-06 SEED-088 nil to 1
  nil no -> 1 no | warn cannot_check old/new replicas is nil, allowing the change
T-06 NODOWN-02 2 to nil
  2 no -> nil no | warn cannot_check old/new replicas is nil, allowing the change
T-06 nil to nil
  nil no -> nil no | allow not_a_downscale
T-06 SEED-087 old cannot be decoded
  broken -> 1 | warn cannot_check can't decode old object, allowing the change, err: no kind
NODOWN-01 new cannot be decoded
  2 no -> broken | warn cannot_check can't decode new object, allowing the change, err: no kind
NODOWN-01 old is judged first
  broken -> broken | warn cannot_check can't decode old object, allowing the change, err: no kind
D-89 NODOWN-06 another value counts as true
  2 no=yes -> 1
  | refuse no_downscale 0: downscale of statefulsets/mock in default from 2 to 1 replicas is not
    allowed because it has the label 'grafana.com/no-downscale=true' ("yes" is neither true nor
    false, and counts as true)
D-89 but a no in whatever case
  2 no=Off -> 1 | allow not_guarded
NODOWN-06 switched off
  2 no=false -> 1 | allow not_guarded
W-49 an annotation
  2 @no -> 1
  | warn label_misplaced grafana.com/no-downscale is set as annotation, and only a label counts: the
    check is off
"""


@pytest.mark.parametrize(("requested", "expected"), read_table(ANSWERS, read_review))
def test_no_downscale(requested: Review, expected: list[str]) -> None:
    (line,) = expected
    if line.startswith("denied "):
        line = f"refuse no_downscale 0: {DENIED.format(line.removeprefix('denied '))}"
    assert render_verdict(answer(requested, NO)) == line


def test_t06_a_scale_of_an_object_without_the_label_is_free() -> None:
    assert answer(read_review("scale 2 -> scale 1"), {}) == allowed(Code.NOT_GUARDED)


@pytest.mark.parametrize(
    ("requested", "text"),
    [
        (review(BROKEN, one(1)), "can't decode old object, err: no kind"),
        (review(one(2), BROKEN), "can't decode new object, err: no kind"),
    ],
)
def test_d20_failing_closed_refuses_what_cannot_be_understood(requested: Review, text: str) -> None:
    """A retryable refusal, as the decision has it."""
    assert answer(requested, fails_closed=True) == refused(Code.CANNOT_CHECK, text, status=429)


@pytest.mark.parametrize("counts", [(3, None), (None, 3)])
@pytest.mark.parametrize("resource", ["statefulsets", "deployments"])
def test_d20_failing_closed_refuses_what_may_be_a_downscale(
    counts: tuple[int | None, int | None], resource: str
) -> None:
    """SI-13: replicas come or go on a labelled object; the label of before decides."""
    text = (
        f"old/new replicas of {resource}/mock in default is nil, and it has the label"
        " 'grafana.com/no-downscale=true'"
    )
    old, new = counts
    requested = review(one(old, NO), one(new), resource=resource)
    assert answer(requested, fails_closed=True) == refused(Code.CANNOT_CHECK, text, status=429)
    free = review(one(old, PREPARED), one(new, NO), resource=resource)
    assert answer(free, fails_closed=True) == warned(Code.CANNOT_CHECK, NIL)


@pytest.mark.parametrize("counts", [(2, 3), (2, 2), (None, None)])
def test_d20_failing_closed_refuses_nothing_that_is_understood(
    counts: tuple[int | None, int | None],
) -> None:
    requested = review(one(counts[0], NO), one(counts[1], NO))
    assert answer(requested, fails_closed=True) == NO_SCALE


@REPEATABLE
@given(objects, objects, st.booleans(), st.booleans())
def test_si14_an_oracle_agrees_on_what_no_downscale_refuses(
    old: Scalable | Unusable, new: Scalable | Unusable, dry_run: bool, fails_closed: bool
) -> None:
    is_refused = fails_closed
    if isinstance(old, Scalable) and isinstance(new, Scalable):
        is_unclear = fails_closed and (old.replicas is None) is not (new.replicas is None)
        label = old.labels.get(NO_DOWNSCALE, "")
        is_labelled = label.strip().lower() not in {"", "false", "no", "off", "0"}
        is_refused = is_labelled and (is_unclear or is_decrease(old, new))

    requested = review(old, new, dry_run=dry_run)
    verdict = answer(requested, fails_closed=fails_closed)
    assert verdict.is_allowed is not is_refused
    assert verdict.annotations == {}
    assert not (verdict.warnings and is_refused)
    assert bool(verdict.reason.text) == is_refused


@REPEATABLE
@given(st.integers(0, 9), st.integers(0, 9), label_sets)
def test_seed083_a_scale_is_judged_as_its_object_would_be(
    before: int, after: int, labels: dict[str, str]
) -> None:
    by_scale = review(one(before, kind="Scale"), one(after, kind="Scale"))
    whole = review(one(before, labels), one(after))

    assert answer(by_scale, labels) == answer(whole)


def test_all_messages_begin_alike() -> None:
    """The prefix of section 10."""
    assert decrease(5, 3).text == ("downscale of statefulsets/mock in default from 5 to 3 replicas")


@pytest.mark.parametrize(
    ("labels", "annotations", "warning"),
    [
        ({}, {}, ""),
        (PREPARED, {PREPARE_DOWNSCALE: "x"}, ""),
        ({}, {PREPARE_DOWNSCALE: "false"}, ""),
        ({PREPARE_DOWNSCALE: "false"}, PREPARED, ""),
        (NO, NO, ""),
        (
            {},
            {PREPARE_DOWNSCALE: ""},
            "grafana.com/prepare-downscale is set as annotation, and only a label counts: the check"
            " is off",
        ),
    ],
)
def test_w49_a_switch_in_the_wrong_place_is_reported(
    labels: Mapping[str, str], annotations: Mapping[str, str], warning: str
) -> None:
    """SEED-090: the sender of the request learns that nothing guards the object."""
    assert explain_misplaced(labels, annotations, PREPARE_DOWNSCALE) == warning


@REPEATABLE
@given(*[st.integers(0, 6)] * 4)
def test_si14_ordinals_that_go_are_a_downscale_whatever_the_count(
    first: int, replicas: int, next_first: int, next_replicas: int
) -> None:
    """SI-14, FP-29: the removed ordinals are those of the old range that the new one leaves out."""
    old = replace(one(replicas, NO), first_ordinal=first)
    new = replace(one(next_replicas, NO), first_ordinal=next_first)
    kept = range(next_first, next_first + next_replicas)
    is_removed = any(ordinal not in kept for ordinal in range(first, first + replicas))

    verdict = answer(review(old, new))

    assert verdict.is_allowed is not is_removed
    if is_removed and next_replicas >= replicas:
        assert verdict.reason.text == (
            f"change of spec.ordinals.start of statefulsets/mock in default from {first} to"
            f" {next_first}, which removes pods, is not allowed because it has the label"
            " 'grafana.com/no-downscale=true'"
        )


# What prepare-downscale reviews: T-07, PREP-01 to 05, D-21, SI-13, SI-15

CHANGES = """
PREP-01 SEED-094 dry run
  3 prepared -> 1 prepared; dry run | allow dry_run
PREP-01 SI-15 nothing is read in a dry run
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


@pytest.mark.parametrize(("requested", "expected"), read_table(CHANGES, read_review))
def test_what_prepare_downscale_reviews(requested: Review, expected: list[str]) -> None:
    assert [render_verdict(assess_prepare_change(requested))] == expected


@REPEATABLE
@given(objects, objects)
def test_si13_no_labelled_decrease_of_a_set_passes_unchecked(
    old: Scalable | Unusable, new: Scalable | Unusable
) -> None:
    """What is allowed at once is certainly not a decrease of a labelled set.

    DEP-92: nor is what a replica that does not lead allows by the review alone.
    """
    requested = review(old, new)
    for change in (assess_prepare_change(requested), assess_unprepared(requested)):
        if not isinstance(change, Verdict) or not change.is_allowed:
            continue
        assert isinstance(old, Scalable)
        assert isinstance(new, Scalable)
        is_unclear = (old.replicas is None) is not (new.replicas is None)
        is_labelled = old.labels.get(PREPARE_DOWNSCALE) == "true"
        assert not is_labelled or not (is_decrease(old, new) or is_unclear)


ALONE = """
an upscale
  3 prepared -> 4 | allow not_a_downscale
a dry run
  3 prepared -> 1; dry run | allow dry_run
no label
  3 -> 1 | allow not_guarded
"""


@pytest.mark.parametrize(("requested", "expected"), read_table(ALONE, read_review))
def test_dep92_what_a_review_alone_decides(requested: Review, expected: list[str]) -> None:
    """DEP-92: any replica answers it, also while none leads."""
    verdict = assess_unprepared(requested)
    assert verdict is not None
    assert [render_verdict(verdict)] == expected


def test_dep92_what_only_the_replica_that_leads_decides() -> None:
    """DEP-92: pods have to be prepared, or may have to: a Scale does not say."""
    target = {PREPARE_PATH: "prepare", PREPARE_PORT: "80"}
    old = replace(one(3, PREPARED, annotations=target), service_name="mock")
    assert assess_unprepared(review(old, one(1))) is None
    assert assess_unprepared(read_review("scale 3 -> scale 1")) is None
