"""What a review requests, and what the labels say to it.

Decides whether a change is a decrease at all, what becomes of what cannot be understood, and the
whole of no-downscale. Where the labels of a Scale's parent come from is left to the hooks; which
others of the group moves, to `rule`.
"""

from collections.abc import Mapping
from typing import Final

from rollout_operator.model.downscale import Decrease, Target
from rollout_operator.model.names import NO_DOWNSCALE, PREPARE_DOWNSCALE
from rollout_operator.model.outcome import Code, Reason, Severity, Verdict
from rollout_operator.model.review import Review, Scalable, Unusable
from rollout_operator.model.units import is_brake_on, is_odd_brake, quote
from rollout_operator.planning.downscales.endpoint import NoTarget, plan_target

# The API server passes it on to the client: nothing is wrong, and it may succeed a little later.
RETRY: Final = 429

_STATEFULSETS: Final = "statefulsets"
_SCALE: Final = "Scale"


def allow(code: Code, text: str = "", *, warning: str = "") -> Verdict:
    """Return a verdict that lets the request pass, with at most one warning for its sender."""
    reason = Reason(code, text, Severity.WARN if warning else Severity.DEBUG)
    return Verdict(is_allowed=True, reason=reason, warnings=(warning,) if warning else ())


def refuse(code: Code, text: str, *, status: int = 0) -> Verdict:
    """Return a verdict that turns the request away; `text` is what its sender reads."""
    reason = Reason(code, text, Severity.WARN)
    return Verdict(is_allowed=False, reason=reason, code=status)


def refuse_decrease(decrease: Decrease, code: Code, why: str, *, status: int = 0) -> Verdict:
    """Return the refusal of a decrease, worded as in all releases."""
    return refuse(code, f"{decrease.text} is not allowed because {why}", status=status)


def assess_no_downscale_change(review: Review, *, fails_closed: bool) -> Verdict | Decrease:
    """Return the decrease that a review requests, or the verdict where labels do not matter.

    NODOWN-01 to 03. With `fails_closed` a change of a guarded kind that cannot be understood is
    refused (D-20).
    """
    for age, scalable in (("old", review.old), ("new", review.new)):
        if isinstance(scalable, Unusable):
            if fails_closed:
                text = f"can't decode {age} object, err: {scalable.error}"
                return refuse(Code.CANNOT_CHECK, text, status=RETRY)
            text = f"can't decode {age} object, allowing the change, err: {scalable.error}"
            return allow(Code.CANNOT_CHECK, warning=text)
    change = _compare(review)
    if fails_closed and not isinstance(change, Decrease) and _is_unclear(review):
        return _assess_unclear(review, change, NO_DOWNSCALE)
    return change


def assess_prepare_change(review: Review) -> Verdict | Decrease:
    """Return the decrease that a review requests, or the verdict where nothing has to be prepared.

    PREP-01 to 04. A StatefulSet that cannot be understood may carry the label: refused (D-21).
    """
    if review.dry_run:
        return allow(Code.DRY_RUN)
    is_ours = review.resource == _STATEFULSETS
    for age, scalable in (("old", review.old), ("new", review.new)):
        if not isinstance(scalable, Unusable):
            continue
        if is_ours:
            return refuse(
                Code.CANNOT_CHECK,
                f"can't decode {age} object, so that the label {PREPARE_DOWNSCALE} cannot be ruled"
                f" out, err: {scalable.error}",
            )
        text = f"can't decode {age} object, allowing the change, err: {scalable.error}"
        return allow(Code.CANNOT_CHECK, warning=text)
    change = _compare(review)
    if is_ours and not isinstance(change, Decrease) and _is_unclear(review):
        return _assess_unclear(review, change, PREPARE_DOWNSCALE)
    if isinstance(change, Decrease) and not is_ours:
        text = f"{review.resource} are not prepared, allowing the change"
        return allow(Code.CANNOT_CHECK, warning=text)
    return change


def assess_unprepared(review: Review) -> Verdict | None:
    """Return the verdict where the review alone says that nothing has to be prepared."""
    change = assess_prepare_change(review)
    if isinstance(change, Verdict):
        return change
    old = review.old
    if not isinstance(old, Scalable) or old.kind == _SCALE:
        return None  # a Scale has no labels
    verdict = plan_preparation(change, old.labels, old.annotations, old.service_name)
    return verdict if isinstance(verdict, Verdict) else None


def assess_no_downscale(
    decrease: Decrease, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Verdict:
    """Return the verdict on a decrease, given what the object or the Scale's parent carries.

    NODOWN-04, 06, 07.
    """
    if not is_labelled(labels, NO_DOWNSCALE):
        warning = explain_misplaced(labels, annotations, NO_DOWNSCALE)
        return allow(Code.LABEL_MISPLACED if warning else Code.NOT_GUARDED, warning=warning)
    why = f"it has the label '{NO_DOWNSCALE}=true'"
    if is_odd_brake(labels[NO_DOWNSCALE]):
        why += f" ({quote(labels[NO_DOWNSCALE])} is neither true nor false, and counts as true)"
    return refuse_decrease(decrease, Code.NO_DOWNSCALE, why)


def plan_preparation(
    decrease: Decrease,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    service_name: str,
) -> Verdict | Target:
    """Return where the pods of a set are to be called before they go, or why none is.

    PREP-05 to 08, given what the set carries.
    """
    if not is_labelled(labels, PREPARE_DOWNSCALE):
        warning = explain_misplaced(labels, annotations, PREPARE_DOWNSCALE)
        return allow(Code.LABEL_MISPLACED if warning else Code.NOT_GUARDED, warning=warning)
    if is_labelled(labels, NO_DOWNSCALE):
        # no-downscale is called after this hook: pods would be prepared for nothing.
        return assess_no_downscale(decrease, labels, annotations)
    target = plan_target(annotations, service_name)
    if isinstance(target, NoTarget):
        return refuse_decrease(decrease, Code.PREPARE_MISCONFIGURED, target.sentence)
    return target


def is_labelled(labels: Mapping[str, str], key: str) -> bool:
    """Return whether a label switches a review on."""
    return is_brake_on(labels.get(key))


def explain_misplaced(labels: Mapping[str, str], annotations: Mapping[str, str], key: str) -> str:
    """Return a warning about a switch that a person meant to set and that is off (W-49)."""
    if key not in labels and annotations.get(key, "false") != "false":
        return f"{key} is set as annotation, and only a label counts: the check is off"
    return ""


def _compare(review: Review) -> Verdict | Decrease:
    assert isinstance(review.old, Scalable), "checked by the caller"
    assert isinstance(review.new, Scalable), "checked by the caller"
    old, new = review.old.replicas, review.new.replicas
    if old is None and new is None:
        return allow(Code.NOT_A_DOWNSCALE)
    if old is None or new is None:
        return allow(Code.CANNOT_CHECK, warning="old/new replicas is nil, allowing the change")
    first_from, first_to = review.old.first_ordinal, review.new.first_ordinal
    # Pods go where the last ordinal falls, and where the first one rises, whatever the count.
    if not old or (first_to + new >= first_from + old and first_to <= first_from):
        return allow(Code.NOT_A_DOWNSCALE)
    return Decrease(
        resource=review.resource,
        namespace=review.namespace,
        name=review.name,
        replicas_from=old,
        replicas_to=new,
        first_from=first_from,
        first_to=first_to,
    )


def _is_unclear(review: Review) -> bool:
    counts = [
        scalable.replicas for scalable in (review.old, review.new) if isinstance(scalable, Scalable)
    ]
    return counts.count(None) == 1


def _assess_unclear(
    review: Review, otherwise: Verdict | Decrease, label: str
) -> Verdict | Decrease:
    """Refuse a labelled object whose replicas come or go: that may be a decrease (SI-13)."""
    assert isinstance(review.old, Scalable), "checked by the caller"
    if not is_labelled(review.old.labels, label):
        return otherwise
    text = (
        f"old/new replicas of {review.resource}/{review.name} in {review.namespace} is nil, and"
        f" it has the label '{label}=true'"
    )
    return refuse(Code.CANNOT_CHECK, text, status=RETRY)
