"""Which writes a webhook is asked about: rules, scopes, namespaces and labels."""

import pytest

from rollout_operator.kube.api import MUTATING_WEBHOOKS, PODS, STATEFULSETS, JsonObject
from rollout_operator.lab.admission.rules import read_hooks
from rollout_operator.lab.model.request import NotModelled
from rollout_operator.lab.schemas.kinds import NAMESPACES, NODES, find_kind
from tests.lab.hook_world import World, attempt, hook, rule
from tests.lab.manifests import workload


def is_asked(webhook: JsonObject, **fields: object) -> bool:
    world = World()
    world.register(validating=[webhook])
    return world.admission.matches(attempt(**fields))


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({}, True),
        ({"operations": ["*"]}, True),
        ({"operations": ["CREATE", "DELETE"]}, False),
        ({"apiGroups": ["*"]}, True),
        ({"apiGroups": ["", "batch"]}, False),
        ({"apiVersions": ["*"]}, True),
        ({"apiVersions": ["v2"]}, False),
        ({"resources": ["*"]}, True),
        ({"resources": ["*/*"]}, True),
        ({"resources": ["pods", "statefulsets/*"]}, True),
        ({"resources": ["statefulsets/scale"]}, False),
        ({"resources": ["*/scale"]}, False),
        ({"scope": "Namespaced"}, True),
        ({"scope": "Cluster"}, False),
        ({"scope": "*"}, True),
    ],
)
def test_rules(fields: JsonObject, asked: bool) -> None:
    assert is_asked(hook("a", rules=[rule(**fields)])) is asked


@pytest.mark.parametrize(
    ("resources", "asked"),
    [
        (["statefulsets/scale"], True),
        (["statefulsets/*"], True),
        (["*/scale"], True),
        (["*/*"], True),
        (["statefulsets"], False),
        (["*"], False),
    ],
)
def test_a_subresource_is_named_by_itself(resources: list[str], asked: bool) -> None:
    webhook = hook("a", rules=[rule(resources=resources)])
    assert is_asked(webhook, subresource="scale") is asked


def test_any_of_several_rules_will_do() -> None:
    assert is_asked(hook("a", rules=[rule(apiGroups=["x"]), rule()]))


@pytest.mark.parametrize(
    ("labels", "asked"), [({"kubernetes.io/metadata.name": "default"}, True), ({}, False)]
)
def test_a_namespace_is_chosen_by_its_labels(labels: dict[str, str], asked: bool) -> None:
    here = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["default"]}
    webhook = hook("a", namespaceSelector={"matchExpressions": [here]})
    assert is_asked(webhook, namespace_labels=labels) is asked


def test_what_belongs_to_the_cluster_is_not_exempt_but_a_namespace_by_its_own_labels() -> None:
    anything = rule(apiGroups=["*"], resources=["*"])
    webhook = hook("a", rules=[anything], namespaceSelector={"matchLabels": {"x": "y"}})
    node: JsonObject = {"metadata": {"name": "n"}}
    assert is_asked(webhook, kind=find_kind(NODES), namespace="", old=node, new=node)
    for labels, asked in (({"x": "y"}, True), ({}, False)):
        namespace: JsonObject = {"metadata": {"name": "default", "labels": labels}}
        assert is_asked(webhook, kind=find_kind(NAMESPACES), new=namespace) is asked


@pytest.mark.parametrize(
    ("old", "new", "asked"),
    [("y", "n", True), ("n", "y", True), ("y", "y", True), ("n", "n", False)],
)
def test_an_object_is_chosen_by_its_labels_before_or_after(old: str, new: str, asked: bool) -> None:
    """SI-14: who takes the label away in the same request is still asked about."""
    before, after = workload(), workload()
    for obj, value in ((before, old), (after, new)):
        obj["metadata"] = {"name": "a", "labels": {"guard": value}}
    webhook = hook("a", objectSelector={"matchLabels": {"guard": "y"}})
    assert is_asked(webhook, old=before, new=after) is asked


def test_an_object_that_is_absent_matches_no_labels() -> None:
    webhook = hook(
        "a", rules=[rule(operations=["*"])], objectSelector={"matchLabels": {"guard": "y"}}
    )
    assert not is_asked(webhook, operation="DELETE", new=None)


def test_configurations_of_webhooks_are_never_reviewed() -> None:
    anything = hook("a", rules=[rule(operations=["*"], apiGroups=["*"], resources=["*"])])
    configurations = find_kind(MUTATING_WEBHOOKS)
    assert not is_asked(anything, kind=configurations, namespace="")


def test_match_conditions_are_not_modelled_where_they_would_count() -> None:
    conditions = [{"name": "x", "expression": "true"}]
    with pytest.raises(NotModelled, match="matchConditions"):
        is_asked(hook("a", matchConditions=conditions))
    assert not is_asked(hook("a", matchConditions=conditions), kind=find_kind(PODS))


def test_only_reviews_of_version_one_are_modelled() -> None:
    with pytest.raises(NotModelled, match="AdmissionReview v1"):
        is_asked(hook("a", admissionReviewVersions=["v1beta1"]))


def test_a_webhook_behind_a_url_is_called_there() -> None:
    url = "https://127.0.0.1:9443/x/y"
    configuration: JsonObject = {
        "metadata": {"name": "c"},
        "webhooks": [hook("a", clientConfig={"url": url, "caBundle": "QQ=="})],
    }
    (found,) = read_hooks([configuration])
    assert (found.address, found.path, found.service, found.ca_bundle) == (
        "https://127.0.0.1:9443",
        "/x/y",
        "127.0.0.1:9443",
        "QQ==",
    )
    assert found.key == "c/a.example.com/0"


def test_nothing_is_asked_where_nothing_is_registered() -> None:
    world = World()
    assert not world.admission.matches(attempt(kind=find_kind(STATEFULSETS)))
