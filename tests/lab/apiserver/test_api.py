"""The simulated API server: roles, records, what is put back, and what is not modelled.

What it answers is compared with the real one by the contract.
"""

import asyncio
from datetime import timedelta

import pytest
from rollout_lab.apiserver.garbage import ACTOR
from rollout_lab.model.fields import child, number, text
from rollout_lab.model.history import Called, Commit
from rollout_lab.model.request import APPLY_PATCH, ApiRefusal, NotModelled, Verb
from rollout_lab.schemas.kinds import BUDGETS, NAMESPACES

from rollout_operator.kube.api import CONFIG_MAPS, PODS, STATEFULSETS, JsonObject, Resource
from tests.lab.server import (
    CLUSTER_WIDE,
    NOTHING,
    Fields,
    Server,
    config_map,
    metadata,
    owned_by,
    pod,
    uid,
    version,
    zone,
)
from tests.virtual_time import in_virtual_time


def test_a_role_may_forbid_a_verb_on_a_kind() -> None:
    server = Server()
    server.create(PODS, pod())
    server.api.forbidden |= {("op", "delete", "pods"), ("op", "create", "pods/eviction")}
    denied = server.send_request("delete", PODS, "p", Fields(user="op"))
    assert (denied.status, denied.reason) == (403, "Forbidden")
    assert denied.message == (
        'pods "p" is forbidden: User "op" cannot delete resource "pods" in API group "" in the '
        'namespace "default"'
    )
    evicted = server.send_request("create", PODS, "p", Fields(user="op", subresource="eviction"))
    assert 'cannot create resource "pods/eviction"' in evicted.message
    assert server.send_request("get", PODS, "p", Fields(user="op")).status == 200
    assert server.send_request("delete", PODS, "p").status == 200
    server.api.forbidden.add(("op", "list", "namespaces"))
    wide = server.send_request("list", NAMESPACES, fields=Fields(user="op"))
    assert wide.message.endswith('in API group "" at the cluster scope')
    server.api.forbidden.add(("person", "watch", "pods"))
    with pytest.raises(ApiRefusal, match="403 Forbidden"):
        server.watch(PODS)


@in_virtual_time
async def test_each_request_is_recorded_with_its_number_and_its_writes_after_it() -> None:
    server = Server()
    await asyncio.sleep(2)
    server.create(CONFIG_MAPS, config_map())
    server.send_request("get", CONFIG_MAPS, "d", Fields(user="other"))
    stream = server.watch(CONFIG_MAPS)
    stream.close()
    commit, created, missed, watched = server.history.records
    assert isinstance(commit, Commit)
    assert (commit.call, commit.actor, commit.at) == (1, "person", timedelta(seconds=2))
    assert isinstance(created, Called)
    assert (created.number, created.status, created.reason) == (1, 201, "")
    assert isinstance(missed, Called)
    assert (missed.number, missed.actor, missed.reason) == (2, "other", "NotFound")
    assert isinstance(watched, Called)
    assert (watched.number, watched.request.verb, watched.status) == (3, "watch", 200)


def test_what_is_put_back_keeps_what_it_was() -> None:
    server = Server()
    status: JsonObject = {"replicas": 3, "currentRevision": "a-1"}
    old = {**zone(), "status": status}
    old["metadata"] = {"name": "a", "namespace": "prod", "uid": "u", "resourceVersion": "99"}
    server.api.put(old, actor="person")
    found = server.api.get(STATEFULSETS, "prod", "a")
    assert found is not None
    assert (uid(found), version(found)) == ("u", "2")
    assert child(found, "status") == status
    assert text(server.api.get(NAMESPACES, "", "prod") or {}, "metadata", "name") == "prod"
    server.api.put({**found, "status": {}}, actor="person")
    first, second = server.commits()
    assert (first.actor, first.before, second.before) == ("person", None, found)
    with pytest.raises(ApiRefusal):
        server.api.put({"kind": "Odd", "apiVersion": "v1"}, actor="person")


@in_virtual_time
async def test_objects_that_are_put_back_in_any_order_find_their_owner() -> None:
    """A dump lists pods before the StatefulSets that own them."""
    server, copy = Server(), Server()
    owner = server.create(STATEFULSETS, zone())
    copy.api.put(server.create(PODS, pod(ownerReferences=[owned_by(owner)])), actor="person")
    copy.api.put(owner, actor="person")
    await asyncio.sleep(2)
    assert copy.has(PODS, "p")


@in_virtual_time
async def test_a_deletion_that_is_refused_to_the_collector_is_tried_again() -> None:
    server = Server()
    owner = server.create(STATEFULSETS, zone())
    server.create(PODS, pod(ownerReferences=[owned_by(owner)]))
    server.api.forbidden.add((ACTOR, "delete", "pods"))
    assert server.send_request("delete", STATEFULSETS, "a").is_ok
    await asyncio.sleep(10)
    refused = [one for one in server.calls() if one.actor == ACTOR and one.status == 403]
    assert 5 <= len(refused) <= 12
    server.api.forbidden.clear()
    await asyncio.sleep(2)
    assert text(server.fetch(PODS, "p"), "metadata", "deletionTimestamp")


def test_lists_are_in_the_order_of_keys_of_the_real_store() -> None:
    """`a-b/` comes before `a/`: a dash sorts before a slash."""
    server = Server()
    for namespace, name in (("b", "1"), ("a-b", "1"), ("a", "2"), ("a", "10")):
        body = {"apiVersion": "v1", "kind": "ConfigMap", **config_map(name, namespace=namespace)}
        server.api.put(body, actor="person")
    listed = server.api.list(CONFIG_MAPS, "")
    keys = [f"{metadata(one)['namespace']}/{metadata(one)['name']}" for one in listed]
    assert keys == ["a-b/1", "a/10", "a/2", "b/1"]


def eviction(name: str = "p", **options: object) -> Fields:
    body: JsonObject = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    if options:
        body["deleteOptions"] = options
    return Fields(body=body, subresource="eviction")


@pytest.mark.parametrize(
    ("verb", "resource", "name", "fields"),
    [
        ("create", CONFIG_MAPS, "p", NOTHING),
        ("update", CONFIG_MAPS, "", NOTHING),
        ("delete", CONFIG_MAPS, "", NOTHING),
        ("create", CONFIG_MAPS, "", Fields(namespace=CLUSTER_WIDE)),
        ("create", CONFIG_MAPS, "", NOTHING),
        ("create", CONFIG_MAPS, "", Fields(body=config_map(""))),
        ("create", CONFIG_MAPS, "", Fields(body={**config_map(), "kind": "Secret"})),
        ("create", CONFIG_MAPS, "", Fields(body=config_map(namespace="other"))),
        ("create", CONFIG_MAPS, "", Fields(body=config_map(), query={"dryRun": "Some"})),
        ("update", PODS, "p", Fields(body=pod(), query={"fieldValidation": "Strict"})),
        ("update", PODS, "p", Fields(body=pod("q"))),
        ("update", PODS, "p", Fields(body=pod(resourceVersion="x"))),
        ("patch", PODS, "p", Fields(body={}, query={"force": "true"})),
        ("patch", PODS, "p", Fields(body={"metadata": {"deletionTimestamp": "now"}})),
        ("patch", PODS, "p", Fields(body={}, content_type=APPLY_PATCH)),
        ("get", PODS, "p", Fields(subresource="log")),
        ("get", PODS, "p", Fields(subresource="eviction")),
        ("get", PODS, "p", Fields(query={"resourceVersion": "99"})),
        ("delete", STATEFULSETS, "p", Fields(subresource="scale")),
        ("delete", PODS, "p", Fields(body={"ignoreStoreReadErrorWithClusterBreakingPotential": 1})),
        ("delete", NAMESPACES, "default", NOTHING),
        ("list", PODS, "", Fields(query={"labelSelector": "a=b,"})),
        ("list", PODS, "", Fields(query={"labelSelector": "a>1"})),
        ("list", PODS, "", Fields(query={"fieldSelector": "spec.hostNetwork=true"})),
        ("list", PODS, "", Fields(query={"limit": "many"})),
        ("list", PODS, "", Fields(query={"resourceVersion": "x"})),
        ("list", PODS, "", Fields(query={"resourceVersionMatch": "Exact"})),
        ("list", PODS, "", Fields(query={"sendInitialEvents": "true"})),
        ("watch", PODS, "", NOTHING),
        ("create", PODS, "p", eviction("q")),
        ("patch", STATEFULSETS, "a", Fields(body={"metadata": {"uid": "x"}}, subresource="scale")),
    ],
)
def test_a_call_that_the_lab_never_sends_is_not_modelled(
    verb: Verb, resource: Resource, name: str, fields: Fields
) -> None:
    server = Server()
    server.create(PODS, pod())
    server.create(STATEFULSETS, zone())
    with pytest.raises(NotModelled):
        server.send_request(verb, resource, name, fields)


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersion": "x"},
        {"timeoutSeconds": "x"},
        {"resourceVersionMatch": "NotOlderThan"},
        {"sendInitialEvents": "true"},
        {"shardSelector": "x"},
    ],
)
def test_so_are_other_watches(query: dict[str, str]) -> None:
    with pytest.raises(NotModelled):
        Server().watch(CONFIG_MAPS, **query)


def _guard_pod(observed: int) -> Server:
    """Return a server with a ready pod below a native budget that allows one eviction."""
    server = Server()
    server.create(PODS, pod(labels={"app": "x"}))
    running: JsonObject = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    server.send_request("patch", PODS, "p", Fields(body={"status": running}, subresource="status"))
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    server.create(BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    counted = {"observedGeneration": observed, "disruptionsAllowed": 1}
    server.send_request(
        "patch", BUDGETS, "b", Fields(body={"status": counted}, subresource="status")
    )
    return server


def test_a_native_budget_is_used_up() -> None:
    server = _guard_pod(observed=1)

    server.send_request("create", PODS, "p", eviction())

    [budget] = server.api.list(BUDGETS, "")
    assert number(budget, "status", "disruptionsAllowed") == 0


def test_a_native_budget_that_is_not_observed_is_not_modelled() -> None:
    with pytest.raises(NotModelled, match="not observed"):
        _guard_pod(observed=0).send_request("create", PODS, "p", eviction())


def test_replicas_below_zero_are_refused() -> None:
    server = Server()
    server.create(STATEFULSETS, zone())
    body: JsonObject = {"spec": {"replicas": -1}}
    for subresource, kind in (("", "StatefulSet.apps"), ("scale", "Scale.autoscaling")):
        answer = server.send_request(
            "patch", STATEFULSETS, "a", Fields(body=body, subresource=subresource)
        )
        assert (answer.status, answer.reason) == (422, "Invalid")
        assert answer.message == (
            f'{kind} "a" is invalid: spec.replicas: Invalid value: -1: must be greater than or '
            "equal to 0"
        )
