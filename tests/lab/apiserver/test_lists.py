"""Lists: versions, parts and tokens, as the real server answers them from its watch cache."""

import base64
import json

import pytest

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject
from rollout_operator.lab.model.fields import children, name_of, number, text
from rollout_operator.lab.model.request import ApiAnswer
from rollout_operator.lab.schemas.kinds import CONFIG_MAPS, NAMESPACES
from tests.lab.server import CLUSTER_WIDE, Asked, Server, config_map, zone


def filled(count: int = 5) -> Server:
    server = Server()
    for number_ in range(count):
        server.create(CONFIG_MAPS, config_map(f"c{number_}"))
    return server


def listed(server: Server, **query: str) -> ApiAnswer:
    return server.ask("list", CONFIG_MAPS, asked=Asked(query=query))


def names(answer: ApiAnswer) -> list[str]:
    assert answer.is_ok, answer.message
    return [name_of(one) for one in children(answer.body, "items")]


def meta(answer: ApiAnswer, key: str) -> str:
    return text(answer.body, "metadata", key)


def test_a_list_names_its_kind_and_version_and_its_items_do_not() -> None:
    server = Server()
    server.create(STATEFULSETS, zone("a"))
    body = server.ask("list", STATEFULSETS).body
    assert (body["kind"], body["apiVersion"]) == ("StatefulSetList", "apps/v1")
    assert body["metadata"] == {"resourceVersion": str(server.api.revision)}
    (item,) = children(body, "items")
    assert {"kind", "apiVersion"}.isdisjoint(item)
    assert server.fetch(STATEFULSETS, "a")["kind"] == "StatefulSet"


def test_an_empty_list_has_items_and_the_newest_version() -> None:
    server = filled(1)
    body = server.ask("list", PODS).body
    assert body["items"] == []
    assert body["metadata"] == {"resourceVersion": "2"}


@pytest.mark.parametrize("asked", ["", "0", "2"])
def test_a_list_not_older_than_a_version_is_the_newest(asked: str) -> None:
    server = filled(3)
    answer = listed(server, resourceVersion=asked)
    assert names(answer) == ["c0", "c1", "c2"]
    assert meta(answer, "resourceVersion") == str(server.api.revision)


def test_a_list_at_an_exact_version_is_what_was_there() -> None:
    server = filled(3)
    server.ask("delete", CONFIG_MAPS, "c0")
    answer = listed(server, resourceVersion="3", resourceVersionMatch="Exact")
    assert names(answer) == ["c0", "c1"]
    assert meta(answer, "resourceVersion") == "3"


def test_a_limit_makes_a_version_exact_but_not_zero() -> None:
    server = filled(3)
    assert names(listed(server, resourceVersion="3", limit="9")) == ["c0", "c1"]
    # The watch cache answers version 0 and takes no heed of a limit then.
    assert names(listed(server, resourceVersion="0", limit="1")) == ["c0", "c1", "c2"]


def test_pages_show_one_state_although_the_world_goes_on() -> None:
    server = filled(5)
    first = listed(server, limit="2")
    assert names(first) == ["c0", "c1"]
    assert number(first.body, "metadata", "remainingItemCount") == 3
    server.ask("delete", CONFIG_MAPS, "c2")
    server.create(CONFIG_MAPS, config_map("c9"))
    second = listed(server, limit="2", **{"continue": meta(first, "continue")})
    third = listed(server, limit="2", **{"continue": meta(second, "continue")})
    assert names(second) + names(third) == ["c2", "c3", "c4"]
    assert meta(third, "continue") == ""
    versions = {meta(one, "resourceVersion") for one in (first, second, third)}
    assert versions == {"6"}


def test_a_page_of_a_selection_does_not_tell_what_remains() -> None:
    server = Server()
    for number_ in range(4):
        labels = {"even": str(number_ % 2 == 0)}
        server.create(CONFIG_MAPS, config_map(f"c{number_}", labels=labels))
    first = listed(server, limit="1", labelSelector="even=True")
    assert names(first) == ["c0"]
    assert "remainingItemCount" not in first.body["metadata"]  # type: ignore[operator]  # a dict
    rest = listed(server, labelSelector="even=True", **{"continue": meta(first, "continue")})
    assert names(rest) == ["c2"]


def test_after_compaction_pages_are_gone_and_a_token_goes_on_with_what_is_there() -> None:
    server = filled(4)
    first = listed(server, limit="2")
    server.ask("delete", CONFIG_MAPS, "c2")
    server.api.compact()
    gone = listed(server, limit="2", **{"continue": meta(first, "continue")})
    assert (gone.status, gone.reason) == (410, "Expired")
    assert gone.message.startswith("The provided continue parameter is too old")
    rest = listed(server, **{"continue": meta(gone, "continue")})
    assert names(rest) == ["c3"]
    assert meta(rest, "resourceVersion") == str(server.api.revision)


def test_an_exact_version_before_compaction_is_gone() -> None:
    server = filled(3)
    server.api.compact()
    assert names(listed(server, resourceVersion="4", resourceVersionMatch="Exact")) != []
    answer = listed(server, resourceVersion="3", resourceVersionMatch="Exact")
    assert (answer.status, answer.reason) == (410, "Expired")
    assert answer.message == "The resourceVersion for the provided list is too old."


def test_a_version_that_is_not_reached_is_a_timeout_with_its_cause() -> None:
    answer = listed(filled(1), resourceVersion="99")
    assert (answer.status, answer.reason, answer.retry_after) == (504, "Timeout", 1)
    assert answer.message == "Timeout: Too large resource version: 99, current: 2"
    (cause,) = children(answer.body, "details", "causes")
    assert cause["reason"] == "ResourceVersionTooLarge"


def token(**parts: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("query", "status", "part"),
    [
        pytest.param({"continue": "!"}, 400, "continue key is not valid", id="no token"),
        pytest.param({"continue": token(v="x", rv=2, start="c")}, 400, "not valid", id="version"),
        pytest.param({"continue": token(v="meta.k8s.io/v1", rv=2)}, 400, "not valid", id="start"),
        pytest.param(
            {"continue": token(v="meta.k8s.io/v1", rv=2, start="c"), "resourceVersion": "2"},
            400,
            "specifying resource version is not allowed when using continue",
            id="token and version",
        ),
        pytest.param({"resourceVersion": "x"}, 400, "invalid resource version", id="no version"),
        pytest.param({"limit": "x"}, 400, "invalid syntax", id="no limit"),
        pytest.param(
            {"resourceVersionMatch": "Exact"},
            422,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
            id="match without version",
        ),
        pytest.param(
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            422,
            'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
            id="exactly zero",
        ),
        pytest.param(
            {"resourceVersionMatch": "Odd", "resourceVersion": "2"},
            422,
            "Unsupported value",
            id="unknown match",
        ),
    ],
)
def test_queries_that_make_no_sense_are_refused(
    query: dict[str, str], status: int, part: str
) -> None:
    answer = filled(1).ask("list", CONFIG_MAPS, asked=Asked(query=query))
    assert answer.status == status
    assert part in answer.message


def test_all_namespaces_come_in_one_list_and_cluster_kinds_have_none() -> None:
    server = filled(1)
    server.create(NAMESPACES, {"metadata": {"name": "other"}})
    made: JsonObject = config_map("c0")
    answer = server.ask("create", CONFIG_MAPS, asked=Asked(body=made, namespace="other"))
    assert answer.status == 201
    everywhere = server.ask("list", CONFIG_MAPS, asked=Asked(namespace=CLUSTER_WIDE))
    found = [text(one, "metadata", "namespace") for one in children(everywhere.body, "items")]
    assert found == ["default", "other"]
    page = server.ask(
        "list", CONFIG_MAPS, asked=Asked(namespace=CLUSTER_WIDE, query={"limit": "1"})
    )
    following = {"continue": meta(page, "continue")}
    rest = server.ask("list", CONFIG_MAPS, asked=Asked(namespace=CLUSTER_WIDE, query=following))
    assert [text(one, "metadata", "namespace") for one in children(rest.body, "items")] == ["other"]
    assert names(server.ask("list", NAMESPACES)) == ["default", "other"]
