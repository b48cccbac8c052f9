"""Forged records of an operator that reaches too far: found; and one that does not: clean."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rollout_operator.kube.api import PODS
from tests.judge.objects import Pod
from tests.world.api import SECRETS, VALIDATING_HOOKS, ApiError, Json
from tests.world.hooks import INJECT_LABEL, NAMESPACE_LABEL, NO_DOWNSCALE, Registration
from tests.world.observed import Change, Request
from tests.world.outreach import (
    HookWrite,
    find_foreign_calls,
    find_foreign_edits,
    find_stray_calls,
    judge_outreach,
    read_hook_writes,
)
from tests.world.scene import World
from tests.world.webpods import PodCall

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

    assert list(find_foreign_edits(writes, "operator", HERE)) == []


def unlabelled(labels: Mapping[str, str]) -> list[HookWrite]:
    return [
        replace(CREATED, after=configuration(1, labels)),
        replace(PATCHED, after=configuration(2, labels, caBundle="new")),
    ]


@pytest.mark.parametrize(
    ("writes", "text"),
    [
        pytest.param(unlabelled({}), "no labels of ours", id="no labels"),
        pytest.param(
            unlabelled(OURS | {NAMESPACE_LABEL: "other"}), "no labels of ours", id="other operator"
        ),
        pytest.param(
            unlabelled(OURS | {INJECT_LABEL: "yes"}), "no labels of ours", id="not asked for"
        ),
        pytest.param(
            [CREATED, write("operator", "patch", configuration(2, OURS, url="https://b"))],
            "something else",
            id="address",
        ),
        pytest.param(
            [CREATED, write("operator", "patch", configuration(2, OURS | {"more": "x"}))],
            "something else",
            id="label",
        ),
        pytest.param([CREATED, write("operator", "delete", {})], "it is gone", id="deleted"),
        pytest.param(
            [write("operator", "create", configuration(1, OURS))], "nobody else", id="created"
        ),
    ],
)
def test_si_20_anything_else_is_found(writes: list[HookWrite], text: str) -> None:
    (found,) = find_foreign_edits(writes, "operator", HERE)

    assert found.invariant == "SI-20"
    assert f"{PLURAL}/x: " in found.text
    assert text in found.text


def test_writes_are_read_from_the_audit_log_in_their_order() -> None:
    entry: Json = {
        "user": {"username": "operator"},
        "verb": "patch",
        "stage": "ResponseComplete",
        "objectRef": {"resource": PLURAL, "name": "x"},
        "requestURI": "/",
        "responseStatus": {"code": 200},
        "responseObject": PATCHED.after,
    }
    created = deepcopy(entry) | {
        "user": {"username": "gitops"},
        "verb": "create",
        "objectRef": {"resource": PLURAL},
        "responseObject": CREATED.after,
        "responseStatus": {"code": 201},
    }
    others = [
        entry | {"responseStatus": {"code": 403}},
        entry | {"requestURI": "/?dryRun=All"},
        entry | {"verb": "get"},
        entry | {"objectRef": {"resource": "statefulsets", "name": "x"}},
    ]

    assert read_hook_writes([*others, entry, created]) == [CREATED, PATCHED]


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
CHANGES = [
    Change(
        version=1,
        at=0.5,
        resource=PODS,
        name="a-0",
        before=None,
        now=Pod(name="a-0", uid="1", owner="a"),
    ),
    Change(
        version=2, at=0.5, resource=PODS, name="stray", before=None, now=Pod(name="stray", uid="2")
    ),
]


def test_si_21_a_call_to_an_owned_pod_is_clean() -> None:
    assert list(find_stray_calls([GOOD], CHANGES, HERE, ["/prepare"])) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param({"uid": "2"}, "belongs to no StatefulSet", id="stray pod"),
        pytest.param({"uid": "3"}, "belongs to no StatefulSet", id="unknown pod"),
        pytest.param({"method": "PUT"}, "no such method", id="method"),
        pytest.param({"path": "//prepare"}, "path is none of", id="path"),
        pytest.param({"path": "http://a/prepare"}, "path is none of", id="as to a proxy"),
        pytest.param({"headers": {"host": "127.1.1.1:80"}}, "not the pod's name", id="host"),
        pytest.param(
            {"headers": {"host": "a-1.a-headless.here.svc.cluster.local.:80"}},
            "not the pod's name",
            id="other pod's host",
        ),
        pytest.param(
            {"headers": {"host": "a-0.a.there.svc.cluster.local:80"}},
            "not the pod's name",
            id="other namespace's host",
        ),
        pytest.param(
            {"headers": {**GOOD.headers, "authorization": "x"}}, "carries", id="credentials"
        ),
        pytest.param({"headers": {**GOOD.headers, "cookie": "x"}}, "carries", id="cookie"),
    ],
)
def test_si_21_any_other_call_is_found(changes: dict[str, object], text: str) -> None:
    wrong = replace(GOOD, **changes)  # type: ignore[arg-type]  # fields of PodCall

    (found,) = find_stray_calls([GOOD, wrong], CHANGES, HERE, ["/prepare"])
    assert found.invariant == "SI-21"
    assert text in found.text


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


def test_si_24_the_namespace_and_the_configurations_are_clean() -> None:
    calls = [
        call("list", "pods", HERE),
        call("patch", "pods", HERE, "a-0"),
        call("watch", PLURAL),
        call("patch", PLURAL, "", "x"),
        call("get", ""),
    ]

    assert list(find_foreign_calls(calls, HERE)) == []


@pytest.mark.parametrize(
    "foreign",
    [
        call("list", "pods"),
        call("get", "secrets", "other", "x"),
        call("get", "namespaces", HERE, HERE),
        call("create", "subjectaccessreviews"),
        call("list", "nodes"),
    ],
    ids=lambda each: f"{each.verb} {each.resource}",
)
def test_si_24_everything_else_is_found(foreign: Request) -> None:
    (found,) = find_foreign_calls([call("list", "pods", HERE), foreign], HERE)

    assert found.invariant == "SI-24"
    assert foreign.resource in found.text


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
