"""The simulated API server: paths, verbs, roles, records, and what is done without being asked."""

import asyncio
from datetime import timedelta

import pytest

from rollout_operator.kube.api import (
    PODS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    JsonObject,
    Resource,
)
from rollout_operator.lab.model.fields import child, children, text
from rollout_operator.lab.model.history import Called, Commit, Reviewed
from rollout_operator.lab.model.request import ApiRefusal, ApiRequest, NotModelled, Verb
from rollout_operator.lab.schemas.kinds import BUDGETS, CONFIG_MAPS, NAMESPACES
from tests.lab.server import (
    CLUSTER_WIDE,
    NAMESPACE,
    NOTHING,
    Asked,
    Server,
    config_map,
    hook_on,
    metadata,
    pod,
    uid,
    version,
    zone,
)
from tests.virtual_time import EPOCH, in_virtual_time

NO_RESOURCE = "the server could not find the requested resource"
NOT_FOUND = 'configmaps "x" not found'
UNKNOWN_FORMAT = (
    "the body of the request was in an unknown format - accepted media types include: "
    "application/json, application/yaml, application/vnd.kubernetes.protobuf"
)
NO_METHOD = "the server does not allow this method on the requested resource"


@pytest.mark.parametrize(
    ("verb", "resource", "name", "asked", "expected"),
    [
        pytest.param(
            "get", Resource("", "v1", "nothings", "Nothing"), "x", NOTHING, (404, NO_RESOURCE),
            id="kind",
        ),
        pytest.param(
            "get", Resource("apps", "v9", "statefulsets", "StatefulSet"), "x", NOTHING,
            (404, NO_RESOURCE), id="version",
        ),
        pytest.param(
            "get", CONFIG_MAPS, "x", Asked(subresource="status"), (404, NO_RESOURCE), id="no status"
        ),
        pytest.param(
            "get", CONFIG_MAPS, "x", Asked(namespace=CLUSTER_WIDE), (404, NO_RESOURCE),
            id="no namespace",
        ),
        pytest.param("create", CONFIG_MAPS, "x", NOTHING, (405, NO_METHOD), id="post to an object"),
        pytest.param("update", CONFIG_MAPS, "", NOTHING, (405, NO_METHOD), id="put to all objects"),
        pytest.param("list", CONFIG_MAPS, "x", NOTHING, (405, NO_METHOD), id="list of an object"),
        pytest.param(
            "create", CONFIG_MAPS, "", Asked(namespace=CLUSTER_WIDE), (405, NO_METHOD),
            id="post to all namespaces",
        ),
        pytest.param(
            "delete", STATEFULSETS, "x", Asked(subresource="scale"), (405, NO_METHOD),
            id="delete of a scale",
        ),
        pytest.param(
            "get", PODS, "x", Asked(subresource="eviction"), (405, NO_METHOD), id="get of eviction"
        ),
        pytest.param("get", CONFIG_MAPS, "x", NOTHING, (404, NOT_FOUND), id="no object"),
        pytest.param(
            "get", STATEFULSETS, "x", Asked(subresource="scale"),
            (404, 'statefulsets.apps "x" not found'), id="scale of none",
        ),
        pytest.param(
            "create", CONFIG_MAPS, "", NOTHING, (415, UNKNOWN_FORMAT), id="no body"
        ),
    ],
)  # fmt: skip
def test_paths_that_lead_nowhere(
    verb: Verb, resource: Resource, name: str, asked: Asked, expected: tuple[int, str]
) -> None:
    server = Server()
    answer = server.ask(verb, resource, name, asked)
    assert (answer.status, answer.message) == expected
    assert [(one.status, one.message) for one in server.calls()] == [expected]


def test_a_group_that_nobody_serves_is_no_page() -> None:
    answer = Server().ask("get", Resource("x.io", "v1", "things", "Thing"), "x")
    assert (answer.status, answer.body) == (404, {"text": "404 page not found\n"})


@pytest.mark.parametrize(
    ("verb", "asked", "part"),
    [
        pytest.param("patch", Asked(query={"force": "true"}), "force", id="parameter"),
        pytest.param("get", Asked(subresource="log"), "pods/log", id="subresource"),
        pytest.param("update", Asked(query={"fieldValidation": "Strict"}), "Strict", id="strict"),
        pytest.param(
            "patch", Asked(content_type="application/apply-patch+yaml"), "apply", id="ssa"
        ),
    ],
)
def test_what_is_not_modelled_is_said_loudly(verb: Verb, asked: Asked, part: str) -> None:
    server = Server()
    server.create(PODS, pod())
    with pytest.raises(NotModelled, match=part):
        server.ask(verb, PODS, "p", asked)


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ({"dryRun": "Some"}, 'dryRun: Unsupported value: ["Some"]: supported values: "All"'),
        ({"fieldValidation": "Odd"}, 'fieldValidation: Unsupported value: "Odd"'),
    ],
)
def test_options_that_no_server_knows_are_refused(query: dict[str, str], part: str) -> None:
    answer = Server().ask("create", CONFIG_MAPS, asked=Asked(body=config_map(), query=query))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert part in answer.message


def test_a_get_may_name_the_least_version_it_wants() -> None:
    server = Server()
    made = server.create(CONFIG_MAPS, config_map())
    for asked in ("", "0", "1", "2"):
        answer = server.ask("get", CONFIG_MAPS, "c", Asked(query={"resourceVersion": asked}))
        assert answer.body is made
    early = server.ask("get", CONFIG_MAPS, "c", Asked(query={"resourceVersion": "3"}))
    assert (early.status, early.reason) == (504, "Timeout")


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


@in_virtual_time
async def test_a_webhook_that_nobody_answers_fails_as_it_says() -> None:
    server = Server()
    server.create(VALIDATING_WEBHOOKS, hook_on(CONFIG_MAPS, "CREATE"))
    answer = await server.call("create", CONFIG_MAPS, asked=Asked(body=config_map()))
    assert (answer.status, answer.reason) == (500, "InternalError")
    assert 'failed calling webhook "judge.example.com"' in answer.message


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


def test_readers_get_what_the_store_holds() -> None:
    server = Server()
    one = server.create(CONFIG_MAPS, config_map("b"))
    two = server.create(CONFIG_MAPS, config_map("a"))
    assert list(server.api.list(CONFIG_MAPS, NAMESPACE)) == [two, one]
    assert server.api.list(CONFIG_MAPS, NAMESPACE)[0] is two
    assert server.api.get(CONFIG_MAPS, NAMESPACE, "b") is one
    assert server.api.get(CONFIG_MAPS, NAMESPACE, "z") is None


def test_a_call_that_is_a_watch_is_a_mistake_of_the_caller() -> None:
    server = Server()
    with pytest.raises(NotModelled, match="open_watch"):
        server.api.call_now(ApiRequest(verb="watch", resource=PODS, namespace=NAMESPACE))


def eviction(name: str = "p", **options: object) -> Asked:
    body: JsonObject = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    if options:
        body["deleteOptions"] = options
    return Asked(body=body, subresource="eviction")


def test_an_eviction_deletes_a_pod_where_no_budget_says_no() -> None:
    server = Server()
    server.create(PODS, pod())
    answer = server.ask("create", PODS, "p", eviction())
    assert (answer.status, answer.body["status"]) == (201, "Success")
    assert metadata(server.fetch(PODS, "p"))["deletionGracePeriodSeconds"] == 30


def test_an_eviction_that_a_budget_refuses_leaves_the_pod() -> None:
    server = Server()
    server.create(PODS, pod(labels={"app": "x"}))
    running = Asked(body={"status": {"phase": "Running"}}, subresource="status")
    assert server.ask("patch", PODS, "p", running).is_ok
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "x"}}}
    server.create(BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    seen = Asked(body={"status": {"observedGeneration": 1}}, subresource="status")
    assert server.ask("patch", BUDGETS, "b", seen).is_ok
    answer = server.ask("create", PODS, "p", eviction())
    assert (answer.status, answer.reason) == (429, "TooManyRequests")
    (cause,) = children(answer.body, "details", "causes")
    assert cause["reason"] == "DisruptionBudget"
    assert "deletionTimestamp" not in metadata(server.fetch(PODS, "p"))


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
