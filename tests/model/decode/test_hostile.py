"""Whatever bytes say is read or refused by name, in bounded memory (FP-13, SEC-07, D-68)."""

import gc
import json
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.model.budget import Budget
from rollout_operator.model.decode.custom import (
    decode_budget,
    decode_policy,
    decode_watched_policy,
    parse_budget,
)
from rollout_operator.model.decode.installation import decode_validating_webhooks
from rollout_operator.model.decode.objects import (
    decode_field_writers,
    decode_pod,
    decode_pod_answer,
    decode_replica_writers,
    decode_statefulset,
    decode_version,
)
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.decode.wire import salvage
from rollout_operator.model.names import DecodeError, InvalidInput
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.model.policy import PolicyStatus, RefusedPolicy
from rollout_operator.model.scaling import Scalable, Unusable, decode_zone_map
from rollout_operator.releases.model.decode import decode_rollout, decode_schedule
from rollout_operator.releases.model.releases import RefusedRelease
from tests.examples import repeatable
from tests.model.budget_trees import budget_tree
from tests.model.decode.releases.trees import tree as release_tree
from tests.model.policy_trees import policy_tree
from tests.model.review_trees import review_tree, set_tree
from tests.model.webhook_trees import configuration_tree
from tests.model.wire_trees import as_json, pod_tree, with_metadata
from tests.model.wire_trees import set_tree as wire_set_tree

NOW: Final = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
REVIEW: Final = review_tree(object=set_tree(2))
REVIEW["request"]["object"]["spec"]["template"] = {"x": [1.5, None]}
Decode = Callable[[Any], object]
GOOD: Final[dict[Decode, Any]] = {
    decode_pod: pod_tree(),
    decode_statefulset: wire_set_tree(),
    decode_review: REVIEW,
    decode_validating_webhooks: configuration_tree(),
    partial(decode_schedule, "RolloutSchedule"): release_tree({"rules": [{}]}),
    decode_zone_map: {"metadata": {"resourceVersion": "7"}, "data": {"name": "x"}},
}
HAZARDS: Final[dict[str, Callable[[str], bytes]]] = {
    "nothing": lambda good: b"",
    "null": lambda good: b"null",
    "a list": lambda good: b"[]",
    "YAML": lambda good: b"kind: Pod",
    "cut short": lambda good: good.encode()[:-1],
    "more behind": lambda good: good.encode() + b"{}",
    "a BOM": lambda good: b"\xef\xbb\xbf" + good.encode(),
    "UTF-16": lambda good: good.encode("utf-16"),
    "a lone surrogate": lambda good: good.replace('"name": "', '"name": "\\ud800', 1).encode(),
    "a raw one": lambda good: good.replace('"name": "', '"name": "\ud800', 1).encode(
        "utf-8", "surrogatepass"
    ),
    "broken UTF-8": lambda good: good.replace('"name": "', '"name": "\xff', 1).encode("latin-1"),
    "NaN": lambda good: good[:-1].encode() + b',"x":NaN}',
    "Infinity": lambda good: good[:-1].encode() + b',"x":[1.5,Infinity]}',
    "lists without end": lambda good: b"[" * 10**5,
    "objects without end": lambda good: b'{"metadata":' * 10**5,
    "deep objects": lambda good: b'{"kind":' * 10**5 + b"1" + b"}" * 10**5,
    "an endless number": lambda good: b"9" * 5000,
    "a number of 100,000 digits": lambda good: b'{"metadata":' + b"9" * 100_000 + b"}",
    "garbage": lambda good: bytes(range(256)),
}


@pytest.mark.parametrize("hazard", HAZARDS)
def test_hostile_bytes_are_decode_errors_and_never_break_salvage(hazard: str) -> None:
    """FP-13, SEC-07: never another exception, whether they come as an item of a list or not."""
    bodies = {
        decode: HAZARDS[hazard](json.dumps(tree, ensure_ascii=False))
        for decode, tree in GOOD.items()
    }
    for decode, body in bodies.items():
        for form in (body, msgspec.Raw(body)) if decode is not decode_review else (body,):
            with pytest.raises(DecodeError) as caught:
                decode(form)
            assert f"{caught.value}".isprintable()
    for body in set(bodies.values()):
        for form in (body, msgspec.Raw(body)):
            lost = salvage("Pod", form, DecodeError("why"))
            assert lost.error == "why"
            lost.name.encode()
    if hazard not in ("a list", "YAML"):
        with pytest.raises(InvalidInput):
            parse_budget(HAZARDS[hazard]("{}"))
    broken = HAZARDS[hazard]('{"metadata": {"name": "x"}}')
    assert decode_field_writers(broken, ("spec", "ref")) == {}  # RELB-13
    assert decode_replica_writers(broken, but="us") == ()


@given(st.binary(max_size=80) | st.text(st.sampled_from('{}[]":timestamp0123456789.-e ')))
def test_no_bytes_are_any_other_error(said: bytes | str) -> None:
    """FP-13, SI-23, FP-25: and whatever pods say is an answer."""
    body = said if isinstance(said, bytes) else said.encode()
    word = decode_pod_answer("zone-a-4", 200, body, NOW)
    assert (word.since is None) is bool(word.problem)
    assert word.problem.isascii()
    assert word.problem.isprintable()
    assert len(word.problem) < 200
    for decode in GOOD:
        with pytest.raises(DecodeError):
            decode(body)


def trees(floats: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | st.integers() | floats | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=8,
    )


PATHS: Final = """
metadata metadata.labels metadata.ownerReferences metadata.deletionTimestamp status
status.conditions status.containerStatuses status.phase status.startTime spec spec.ordinals
spec.updateStrategy spec.podManagementPolicy
"""
BUDGET: Final = """
maxUnavailable maxUnavailablePercentage podNamePartitionRegex podNameRegexGroup
crossZoneEvictionDelay selector
"""
FINITE: Final = trees(st.floats(allow_nan=False, allow_infinity=False))


@repeatable(300)
@given(path=st.sampled_from(PATHS.split()), value=trees(st.floats()), is_pod=st.booleans())
def test_any_json_in_any_place_is_decoded_or_a_decode_error(
    path: str, value: object, is_pod: bool
) -> None:
    tree = pod_tree() if is_pod else wire_set_tree()
    *above, last = path.split(".")
    place = tree
    for step in above:
        place = place[step]
    place[last] = value
    raw = as_json(tree)
    try:
        decoded: Pod | StatefulSet | Unreadable = (decode_pod if is_pod else decode_statefulset)(
            raw
        )
    except DecodeError as error:
        decoded = salvage("Pod", raw, error)
    assert not isinstance(decoded, Unreadable) or decoded.error.isprintable()
    assert path == "metadata" or decoded.name == tree["metadata"].get("name", "")


@given(st.dictionaries(st.sampled_from(BUDGET.split()), FINITE) | FINITE)
def test_fp_40_whatever_is_written_into_a_budget_is_read_or_named(spec: Any) -> None:
    found = decode_budget(as_json({**budget_tree(), "spec": spec}))
    assert isinstance(found, Budget) or found.problem


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        pytest.param(b'"image": "x"', b'"image": NaN', id="NaN"),
        pytest.param(b'"image": "x"', b'"image": "\\ud800"', id="lone surrogate"),
        pytest.param(b'"phase": "Running"', b'"phase": "\xff"', id="broken UTF-8"),
        pytest.param(b'"phase": "Running"', b'"phase": {}', id="wrong type"),
    ],
)
def test_salvage_reads_metadata_whatever_else_is_broken(good: bytes, bad: bytes) -> None:
    tree = with_metadata(pod_tree(), labels={"rollout-group": "g", "team": "x"})
    raw = as_json(tree).replace(good, bad)
    with pytest.raises(DecodeError) as caught:
        decode_pod(raw)
    lost = salvage("Pod", raw, caught.value)
    assert (lost.kind, lost.namespace, lost.name) == ("Pod", "prod", "zone-a-0")
    assert (lost.uid, lost.resource_version, lost.owner_uid) == ("pod-uid", "42", "set-uid")
    assert lost.labels == {"rollout-group": "g", "team": "x"}
    assert lost.group == "g"
    assert lost.error == str(caught.value)


def test_salvage_reads_the_rest_where_metadata_itself_is_broken() -> None:
    tree = with_metadata(
        pod_tree(), uid=7, labels={"rollout-group": 5}, ownerReferences=["x", {"controller": True}]
    )
    lost = salvage("Pod", as_json(tree), DecodeError("x"))
    assert (lost.name, lost.uid, lost.labels, lost.owner_uid) == ("zone-a-0", "", {}, None)


@pytest.mark.parametrize("digits", [30, 5000])
def test_endless_numbers_are_unusable(digits: int) -> None:
    """SEC-07: more digits than Python converts."""
    body = json.dumps(REVIEW).replace('"replicas": 2', f'"replicas": {"9" * digits}')
    new = decode_review(body.encode()).new

    assert isinstance(new, Unusable)
    assert new.error.startswith("request.object.spec.replicas: ")
    assert len(new.error) < 200


def test_many_and_repeated_keys_are_read() -> None:
    """SEC-07: a hundred thousand keys; of keys with the same name the last wins, as in Go."""
    labels = {f"key-{number}": "x" for number in range(100_000)} | {"rollout-group": "store"}
    body = json.dumps(review_tree(object=set_tree(2, labels=labels)))
    new = decode_review(body.replace('"replicas": 2', '"replicas": 9, "replicas": 2').encode()).new

    assert isinstance(new, Scalable)
    assert (new.labels, new.replicas) == ({"rollout-group": "store"}, 2)


@pytest.mark.parametrize("place", ["fields", "entries"])
def test_a_mebibyte_of_nesting_names_no_manager_and_fails_nothing(place: str) -> None:
    nested = '{"f:a":' * 500_000 + "{}" + "}" * 500_000
    fields = f'{{"manager":"x","fieldsV1":{{"f:spec":{nested}}}}}'
    managed = f"[{fields}]" if place == "fields" else f"[{nested}]"
    body = f'{{"metadata":{{"managedFields":{managed}}}}}'
    assert decode_replica_writers(body.encode(), but="us") == ()


@pytest.mark.parametrize("field", ["azOrder", "statefulSetSelector", "rollingUpdate", "paused"])
def test_a_field_without_end_is_refused_unread(field: str) -> None:
    """MAZ-23: what any tenant may write costs neither time nor memory."""
    tree = policy_tree()
    tree["spec"][field] = ["x" * 50] * 20_000
    policy = decode_policy(msgspec.json.encode(tree))

    assert isinstance(policy, RefusedPolicy)
    [refusal] = policy.refusals
    assert refusal.code.value == "InvalidSpec"
    assert len(refusal.text) < 200


def test_a_selector_has_at_most_64_labels() -> None:
    """MAZ-04, RELB-02."""
    selector = {"matchLabels": {f"a{number}": "" for number in range(65)}}
    policy = decode_policy(msgspec.json.encode(policy_tree(statefulSetSelector=selector)))
    spec = {"releasesImagePolicy": {"name": "app"}, "healthCheckSelector": selector}
    rollout = decode_rollout(msgspec.json.encode(release_tree(spec)))

    assert isinstance(policy, RefusedPolicy)
    assert isinstance(rollout, RefusedRelease)
    for text in (policy.refusals[0].text, rollout.problem):
        assert text.endswith(".matchLabels: it has 65 items, at most 64")


def test_deep_json_does_not_end_the_process() -> None:
    tree = msgspec.json.encode({**policy_tree(), "status": {"zones": 0}})
    deep = tree.replace(b'"zones":0', b'"zones":' + b"[" * 100_000 + b"]" * 100_000)

    assert decode_watched_policy(deep).status == PolicyStatus()


def test_texts_that_repeat_are_kept_once() -> None:
    one, other = decode_pod(as_json(pod_tree())), decode_pod(as_json(pod_tree()))
    for name in ("namespace", "owner_uid", "revision", "phase"):
        assert getattr(one, name) is getattr(other, name)


def test_d51_a_pod_costs_at_most_4_kib() -> None:
    tree = pod_tree()
    tree["spec"]["env"] = [{"name": f"V{n}", "value": "x" * 40} for n in range(150)]
    raws = [as_json(with_metadata(tree, uid=f"u{n}", name=f"a-{n}")) for n in range(500)]
    assert len(raws[0]) > 9_000
    gc.collect()
    tracemalloc.start()
    decoded = [decode_pod(raw) for raw in raws]
    del raws
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / len(decoded) < 1_500


def test_d54_a_bookmark_is_read_for_its_version() -> None:
    raw = b'{"kind":"Pod","metadata":{"resourceVersion":"9","annotations":{}},"spec":{}}'
    assert decode_version("bookmark", raw) == "9"
    for broken in (b'{"metadata":{"resourceVersion":""}}', b"", b"[" * 20_000):
        with pytest.raises(DecodeError):
            decode_version("bookmark", broken)
