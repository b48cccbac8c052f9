"""Reviews of one object, and verdicts, for tests of the decisions on them."""

from collections.abc import Mapping
from typing import Final

from hypothesis import strategies as st

from rollout_operator.model.names import NO_DOWNSCALE, PREPARE_DOWNSCALE, Uid
from rollout_operator.model.objects import Decrease
from rollout_operator.model.outcome import Severity, Verdict
from rollout_operator.model.scaling import Review, Scalable, Unusable, Version

BROKEN: Final = Unusable("no kind")
KINDS: Final = {"scale": "Scale", "deployment": "Deployment", "replicaset": "ReplicaSet"}
SWITCHES: Final = {"no": NO_DOWNSCALE, "prepared": PREPARE_DOWNSCALE}


def one(
    replicas: int | None,
    labels: Mapping[str, str] | None = None,
    kind: str = "StatefulSet",
    annotations: Mapping[str, str] | None = None,
) -> Scalable:
    return Scalable(
        kind=kind,
        uid=Uid("uid-mock"),
        replicas=replicas,
        labels=labels or {},
        annotations=annotations or {},
    )


def review(
    old: Scalable | Unusable,
    new: Scalable | Unusable,
    *,
    resource: str = "statefulsets",
    dry_run: bool = False,
) -> Review:
    is_scale = isinstance(old, Scalable) and old.kind == "Scale"
    return Review(
        version=Version.V1,
        uid="review",
        operation="UPDATE",
        resource=resource,
        subresource="scale" if is_scale else "",
        namespace="default",
        name="mock",
        dry_run=dry_run,
        old=old,
        new=new,
    )


def read_review(text: str) -> Review:
    """Return a review such as `2 no -> 1; dry run` or `scale 2 -> scale 1`.

    `nil` is no number of replicas, `broken` what cannot be decoded, `no` and `prepared` are labels,
    `no=False` is one with another value, `@no` an annotation. A kind stands before its replicas.
    """
    change, *more = text.split("; ")
    old, new = map(_read_object, change.split(" -> "))
    resource = next((one for one in more if one != "dry run"), "statefulsets")
    return review(old, new, resource=resource, dry_run="dry run" in more)


def _read_object(text: str) -> Scalable | Unusable:
    if text == "broken":
        return BROKEN
    words = text.split()
    replicas = next(word for word in words if word == "nil" or word.isdigit())
    kind = next((KINDS[word] for word in words if word in KINDS), "StatefulSet")
    maps: dict[bool, dict[str, str]] = {False: {}, True: {}}
    for word in words:
        name, _, value = word.removeprefix("@").partition("=")
        if name in SWITCHES:
            maps[word.startswith("@")][SWITCHES[name]] = value or "true"
    return one(None if replicas == "nil" else int(replicas), maps[False], kind, maps[True])


def render_verdict(verdict: Verdict | Decrease) -> str:
    """Return what becomes of a review, in one line: `allow`, `warn`, `refuse` or `decrease`."""
    if isinstance(verdict, Decrease):
        return f"decrease {verdict.replicas_from} {verdict.replicas_to} of {verdict.resource}"
    reason, text = verdict.reason, verdict.reason.text
    if not verdict.is_allowed:
        assert (reason.severity, verdict.warnings) == (Severity.WARN, ())
        return f"refuse {reason.code} {verdict.code}: {text}"
    assert (text, verdict.code) == ("", 0)
    assert reason.severity is (Severity.WARN if verdict.warnings else Severity.DEBUG)
    return " ".join(["warn" if verdict.warnings else "allow", reason.code, *verdict.warnings])


counts = st.one_of(st.none(), st.integers(0, 4), st.just(2**31 - 1))
values = st.sampled_from(["true", "true", "false", "True", "TRUE", "1", "", " true"])
label_sets = st.dictionaries(
    st.sampled_from([NO_DOWNSCALE, PREPARE_DOWNSCALE, "no-downscale", "name"]), values, max_size=3
)
objects = st.one_of(
    st.builds(one, counts, label_sets, st.just("StatefulSet"), label_sets), st.just(BROKEN)
)


def is_decrease(old: Scalable, new: Scalable) -> bool:
    return old.replicas is not None and new.replicas is not None and new.replicas < old.replicas
