"""The simulated API server: paths, verbs, roles, records, and what is done without being asked."""

import asyncio
from datetime import timedelta

import pytest

from rollout_operator.kube.api import (
    CONFIG_MAPS,
    PODS,
    STATEFULSETS,
    JsonObject,
    Resource,
)
from rollout_operator.lab.model.fields import child, text
from rollout_operator.lab.model.history import Called, Commit, Reviewed
from rollout_operator.lab.model.request import ApiRefusal, NotModelled, Verb
from rollout_operator.lab.schemas.kinds import BUDGETS, NAMESPACES
from tests.lab.server import (
    CLUSTER_WIDE,
    NOTHING,
    Asked,
    Server,
    config_map,
    metadata,
    pod,
    uid,
    version,
    zone,
)
from tests.virtual_time import EPOCH, in_virtual_time


def test_a_role_may_forbid_a_verb_on_a_kind() -> None:
    server = Server()
    server.create(PODS, pod())
    server.api.forbidden |= {("op", "delete", "pods"), ("op", "create", "pods/eviction")}
    denied = server.ask("delete", PODS, "p", Asked(user="op"))
    assert (denied.status, denied.reason) == (403, "Forbidden")
    assert denied.message == (
        'pods "p" is forbidden: User "op" cannot delete resource "pods" in API group "" in the '
        'namespace "default"'
    )
    evicted = server.ask("create", PODS, "p", Asked(user="op", subresource="eviction"))
    assert 'cannot create resource "pods/eviction"' in evicted.message
    assert server.ask("get", PODS, "p", Asked(user="op")).status == 200
    assert server.ask("delete", PODS, "p").status == 200
    server.api.forbidden.add(("op", "list", "namespaces"))
    wide = server.ask("list", NAMESPACES, asked=Asked(user="op"))
    assert wide.message.endswith('in API group "" at the cluster scope')


def test_a_watch_may_be_forbidden_too() -> None:
    server = Server()
    server.api.forbidden.add(("someone", "watch", "pods"))
    with pytest.raises(ApiRefusal) as caught:
        server.watch(PODS)
    assert caught.value.status == 403


@in_virtual_time
async def test_each_request_is_recorded_with_its_number_and_its_writes_after_it() -> None:
    server = Server()
    await asyncio.sleep(2)
    server.create(CONFIG_MAPS, config_map())
    server.ask("get", CONFIG_MAPS, "d", Asked(user="other"))
    stream = server.watch(CONFIG_MAPS)
    stream.close()
    commit, created, missed, watched = server.history.records
    assert isinstance(commit, Commit)
    assert (commit.call, commit.actor, commit.at) == (1, "someone", timedelta(seconds=2))
    assert isinstance(created, Called)
    assert (created.number, created.status, created.reason) == (1, 201, "")
    assert isinstance(missed, Called)
    assert (missed.number, missed.actor, missed.reason) == (2, "other", "NotFound")
    assert isinstance(watched, Called)
    assert (watched.number, watched.request.verb, watched.status) == (3, "watch", 200)


@in_virtual_time
async def test_a_record_tells_when_a_request_came_and_when_it_was_answered() -> None:
    server = Server()

    async def decide(_: JsonObject) -> JsonObject:
        await asyncio.sleep(3)
        return {"allowed": False, "status": {"message": "no", "code": 403}, "warnings": ["careful"]}

    server.guard(CONFIG_MAPS, "CREATE", decide=decide)
    await asyncio.sleep(1)
    answer = await server.call("create", CONFIG_MAPS, asked=Asked(body=config_map()))
    assert (answer.status, answer.warnings) == (403, ("careful",))
    last = server.calls()[-1]
    assert (last.begun, last.at) == (timedelta(seconds=1), timedelta(seconds=4))
    (review,) = server.history.list_all(Reviewed)
    assert review.call == last.number
    assert not server.has(CONFIG_MAPS, "c")


def test_listeners_are_told_of_each_write() -> None:
    server = Server()
    told: list[tuple[int, bool]] = []
    server.api.on_commit(lambda one: told.append((one.revision, server.has(CONFIG_MAPS, "c"))))
    server.create(CONFIG_MAPS, config_map())
    server.ask("delete", CONFIG_MAPS, "c")
    server.ask("delete", CONFIG_MAPS, "c")
    assert told == [(2, True), (3, False)]


def test_the_clock_of_the_server_may_be_wrong() -> None:
    server = Server()
    assert server.api.now() == EPOCH
    server.api.clock_offset = timedelta(hours=-1)
    assert server.api.now() == EPOCH - timedelta(hours=1)
    made = server.create(CONFIG_MAPS, config_map())
    assert metadata(made)["creationTimestamp"] == "2026-01-02T02:04:05Z"


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


def eviction(name: str = "p", **options: object) -> Asked:
    body: JsonObject = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    if options:
        body["deleteOptions"] = options
    return Asked(body=body, subresource="eviction")


@in_virtual_time
async def test_webhooks_are_asked_about_an_eviction_before_anything_else() -> None:
    """W-53, W-09: also of a pod that does not exist; a dry run in the body is not told of."""
    server = Server()
    server.create(PODS, pod())
    asked: list[object] = []

    async def decide(request: JsonObject) -> JsonObject:
        seen = (request["operation"], request["subResource"], request["name"], request["dryRun"])
        asked.append((*seen, text(child(request, "object"), "metadata", "namespace")))
        return {"allowed": request["name"] != "p", "status": {"code": 429, "message": "later"}}

    server.guard(PODS, "CREATE", decide=decide)
    denied = await server.call("create", PODS, "p", eviction(dryRun=["All"]))
    assert denied.status == 429
    assert 'admission webhook "judge.example.com" denied the request: later' in denied.message
    missing = await server.call("create", PODS, "q", eviction("q"))
    assert (missing.status, missing.message) == (404, 'pods "q" not found')
    assert asked == [
        ("CREATE", "eviction", "p", False, "default"),
        ("CREATE", "eviction", "q", False, "default"),
    ]
    assert "deletionTimestamp" not in metadata(server.fetch(PODS, "p"))


def test_two_worlds_with_one_seed_have_the_same_history() -> None:
    def live() -> list[object]:
        server = Server(seed=7)
        server.create(STATEFULSETS, zone())
        for _ in range(3):
            server.create(PODS, {**pod(), "metadata": {"generateName": "p-"}})
        return list(server.history.records)

    assert live() == live()


@pytest.mark.parametrize(
    ("verb", "resource", "name", "asked"),
    [
        ("create", CONFIG_MAPS, "p", NOTHING),
        ("update", CONFIG_MAPS, "", NOTHING),
        ("delete", CONFIG_MAPS, "", NOTHING),
        ("create", CONFIG_MAPS, "", Asked(namespace=CLUSTER_WIDE)),
        ("create", CONFIG_MAPS, "", NOTHING),
        ("create", CONFIG_MAPS, "", Asked(body=config_map(""))),
        ("create", CONFIG_MAPS, "", Asked(body={**config_map(), "kind": "Secret"})),
        ("create", CONFIG_MAPS, "", Asked(body=config_map(namespace="other"))),
        ("create", CONFIG_MAPS, "", Asked(body=config_map(), query={"dryRun": "Some"})),
        ("update", PODS, "p", Asked(body=pod(), query={"fieldValidation": "Strict"})),
        ("update", PODS, "p", Asked(body=pod("q"))),
        ("update", PODS, "p", Asked(body=pod(resourceVersion="x"))),
        ("patch", PODS, "p", Asked(body={}, query={"force": "true"})),
        ("patch", PODS, "p", Asked(body={"metadata": {"deletionTimestamp": "now"}})),
        ("get", PODS, "p", Asked(subresource="log")),
        ("get", PODS, "p", Asked(subresource="eviction")),
        ("get", PODS, "p", Asked(query={"resourceVersion": "99"})),
        ("delete", STATEFULSETS, "p", Asked(subresource="scale")),
        ("delete", PODS, "p", Asked(body={"propagationPolicy": "Odd"})),
        ("delete", PODS, "p", Asked(body={"ignoreStoreReadErrorWithClusterBreakingPotential": 1})),
        ("delete", NAMESPACES, "default", NOTHING),
        ("list", PODS, "", Asked(query={"labelSelector": "a=b,"})),
        ("list", PODS, "", Asked(query={"labelSelector": "a>1"})),
        ("list", PODS, "", Asked(query={"fieldSelector": "spec.hostNetwork=true"})),
        ("list", PODS, "", Asked(query={"limit": "many"})),
        ("list", PODS, "", Asked(query={"resourceVersion": "x"})),
        ("list", PODS, "", Asked(query={"resourceVersionMatch": "Exact"})),
        ("list", PODS, "", Asked(query={"sendInitialEvents": "true"})),
        ("watch", PODS, "", NOTHING),
        ("create", PODS, "p", eviction("q")),
    ],
)
def test_what_nobody_in_the_lab_sends_is_not_modelled(
    verb: Verb, resource: Resource, name: str, asked: Asked
) -> None:
    server = Server()
    server.create(PODS, pod())
    with pytest.raises(NotModelled):
        server.ask(verb, resource, name, asked)


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


@pytest.mark.parametrize("allowed", [1, 0], ids=["allows one", "is not observed"])
def test_a_native_budget_only_refuses(allowed: int) -> None:
    server = Server()
    server.create(PODS, pod(labels={"app": "x"}))
    running: JsonObject = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    server.ask("patch", PODS, "p", Asked(body={"status": running}, subresource="status"))
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    server.create(BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    counted = {"observedGeneration": allowed, "disruptionsAllowed": allowed}
    server.ask("patch", BUDGETS, "b", Asked(body={"status": counted}, subresource="status"))
    with pytest.raises(NotModelled, match=r"native budget b|not observed"):
        server.ask("create", PODS, "p", eviction())


def test_replicas_below_zero_are_refused() -> None:
    server = Server()
    server.create(STATEFULSETS, zone())
    body: JsonObject = {"spec": {"replicas": -1}}
    for subresource, kind in (("", "StatefulSet.apps"), ("scale", "Scale.autoscaling")):
        answer = server.ask("patch", STATEFULSETS, "a", Asked(body=body, subresource=subresource))
        assert (answer.status, answer.reason) == (422, "Invalid")
        assert answer.message == (
            f'{kind} "a" is invalid: spec.replicas: Invalid value: -1: must be greater than or '
            "equal to 0"
        )


def test_a_scale_of_another_object_is_not_modelled() -> None:
    server = Server()
    server.create(STATEFULSETS, zone())
    body: JsonObject = {"metadata": {"uid": "other"}, "spec": {"replicas": 1}}
    with pytest.raises(NotModelled, match="a Scale of another object"):
        server.ask("patch", STATEFULSETS, "a", Asked(body=body, subresource="scale"))
