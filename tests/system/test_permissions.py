"""What the operator may do: every verb of the shipped Roles is needed, and no other is requested.

Each is taken away. What then does not work is said with verb and resource, nothing else stops, and
it goes on by itself when the right is back: no person has to restart anything (LI-01).
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Final

import pytest
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec, three_zones

from tests.system.budgeted import create_budgets, hold, report_twice
from tests.system.grants import (
    group_of,
    list_unneeded,
    may,
    reported,
    shipped_grants,
    take_away,
    without,
)
from tests.system.guarded import LAST_DOWNSCALE, Guarded, guard, prepared_zone
from tests.system.hooked import TLS_FLAGS, fetch_secret, secret_body, shake_hands, trusting
from tests.system.scaled import wait_counts
from tests.system.starts import waiting_at_most
from tests.system.waits import read_metric, wait_line, wait_page, wait_reason, wait_true
from tests.world.api import SECRETS, STATEFULSETS, Json, Resource
from tests.world.budgets import grouped_zones, zone_budget
from tests.world.clients import Route
from tests.world.hooks import Registration
from tests.world.manifests import SECRET
from tests.world.operatorproc import OperatorProcess
from tests.world.proxy import Cut, NeverAnswer, verbs, watches
from tests.world.world import World

pytestmark = pytest.mark.controlplane

# A refused watch or write is tried again after 30 s at the latest, and lists before it watches.
AFTER_REFUSAL: Final = timedelta(seconds=120)
# Enough for several attempts at a list.
SHORT: Final = timedelta(seconds=8)
BUDGETS: Final = "rollout-operator.grafana.com"
ZPDB: Final = "zoneawarepoddisruptionbudgets"
BUDGET: Final = zone_budget("mock", {"rollout-group": "mock"})
QUARANTINE: Final = timedelta(seconds=12)
OF_EVERYONE: Final = {"authorization.k8s.io", "authentication.k8s.io", "certificates.k8s.io"}
BOTH: Final = {"pods": "Pod", "statefulsets": "StatefulSet"}
PLURALS: Final = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
CERTIFICATE: Final = "Looking after the certificate failed"
RULES_REVIEWS: Final = Resource(
    "authorization.k8s.io/v1", "selfsubjectrulesreviews", is_namespaced=False
)


async def test_sec17_each_verb_of_the_role_is_needed_by_rollouts(world: World) -> None:
    """SEC-17, SI-09, SI-18, LI-01, LI-14: nothing is deleted without, but where it says so below.

    One rollout after the other, each under a Role without another verb.
    """
    names = await world.create(*three_zones(replicas=1))
    operator = await world.operator("-kubernetes.client-timeout=3s", is_through_proxy=True)

    # There is no live read, or no process learns what became of a delete without an answer.
    for image, grant in (
        ("v2", ("list", "pods")),
        ("v3", ("list", "statefulsets")),
        ("v4", ("get", "pods")),
    ):
        before = await world.judge.deletes()
        if grant == ("get", "pods"):
            world.proxy.add(verbs("delete", "pods"), Cut(), times=1)
        async with without(world, grant):
            await world.set_image(names, image)
            await wait_line(operator, "group=ingester ", reported(*grant))
            assert await world.judge.deletes() == before, grant
        await world.wait_adopted(names, AFTER_REFUSAL)

    # Pods roll, but the revision is not recorded, unless Kubernetes does so.
    unneeded = await list_unneeded(world)
    for image, grant in (
        ("v5", ("get", "statefulsets")),
        ("v6", ("update", "statefulsets/status")),
    ):
        if grant in unneeded:
            async with without(world, grant):
                await world.roll(names, image)
            continue
        async with without(world, grant):
            await world.set_image(names, image)
            await wait_line(operator, "group=ingester ", "reason=backing_off", reported(*grant))
            for found in (await world.wait_rolled(names)).sets.values():
                status = found["status"]
                assert status["currentRevision"] != status["updateRevision"], grant
        await world.wait_adopted(names)

    # A watch that ends is not opened again, which is an error.
    async with without(world, *(("watch", resource) for resource in BOTH)):
        with world.proxy.during(watches(), Cut()):
            pass
        for resource, kind in BOTH.items():
            line = await wait_line(operator, "Watch interrupted", reported("watch", resource))
            assert "level=error" in line
            await wait_true("counted", partial(_is_denied, operator, kind))
        await world.set_image(names, "v7")
    await world.wait_adopted(names, AFTER_REFUSAL)
    assert len([one for one in await world.judge.deletes() if one.is_done]) == 6 * len(names)
    await world.judge.assert_clean()

    # The page, the log and a metric say why nothing is rolled.
    async with without(world, ("delete", "pods")):
        await world.set_image(names, "v8")
        words = ("group=ingester ", "reason=backing_off", reported("delete", "pods"))
        assert "level=warn" in await wait_line(operator, *words)
        waiting = "rollout_operator_group_waiting"
        assert await read_metric(operator, waiting, reason="backing_off") == 1
        await wait_true("reported on the page", partial(_is_on_page, operator))
        assert (await operator.fetch("/ready"))[0] == 200, "it works, and a restart mends nothing"
        assert {one.code for one in await world.judge.deletes() if not one.is_done} == {403}
    await world.wait_adopted(names)
    # The audit log shows no body of a request that the Role refused, hence no preconditions.
    done = [one for one in await world.judge.deletes() if one.is_done]
    assert all(one.required_uid and one.required_version for one in done)
    assert [one for one in await world.judge.violations() if one.at] == []


async def _is_on_page(operator: OperatorProcess) -> bool:
    return 'grant verb delete on "pods"' in (await operator.fetch("/status"))[1]


async def _is_denied(operator: OperatorProcess, kind: str) -> bool:
    name = "rollout_operator_watch_restarts_total"
    return (await read_metric(operator, name, cause="denied", kind=kind) or 0) >= 1


async def test_sec17_the_role_is_what_is_used_and_no_more(world: World) -> None:
    """SEC-17, SI-24, SEED-008, SEED-064: a start, a rollout and a lost answer use every verb.

    None of the calls is refused, and none leaves the namespace.
    """
    labels = {"rollout-group": "ingester"}
    await create_budgets(world, [zone_budget("ingester", labels, maxUnavailable=2)])
    names = await world.create(*grouped_zones(max_unavailable=2))
    operator = await world.operator("-kubernetes.client-timeout=3s", is_through_proxy=True)
    for effect, image in ((Cut(), "v2"), (NeverAnswer(), "v3")):
        rule = world.proxy.add(verbs("delete", "pods"), effect, times=1)
        await world.roll(names, image, AFTER_REFUSAL)
        assert rule.times == 0
    await wait_reason(operator, "ingester", "up_to_date")
    await report_twice(world, operator, "ingester")
    await operator.terminate()
    calls = await world.judge.calls(with_events=True)
    used = {(call.verb, call.resource) for call in calls}
    assert used == shipped_grants() - await list_unneeded(world)
    # 409 is the answer to a precondition that no longer holds; a first lease and Events are made.
    others = [call for call in calls if call.resource not in ("leases", "events")]
    assert {call.code for call in others} <= {0, 200, 409}
    assert {call.code for call in calls} <= {0, 200, 201, 404, 409}
    assert {call.namespace for call in calls} == {world.namespace}
    await world.judge.assert_clean()


# A group, a resource and verbs on it: ways to secrets, into pods, to workloads, to more rights.
FORBIDDEN: Final = (
    ("", "secrets", "get list watch create update patch delete"),
    ("", "configmaps", "get list create update patch delete"),
    ("", "pods", "create update deletecollection"),
    ("", "pods/exec", "get create"),
    ("", "pods/log", "get"),
    ("", "pods/eviction", "create"),
    ("", "pods/status", "update patch"),
    ("", "serviceaccounts/token", "create"),
    ("apps", "statefulsets", "create update patch delete"),
    ("apps", "statefulsets/scale", "get update patch"),
    ("apps", "statefulsets/status", "get patch"),
    ("coordination.k8s.io", "leases", "list watch update delete deletecollection"),
    ("events.k8s.io", "events", "get list watch update delete"),
    (BUDGETS, ZPDB, "get create update patch delete"),
    (BUDGETS, f"{ZPDB}/status", "get update"),
    ("apps", "deployments", "get create update patch delete"),
    ("batch", "jobs", "create"),
    ("rbac.authorization.k8s.io", "rolebindings", "create update patch bind"),
    ("rbac.authorization.k8s.io", "roles", "create update escalate"),
)


async def test_sec19_what_a_stolen_token_can_do(world: World) -> None:
    """SEC-19, SI-24, RBAC-10, SEED-008: the server's own list is the Role; it ends here."""
    async with world.plane.api(world.token) as thief:
        requested = {"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1"}
        body: Json = {**requested, "spec": {"namespace": world.namespace}}
        answer = await thief.create(RULES_REVIEWS, "", body)
    granted = {
        (verb, resource)
        for rule in answer["status"]["resourceRules"]
        # What every holder of a token may: review oneself, and read bundles of CAs since 1.37.
        if not OF_EVERYONE & set(rule["apiGroups"])
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == shipped_grants()
    for group, resource, denied in FORBIDDEN:
        for verb in denied.split():
            assert not await may(world, verb, resource, group), (verb, resource)
    for verb, resource in granted:
        group = group_of(resource)
        assert await may(world, verb, resource, group), (verb, resource)
        assert not await may(world, verb, resource, group, "kube-system"), (verb, resource)


async def test_deploy_a_namespace_without_the_role_binding_is_named(world: World) -> None:
    """SI-24, W-22: pointed at another namespace it says which, and touches nothing there."""
    world.may_be_forbidden = True
    other = f"{world.namespace}-other"
    await world.plane.create_namespace(world.api, other)
    launch = world.launch(f"-kubernetes.namespace={other}")
    async with OperatorProcess(launch) as operator:
        text = await wait_page(operator, "/ready", 500, "is forbidden")
        assert f"in namespace {other}" in text
    assert {call.code for call in await world.judge.calls()} == {403}


async def test_sec17_list_and_watch_at_the_start(world: World) -> None:
    """SEC-17, W-22, LI-14: /ready names verb, resource and Role; so does the end of the wait.

    Without watches rollouts only crawl; a person must see why.
    """
    names = await world.create(*three_zones())
    async with without(world, *(("list", resource) for resource in BOTH)):
        launch = replace(world.launch(), command=waiting_at_most(SHORT))
        async with OperatorProcess(launch) as operator:
            for resource in BOTH:
                wanted = f'grant verb list on "{resource}"'
                text = await wait_page(operator, "/ready", 500, wanted)
                assert "in its Role" in text
                assert f"{resource} watch: not followed yet" in text
            assert await operator.wait_end(timedelta(seconds=60)) == 1
            assert 'grant verb list on "' in operator.log_lines()[-1]

    async with AsyncExitStack() as stack:
        async with without(world, *(("watch", resource) for resource in BOTH)):
            operator = await stack.enter_async_context(OperatorProcess(world.launch()))
            for resource in BOTH:
                line = await wait_line(operator, "Watch interrupted", reported("watch", resource))
                assert "level=error" in line
                for page, code in (("/status", 200), ("/ready", 500)):
                    await wait_page(operator, page, code, f'grant verb watch on "{resource}"')
            await world.set_image(names, "v2")
        await world.wait_adopted(names, AFTER_REFUSAL)
        async with without(world, ("list", "pods")):
            operator.kill()
            operator.start()
            await wait_page(operator, "/ready", 500, 'grant verb list on "pods"')
        await operator.wait_ready()
    await world.judge.assert_clean()


async def test_sec17_list_and_watch_budgets(world: World) -> None:
    """SEC-17, W-52, LI-14: what is not known allows nothing; no watch is an error."""
    zones = grouped_zones("mock", replicas=2)
    await create_budgets(world, [BUDGET])
    async with without(world, ("list", ZPDB)):
        held = await hold(world, *zones, is_through_proxy=True)
        line = await wait_line(held.operator, "Kind is not followed", reported("list", ZPDB))
        assert "level=warn" in line
        await held.assert_refuses("mock-zone-a-0", 429, "the budgets are not known yet")
    await held.wait_answer("mock-zone-a-0", 201, AFTER_REFUSAL)
    async with without(world, ("watch", ZPDB)):
        with world.proxy.during(watches(ZPDB), Cut()):
            pass
        line = await wait_line(held.operator, "Watch interrupted", reported("watch", ZPDB))
        assert "level=error" in line
        await held.set_budget("mock", maxUnavailable=0)
    await held.wait_answer("mock-zone-a-0", 403, AFTER_REFUSAL)


async def test_sec17_patch_pods_for_evictions(world: World) -> None:
    """SEC-17, W-38: from memory, said once, after twelve seconds in which nothing goes."""
    world.judge.promises = replace(world.judge.promises, are_recorded=False)
    await take_away(world, "patch", "pods")
    held = await hold(world, *grouped_zones("mock", replicas=2), budgets=[BUDGET])
    refused = await held.evict("mock-zone-a-0")
    assert refused.status == 429, refused
    await held.wait_allowed("mock-zone-a-0", QUARANTINE * 2)
    await held.assert_refuses("mock-zone-b-0", 429, "1 pod not ready in mock-zone-a")
    await held.wait_ready()
    await held.wait_allowed("mock-zone-b-0")
    _assert_reported_once(held.operator, "not recorded on pods", reported("patch", "pods"))
    assert await held.list_recorded() == []
    await held.wait_ready()
    await world.judge.assert_clean()


async def test_rbac10_a_role_without_budgets_rolls_out_as_before(world: World) -> None:
    """RBAC-10, DEP-33: under a Role of earlier releases rollouts do not stop; said once."""
    await take_away(world, "list", ZPDB)
    await take_away(world, "patch", "pods")
    names = await world.create(*grouped_zones("mock", replicas=2))
    operator = await world.operator()
    await world.roll(names, "v2")
    _assert_reported_once(operator, "Kind is not followed", reported("list", ZPDB))
    await world.judge.assert_clean()


async def _guard(world: World, *flags: str, names: str = "a") -> Guarded:
    """Return an operator and sets of three whose pods are prepared, each in a group of its own."""
    pods = await world.serve_pods()
    zones = [prepared_zone(pods, ZoneSpec(name=name, group=name)) for name in names]
    return await guard(world, *zones, pods=pods, flags=flags)


async def test_sec17_rights_of_webhooks_are_what_is_used_and_no_more(world: World) -> None:
    """SEC-17, SEC-18, SEED-100: the first start, a renewal, a wiped bundle and two downscales."""
    guarded = await _guard(world, "-server-tls.self-signed-cert.expiration=5s")
    first = await fetch_secret(world)
    for route, count in ((Route.SCALE_MERGE, 2), (Route.MERGE, 1)):
        assert (await guarded.workload("a").scale(count, route)).status == 200
        await guarded.wait_recorded("a")
    await _wait_renewed(world, first)
    await guarded.operator.terminate()
    calls = await world.judge.calls()
    used = {(call.verb, call.resource) for call in calls}
    wanted = shipped_grants("components/webhooks")
    assert wanted - used == set(), "granted and never used"
    assert used - wanted - shipped_grants() == set(), "used and not granted"
    assert {call.code for call in calls} <= {0, 200, 201, 404, 409}
    assert {call.name for call in calls if call.resource == "secrets"} <= {SECRET, ""}


async def test_sec17_patch_pods_and_statefulsets_for_downscales(world: World) -> None:
    """SEC-17, W-13: they go on; that a crash would forget them is reported, once.

    A downscale by `/scale` is recorded once the right to patch the set is back.
    """
    guarded = await _guard(world, names="ab")
    async with without(world, ("patch", "pods")):
        for count in (2, 1):
            answer = await guarded.workload("a").scale(count, Route.MERGE)
            assert answer.status == 200, answer
            assert guarded.pods.calls_to(f"a-{count}", "POST")
            await wait_counts(world, {"a": count})
        _assert_reported_once(guarded.operator, "not recorded on pods", reported("patch", "pods"))
    grant = ("patch", "statefulsets")
    async with without(world, grant):
        assert (await guarded.workload("b").scale(2, Route.SCALE_MERGE)).status == 200
        line = await wait_line(guarded.operator, "Downscale is not settled yet", reported(*grant))
        assert "level=warn" in line
        assert LAST_DOWNSCALE not in (await world.get(STATEFULSETS, "b"))["metadata"]["annotations"]
    await guarded.wait_recorded("b")


async def test_sec17_secrets(world: World) -> None:
    """SEC-17, W-22, LI-13: without a certificate it is not ready and says why; then it goes on.

    What is served goes on being served; a renewal that is refused is reported, then made. Where the
    shipped Secret was deleted, it may not create it, and names it and the way out.
    """
    await world.grant_webhooks()
    await world.delete(SECRETS, SECRET)
    flags = (*TLS_FLAGS, "-server-tls.self-signed-cert.expiration=9s")
    async with AsyncExitStack() as stack:
        async with without(world, ("get", "secrets")):
            launch = world.launch(*flags)
            operator = await stack.enter_async_context(OperatorProcess(launch))
            line = await wait_line(operator, CERTIFICATE, reported("get", "secrets"))
            assert "level=warn" in line
        line = await wait_line(operator, CERTIFICATE, reported("create", "secrets"))
        assert "level=warn" in line
        command = f"kubectl create secret generic {SECRET} --namespace {world.namespace}"
        assert f"does not exist: create it empty ({command})" in line
        await wait_page(operator, "/ready", 500, command)
        await world.post(SECRETS, secret_body({}))
        await operator.wait_ready(AFTER_REFUSAL)
        async with without(world, ("update", "secrets")):
            held = await fetch_secret(world)
            await wait_line(operator, CERTIFICATE, reported("update", "secrets"))
            await shake_hands(operator.tls_port, trusting(held["ca"]))
        await _wait_renewed(world, held)
        await shake_hands(operator.tls_port, trusting(held["ca"]))


@pytest.mark.parametrize("verb", ["list", "watch", "patch"])
async def test_sec17_webhook_configurations(world: World, verb: str) -> None:
    """SEC-17: reviews are served without; the log names the verb on each of both kinds."""
    await world.grant_webhooks()
    async with without(world, *((verb, plural) for plural in PLURALS)):
        operator = await world.operator(*TLS_FLAGS)
        hooks = await world.register(Registration(port=1))
        for plural in PLURALS:
            line = await wait_line(operator, reported(verb, plural))
            if verb == "patch":
                assert "CA bundle not written" in line
                assert "level=warn" in line
                assert (await operator.fetch("/ready"))[0] == 200
        await shake_hands(operator.tls_port, trusting((await fetch_secret(world))["ca"]))
    if verb != "patch":  # which is tried again after 30 s
        await hooks.wait_injected(AFTER_REFUSAL)
    assert operator.is_running


async def _wait_renewed(world: World, before: Mapping[str, bytes]) -> None:
    async def is_renewed() -> bool:
        return (await fetch_secret(world))["cert"] != before["cert"]

    await wait_true("renewed", is_renewed, AFTER_REFUSAL)


def _assert_reported_once(operator: OperatorProcess, what: str, right: str) -> None:
    (line,) = (line for line in operator.log_lines() if what in line)
    assert "level=warn" in line
    assert right in line
