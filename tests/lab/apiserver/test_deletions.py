"""Deletions: at once, gracefully, shorter, held by finalizers, and only of what was meant."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject
from rollout_operator.lab.model.fields import moment_of, number, text
from rollout_operator.lab.model.request import ApiAnswer, NotModelled
from rollout_operator.lab.schemas.kinds import CONFIG_MAPS, NAMESPACES
from tests.lab.server import (
    Asked,
    Server,
    config_map,
    drained,
    metadata,
    pod,
    uid,
    version,
    zone,
)
from tests.virtual_time import EPOCH, in_virtual_time

GRACE = "deletionGracePeriodSeconds"


def delete(server: Server, name: str = "p", **options: object) -> ApiAnswer:
    return server.ask("delete", PODS, name, Asked(body=options or None))


def deadline(obj: JsonObject) -> timedelta:
    return moment_of(text(obj, "metadata", "deletionTimestamp")) - EPOCH


def with_phase(server: Server, phase: str) -> None:
    asked = Asked(body={"status": {"phase": phase}}, subresource="status")
    assert server.ask("patch", PODS, "p", asked).is_ok


def test_most_objects_go_at_once_and_a_status_says_which() -> None:
    server = Server()
    made = server.create(STATEFULSETS, zone())
    answer = server.ask("delete", STATEFULSETS, "a")
    assert answer.status == 200
    assert answer.body["status"] == "Success"
    details = {"name": "a", "group": "apps", "kind": "statefulsets", "uid": uid(made)}
    assert answer.body["details"] == details
    assert not server.has(STATEFULSETS, "a")
    gone = server.ask("delete", STATEFULSETS, "a")
    assert (gone.status, gone.message) == (404, 'statefulsets.apps "a" not found')


@in_virtual_time
async def test_a_running_pod_is_told_to_go_and_stays_until_its_kubelet_ends_it() -> None:
    server = Server()
    server.create(PODS, pod())
    stream = server.watch(PODS, resourceVersion=str(server.api.revision))
    answer = delete(server)
    assert (answer.status, answer.body["kind"]) == (200, "Pod")
    assert metadata(answer.body)[GRACE] == 30
    assert deadline(answer.body) == timedelta(seconds=30)
    assert number(answer.body, "metadata", "generation") == 2
    assert server.fetch(PODS, "p") is answer.body
    end = delete(server, gracePeriodSeconds=0, preconditions={"uid": uid(answer.body)})
    assert end.status == 200
    assert not server.has(PODS, "p")
    told, shortened, gone = drained(stream)
    assert [told.type, shortened.type, gone.type] == ["MODIFIED", "MODIFIED", "DELETED"]
    assert metadata(shortened.object)[GRACE] == 0
    assert version(gone.object) == version(end.body) == str(server.api.revision)
    stream.close()


@pytest.mark.parametrize(
    ("node", "phase", "expected"),
    [
        pytest.param("", "", None, id="a pod without a node goes at once"),
        pytest.param("n", "Failed", None, id="a failed pod goes at once"),
        pytest.param("n", "Succeeded", None, id="a pod that has ended goes at once"),
        pytest.param("n", "Running", 30, id="a running pod gets its grace"),
        pytest.param("n", "Pending", 30, id="a pod that has not begun on its node as well"),
    ],
)
def test_who_gets_grace(node: str, phase: str, expected: int | None) -> None:
    server = Server()
    server.create(PODS, pod(node=node))
    if phase:
        with_phase(server, phase)
    answer = delete(server)
    assert answer.status == 200
    assert server.has(PODS, "p") is (expected is not None)
    if expected is not None:
        assert metadata(answer.body)[GRACE] == expected
    else:
        # It was marked first: two writes, as the real server does it.
        marked, gone = server.commits()[-2:]
        assert metadata(marked.after or {})[GRACE] == 0
        assert gone.after is None


@pytest.mark.parametrize(("asked", "given"), [(5, 5), (-3, 1), (None, 30)])
def test_the_grace_that_is_asked_for_counts(asked: int | None, given: int) -> None:
    server = Server()
    server.create(PODS, pod())
    options: dict[str, Any] = {} if asked is None else {"gracePeriodSeconds": asked}
    assert metadata(delete(server, **options).body)[GRACE] == given


@in_virtual_time
async def test_a_second_deletion_may_only_shorten_the_grace() -> None:
    server = Server()
    server.create(PODS, pod())
    first = delete(server).body
    await asyncio.sleep(4)
    for again in (
        delete(server),
        delete(server, gracePeriodSeconds=30),
        delete(server, gracePeriodSeconds=60),
    ):
        assert (again.status, again.body) == (200, first)
    shorter = delete(server, gracePeriodSeconds=10).body
    assert metadata(shorter)[GRACE] == 10
    assert deadline(shorter) == timedelta(seconds=10)
    assert number(shorter, "metadata", "generation") == 2
    over = delete(server, gracePeriodSeconds=2).body
    # Its two seconds are over already: the least grace there is, from now.
    assert metadata(over)[GRACE] == 1
    assert deadline(over) == timedelta(seconds=4)


def test_preconditions_that_do_not_hold_delete_nothing() -> None:
    server = Server()
    made = server.create(PODS, pod())
    other = delete(server, preconditions={"uid": "u"})
    assert (other.status, other.reason) == (409, "Conflict")
    assert other.message == (
        'Operation cannot be fulfilled on Pod "p": the UID in the precondition (u) does not match '
        f"the UID in record ({uid(made)}). The object might have been deleted and then recreated"
    )
    late = delete(server, preconditions={"uid": uid(made), "resourceVersion": "1"})
    assert late.message == (
        'Operation cannot be fulfilled on Pod "p": the ResourceVersion in the precondition (1) '
        f"does not match the ResourceVersion in record ({version(made)}). The object might have "
        "been modified"
    )
    good = delete(server, preconditions={"uid": uid(made), "resourceVersion": version(made)})
    assert good.status == 200
    assert len(server.commits()) == 2


def test_a_version_as_precondition_holds_for_both_writes_of_a_deletion() -> None:
    server = Server()
    made = server.create(PODS, pod(node=""))
    assert delete(server, preconditions={"resourceVersion": version(made)}).status == 200
    assert not server.has(PODS, "p")


@in_virtual_time
async def test_finalizers_hold_an_object_that_was_told_to_go() -> None:
    server = Server()
    held = {**zone(), "metadata": {"name": "a", "finalizers": ["example.com/hold"]}}
    server.create(STATEFULSETS, held)
    await asyncio.sleep(3)
    answer = server.ask("delete", STATEFULSETS, "a")
    assert (answer.status, answer.body["kind"]) == (200, "StatefulSet")
    assert metadata(answer.body)[GRACE] == 0
    assert deadline(answer.body) == timedelta(seconds=3)
    assert number(answer.body, "metadata", "generation") == 2
    await asyncio.sleep(3)
    again = server.ask("delete", STATEFULSETS, "a")
    assert again.body == answer.body
    assert len(server.commits()) == 2
    server.merge(STATEFULSETS, "a", {"metadata": {"finalizers": None}})
    assert not server.has(STATEFULSETS, "a")


def test_a_pod_held_by_finalizers_stays_after_its_kubelet_ended_it() -> None:
    server = Server()
    server.create(PODS, pod(finalizers=["example.com/hold"]))
    delete(server)
    end = delete(server, gracePeriodSeconds=0)
    assert metadata(end.body)[GRACE] == 0
    assert server.has(PODS, "p")
    server.merge(PODS, "p", {"metadata": {"finalizers": []}})
    assert not server.has(PODS, "p")


@pytest.mark.parametrize(
    ("options", "finalizer", "status"),
    [
        pytest.param({"propagationPolicy": "Orphan"}, "orphan", 200, id="orphan"),
        pytest.param(
            {"propagationPolicy": "Foreground"}, "foregroundDeletion", 200, id="foreground"
        ),
        pytest.param({"orphanDependents": True}, "orphan", 200, id="the old word for orphan"),
    ],
)
def test_policies_leave_a_finalizer_for_the_garbage_collector(
    options: JsonObject, finalizer: str, status: int
) -> None:
    @in_virtual_time
    async def run() -> None:
        server = Server()
        server.create(STATEFULSETS, zone())
        answer = server.ask("delete", STATEFULSETS, "a", Asked(body=options))
        assert answer.status == status
        assert metadata(answer.body)["finalizers"] == [finalizer]
        server.api.stop()

    run()


@pytest.mark.parametrize(
    ("options", "status", "part"),
    [
        pytest.param({"propagationPolicy": "Never"}, 422, "Unsupported value", id="policy"),
        pytest.param(
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            422,
            "cannot be both set",
            id="both words",
        ),
        pytest.param({"dryRun": ["Some"]}, 422, "dryRun: Unsupported value", id="dry run"),
        pytest.param({"kind": "ConfigMap", "apiVersion": "v1"}, 400, "no kind", id="no options"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: JsonObject, status: int, part: str
) -> None:
    server = Server()
    server.create(PODS, pod())
    answer = server.ask("delete", PODS, "p", Asked(body=options))
    assert answer.status == status
    assert part in answer.message


def test_options_may_be_in_the_query() -> None:
    server = Server()
    server.create(PODS, pod())
    answer = server.ask("delete", PODS, "p", Asked(query={"gracePeriodSeconds": "7"}))
    assert metadata(answer.body)[GRACE] == 7
    bad = server.ask("delete", PODS, "p", Asked(query={"gracePeriodSeconds": "x"}))
    assert bad.status == 400


@pytest.mark.parametrize("is_in_body", [True, False])
def test_a_dry_run_shows_the_deletion_and_does_nothing(is_in_body: bool) -> None:
    server = Server()
    server.create(PODS, pod())
    server.create(CONFIG_MAPS, config_map())
    asked = Asked(body={"dryRun": ["All"]}) if is_in_body else Asked(query={"dryRun": "All"})
    shown = server.ask("delete", PODS, "p", asked)
    assert metadata(shown.body)[GRACE] == 30
    assert server.ask("delete", CONFIG_MAPS, "c", asked).status == 200
    assert server.has(CONFIG_MAPS, "c")
    assert GRACE not in metadata(server.fetch(PODS, "p"))
    assert len(server.commits()) == 2


@in_virtual_time
async def test_each_write_of_a_deletion_has_its_own_round_of_admission() -> None:
    server = Server()
    server.create(PODS, pod())
    rounds: list[object] = []

    async def decide(request: JsonObject) -> JsonObject:
        options = request["options"]
        assert isinstance(options, dict)
        rounds.append((request["operation"], request["object"], options.get("gracePeriodSeconds")))
        return {"allowed": True}

    server.guard(PODS, "DELETE", decide=decide)
    assert (await server.call("delete", PODS, "p")).status == 200
    assert rounds == [("DELETE", None, 30)]
    again = Asked(body={"gracePeriodSeconds": 30})
    assert (await server.call("delete", PODS, "p", again)).status == 200
    assert len(rounds) == 1, "what is under way already asks nobody"
    forced = Asked(body={"gracePeriodSeconds": 0})
    assert (await server.call("delete", PODS, "p", forced)).status == 200
    assert rounds[1:] == [("DELETE", None, 0)] * 2
    assert not server.has(PODS, "p")


@in_virtual_time
async def test_a_pod_that_changes_during_its_review_is_deleted_only_if_it_is_still_meant() -> None:
    server = Server()
    made = server.create(PODS, pod())

    async def decide(_: JsonObject) -> JsonObject:
        await asyncio.sleep(2)
        return {"allowed": True}

    server.guard(PODS, "DELETE", decide=decide)
    label: JsonObject = {"metadata": {"labels": {"a": "b"}}}
    loop = asyncio.get_running_loop()
    loop.call_later(1, lambda: server.merge(PODS, "p", label))
    asked = Asked(body={"preconditions": {"resourceVersion": version(made)}})
    answer = await server.call("delete", PODS, "p", asked)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "Precondition failed: ResourceVersion in precondition" in answer.message
    loop.call_later(1, lambda: server.merge(PODS, "p", {"metadata": {"labels": {"a": "c"}}}))
    begun = loop.time()
    assert (await server.call("delete", PODS, "p")).status == 200
    assert loop.time() - begun == 4, "the changed pod is reviewed again"


@in_virtual_time
async def test_what_changes_during_its_review_is_reviewed_again_before_it_is_removed() -> None:
    server = Server()
    server.create(CONFIG_MAPS, config_map())
    seen: list[object] = []

    async def decide(request: JsonObject) -> JsonObject:
        seen.append(text(request, "oldObject", "data", "key"))
        await asyncio.sleep(2)
        return {"allowed": True}

    server.guard(CONFIG_MAPS, "DELETE", decide=decide)
    loop = asyncio.get_running_loop()
    loop.call_later(1, lambda: server.merge(CONFIG_MAPS, "c", {"data": {"key": "2"}}))
    assert (await server.call("delete", CONFIG_MAPS, "c")).status == 200
    assert seen == ["1", "2"]
    assert not server.has(CONFIG_MAPS, "c")


def test_what_deletes_more_than_an_object_is_not_modelled() -> None:
    server = Server()
    with pytest.raises(NotModelled, match="namespace"):
        server.ask("delete", NAMESPACES, "default")
    with pytest.raises(NotModelled, match="collection"):
        server.ask("delete", PODS)
    server.create(PODS, pod())
    with pytest.raises(NotModelled, match="ignoreStoreReadError"):
        delete(server, ignoreStoreReadErrorWithClusterBreakingPotential=True)
