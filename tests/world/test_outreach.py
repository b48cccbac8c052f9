"""Forged records of an operator that reaches too far: found; and one that does not: clean."""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from tests.judge.builder import HistoryBuilder
from tests.world.api import SECRETS, VALIDATING_HOOKS, ApiError, Json
from tests.world.forged import observe
from tests.world.hooks import INJECT_LABEL, NAMESPACE_LABEL, NO_DOWNSCALE, Registration
from tests.world.observed import Request
from tests.world.outreach import (
    HookWrite,
    judge_outreach,
    list_foreign_calls,
    list_foreign_edits,
    list_stray_calls,
)
from tests.world.webpods import PodCall
from tests.world.world import World

HERE = "here"
PLURAL = VALIDATING_HOOKS.plural
OURS = {INJECT_LABEL: "true", NAMESPACE_LABEL: HERE}


def configuration(version: int, labels: Mapping[str, str], **client: str) -> Json:
    return {
        "metadata": {"name": "x", "labels": dict(labels), "resourceVersion": str(version)},
        "webhooks": [{"name": "x.y.z", "clientConfig": {"url": "https://a", **client}}],
    }


def write(user: str, verb: str, after: Json) -> HookWrite:
    return HookWrite(user=user, verb=verb, plural=PLURAL, name="x", after=after)


CREATED = write("gitops", "create", configuration(1, OURS))
PATCHED = write("operator", "patch", configuration(2, OURS, caBundle="new"))


def test_si_20_only_the_bundle_of_our_own_is_clean() -> None:
    wiped = write("gitops", "update", configuration(3, OURS))
    foreign = write("gitops", "delete", {})
    writes = [CREATED, PATCHED, wiped, replace(PATCHED, after=configuration(4, OURS)), foreign]

    assert list(list_foreign_edits(writes, "operator", HERE)) == []


def patched(labels: Mapping[str, str] = OURS, **client: str) -> list[HookWrite]:
    """Have the operator patch a configuration, and more of it than the bundle if so said."""
    patch = write("operator", "patch", configuration(2, labels, **client))
    return [write("gitops", "create", configuration(1, OURS)), patch]


def unlabelled(labels: Mapping[str, str]) -> list[HookWrite]:
    before = write("gitops", "create", configuration(1, labels))
    return [before, write("operator", "patch", configuration(2, labels, caBundle="new"))]


FOREIGN = {
    "no labels of ours: no labels": unlabelled({}),
    "no labels of ours: other operator": unlabelled(OURS | {NAMESPACE_LABEL: "other"}),
    "no labels of ours: not requested": unlabelled(OURS | {INJECT_LABEL: "yes"}),
    "something else: address": patched(url="https://b"),
    "something else: label": patched(OURS | {"more": "x"}),
    "it is gone: deleted": [CREATED, write("operator", "delete", {})],
    "no other client: created": [write("operator", "create", configuration(1, OURS))],
}


@pytest.mark.parametrize(("text", "writes"), FOREIGN.items(), ids=FOREIGN)
def test_si_20_anything_else_is_found(text: str, writes: list[HookWrite]) -> None:
    (found,) = list_foreign_edits(writes, "operator", HERE)

    assert found.invariant == "SI-20"
    assert f"{PLURAL}/x: " in found.text
    assert text.partition(":")[0] in found.text


GOOD = PodCall(
    at=1.0,
    wall=datetime.now(UTC),
    pod="a-0",
    uid="1",
    address="127.1.1.1",
    method="POST",
    path="/prepare",
    headers={"host": "a-0.a-headless.here.svc.cluster.local.:80"},
)
CHANGES = HistoryBuilder().pod(0, "a-0", uid="1").pod(0, "stray", uid="2", owner="")


STRAY: dict[str, dict[str, object]] = {
    "belongs to no StatefulSet: stray pod": {"uid": "2"},
    "belongs to no StatefulSet: unknown pod": {"uid": "3"},
    "no such method": {"method": "PUT"},
    "path is none of: another": {"path": "//prepare"},
    "path is none of: as to a proxy": {"path": "http://a/prepare"},
    "not the pod's name: an address": {"headers": {"host": "127.1.1.1:80"}},
    "not the pod's name: another pod": {"headers": {"host": "a-1.a.here.svc.cluster.local:80"}},
    "not the pod's name: elsewhere": {"headers": {"host": "a-0.a.there.svc.cluster.local:80"}},
    "carries: credentials": {"headers": {**GOOD.headers, "authorization": "x"}},
    "carries: cookie": {"headers": {**GOOD.headers, "cookie": "x"}},
}


@pytest.mark.parametrize(("text", "changes"), STRAY.items(), ids=STRAY)
def test_si_21_any_call_but_to_an_owned_pod_is_found(text: str, changes: dict[str, object]) -> None:
    wrong = replace(GOOD, **changes)

    (found,) = list_stray_calls([GOOD, wrong], observe(CHANGES).changes, HERE, ["/prepare"])
    assert found.invariant == "SI-21"
    assert text.partition(":")[0] in found.text


def call(verb: str, resource: str, namespace: str = "", name: str = "") -> Request:
    return Request(
        verb=verb,
        resource=resource,
        namespace=namespace,
        name=name,
        code=200,
        user="operator",
        uri="/",
        stamp="",
        received=0,
        answered=0,
    )


def test_si_24_all_but_the_namespace_and_the_configurations_is_found() -> None:
    own = [
        call("list", "pods", HERE),
        call("patch", "pods", HERE, "a-0"),
        call("watch", PLURAL),
        call("patch", PLURAL, "", "x"),
        call("get", ""),
    ]
    foreign = [
        call("list", "pods"),
        call("get", "secrets", "other", "x"),
        call("get", "namespaces", HERE, HERE),
        call("create", "subjectaccessreviews"),
        call("list", "nodes"),
    ]
    found = list(list_foreign_calls([*own, *foreign], HERE))

    assert {one.invariant for one in found} == {"SI-24"}
    assert [each.resource in one.text for each, one in zip(foreign, found, strict=True)] == [
        True
    ] * 5


@pytest.mark.controlplane
async def test_on_the_real_server_everything_is_seen(world: World) -> None:
    """SI-20, SI-24"""
    world.may_be_forbidden = True
    await world.grant_webhooks()
    hooks = await world.register(Registration(port=1))
    name = hooks.name(NO_DOWNSCALE)
    at = "/webhooks/0"

    async with world.plane.api(world.token) as operator:

        async def change(path: str, value: object) -> None:
            patch = [{"op": "add", "path": f"{at}{path}", "value": value}]
            await operator.patch(VALIDATING_HOOKS, "", name, patch, kind="json")

        await operator.items(VALIDATING_HOOKS)
        await change("/clientConfig/caBundle", "aGVsbG8=")
        assert await judge_outreach(world.judge, [], []) == []

        await change("/failurePolicy", "Ignore")
        with pytest.raises(ApiError, match="403"):
            await operator.items(SECRETS, "kube-system")

    found = await judge_outreach(world.judge, [GOOD], [])
    assert [each.invariant for each in found] == ["SI-20", "SI-21", "SI-21", "SI-21", "SI-24"]
    assert f"patch of {PLURAL}/{name}: something else than the caBundle" in found[0].text
    assert "list of secrets (all) in kube-system: 403" in found[-1].text
