"""What `doctor` reads and calls, what it never sends, and what becomes of what may not be read."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
import pytest

from rollout_operator.kube.api import JsonObject, Page, Resource
from rollout_operator.model.diagnosis import FindingCode, Installation, Source
from rollout_operator.model.names import (
    ApiError,
    Denied,
    NotFound,
    Refused,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.operator.examine import examine, read_installation
from rollout_operator.planning.doctor import CHECKS
from tests.controllers.fake_client import FakeClient, set_json
from tests.pki.certificates import Legacy

NAMESPACE: Final = "test"
NOW: Final = datetime(2026, 1, 10, tzinfo=UTC)
CALLER: Final = "admin"
OWN: Final = f"system:serviceaccount:{NAMESPACE}:rollout-operator"
SECRET: Final = "rollout-operator-self-signed-certificate"
ADMISSION_DENIED: Final = 'admission webhook "zpdb" denied the request: no'


def deployment(*arguments: str) -> JsonObject:
    """Return the Deployment of an operator."""
    container: JsonObject = {"image": "example.com/rollout-operator:1", "args": [*arguments]}
    template: JsonObject = {
        "spec": {"serviceAccountName": "rollout-operator", "containers": [container]}
    }
    return {
        "metadata": {"name": "rollout-operator"},
        "spec": {"replicas": 1, "template": template},
        "status": {"readyReplicas": 1},
    }


def configuration(path: str, ca: bytes = b"") -> JsonObject:
    """Return a webhook configuration of the operator."""
    client: JsonObject = {
        "service": {"name": "rollout-operator", "namespace": NAMESPACE, "path": path}
    }
    if ca:
        client["caBundle"] = b64encode(ca).decode()
    name = path.rpartition("/")[2]
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "webhooks": [{"name": f"{name}.grafana.com", "clientConfig": client}],
    }


def _zone(name: str) -> JsonObject:
    zone = set_json(name)
    spec = zone["spec"]
    assert isinstance(spec, dict)
    spec["template"] = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}
    return zone


class Cluster(FakeClient):
    """An API server that answers reviews and dry runs, and may deny any of it."""

    def __init__(self, *, caller: str = CALLER, denied: Sequence[str] = ()) -> None:
        super().__init__([_zone("zone-a"), _zone("zone-b")], [])
        self.caller = caller
        self.denied = set(denied)
        self.missing_verbs: set[str] = set()
        self.answers: Mapping[str, ApiError] = {}
        self.reviews: list[JsonObject] = []
        self.tried: list[tuple[str, JsonObject]] = []
        self.before = self._deny
        self.put("namespaces", {"metadata": {"name": NAMESPACE}})
        self.put("deployments", deployment("-server-tls.enabled=true"))

    def _deny(self, call: str) -> None:
        verb, _, rest = call.partition(" ")
        what = rest.partition("/")[0].partition(" ")[0]
        if what in self.denied:
            raise Denied(f"cannot {verb} {what}", status=403)

    def put(self, plural: str, one: JsonObject) -> None:
        head = one["metadata"]
        assert isinstance(head, dict)
        super().put(plural, {**one, "metadata": {"labels": {}, **head}})

    def server_time(self) -> datetime | None:
        return None

    async def fetch_page(
        self, resource: Resource, namespace: str, *, token: str = "", **how: object
    ) -> Page:
        return await super().fetch_page(resource, namespace, limit=1, token=token)

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes:
        self._deny(f"create {resource.plural}")
        self.reviews.append({"plural": resource.plural, "namespace": namespace, **body})
        if resource.plural == "selfsubjectreviews":
            return msgspec.json.encode({"status": {"userInfo": {"username": self.caller}}})
        spec = msgspec.json.encode(body["spec"]).decode()
        allowed = not any(f'"verb":"{verb}"' in spec for verb in self.missing_verbs)
        return msgspec.json.encode({"kind": resource.kind, "status": {"allowed": allowed}})

    async def try_create(
        self,
        resource: Resource,
        namespace: str,
        body: JsonObject,
        name: str = "",
        subresource: str = "",
    ) -> None:
        parts = (resource.plural, name, subresource)
        self._try(f"create {'/'.join(part for part in parts if part)}", body)

    async def try_patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject,
        subresource: str = "",
    ) -> None:
        self._try(f"patch {resource.plural}/{name}/{subresource}", patch)

    def _try(self, call: str, body: JsonObject) -> None:
        self.tried.append((call, body))
        if call in self.answers:
            raise self.answers[call]


async def read(cluster: Cluster) -> Installation:
    return await read_installation(cluster, NAMESPACE, NOW)


async def test_everything_is_read_and_nothing_written() -> None:
    data = Legacy().data()
    cluster = Cluster()
    secret = {key: b64encode(value).decode() for key, value in data.items()}
    cluster.put("secrets", {"metadata": {"name": SECRET}, "data": secret})
    cluster.put(
        "validatingwebhookconfigurations", configuration("/admission/no-downscale", data["ca"])
    )
    cluster.put("validatingwebhookconfigurations", configuration("/another/image"))
    installation = await read(cluster)

    assert installation.unread == {}
    assert [one.sts.name for one in installation.sets] == ["zone-a", "zone-b"]
    (hook,) = installation.own_hooks
    assert hook.bundle is not None
    assert hook.bundle.vouches is True
    writes = [call for call in cluster.calls if call.partition(" ")[0] not in {"get", "list"}]
    assert writes == []


async def test_a_secret_that_is_not_served_from_is_compared_with_nothing() -> None:
    cluster = Cluster()
    files = "-server-tls.self-signed-cert.enabled=false"
    cluster.put("deployments", deployment("-server-tls.enabled=true", files))
    ca = Legacy().data()["ca"]
    cluster.put("validatingwebhookconfigurations", configuration("/admission/no-downscale", ca))
    (hook,) = (await read(cluster)).own_hooks

    assert hook.bundle is not None
    assert hook.bundle.vouches is None
    assert not any("secrets" in call for call in cluster.calls)


async def test_dep88_what_is_tried_is_scaled_by_one_and_refused_by_budgets() -> None:
    cluster = Cluster()
    for path in ("/admission/no-downscale", "/admission/zpdb-validation"):
        cluster.put("validatingwebhookconfigurations", configuration(path))
    budgets = "create zoneawarepoddisruptionbudgets"
    cluster.answers = {budgets: Refused(ADMISSION_DENIED)}
    installation = await read(cluster)

    calls = [call for call, _ in cluster.tried]
    assert calls == [budgets, "patch statefulsets/zone-a/scale", "create pods", "create pods"]
    assert cluster.tried[1][1] == {"spec": {"replicas": 2}}
    assert [(one.must_be_refused, one.error) for one in installation.reach] == [
        (True, ADMISSION_DENIED),
        (False, ""),
    ]


async def test_dep88_an_eviction_says_twice_that_it_is_none() -> None:
    cluster = Cluster()
    cluster.put("validatingwebhookconfigurations", configuration("/admission/pod-eviction"))
    refused = Refused('failed calling webhook "pod-eviction": connection refused')
    cluster.answers = {"create pods/zone-a-0/eviction": refused}
    diagnosis = await examine(cluster, NAMESPACE, NOW)

    assert cluster.tried[0][1]["deleteOptions"] == {"dryRun": ["All"]}
    assert diagnosis.has(FindingCode.WEBHOOK_UNREACHABLE)


async def test_dep88_no_answer_is_a_time_out() -> None:
    cluster = Cluster()
    cluster.put("validatingwebhookconfigurations", configuration("/admission/no-downscale"))
    cluster.answers = {"patch statefulsets/zone-a/scale": UnknownOutcome("timed out after 15s")}
    diagnosis = await examine(cluster, NAMESPACE, NOW)

    assert diagnosis.has(FindingCode.WEBHOOK_TIMED_OUT)


async def test_pods_are_tried_with_the_volumes_of_their_claims() -> None:
    cluster = Cluster()
    zone = cluster.objects["statefulsets", "zone-a"]
    spec = zone["spec"]
    assert isinstance(spec, dict)
    spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}}]
    spec["template"] = {"metadata": {"labels": {"a": "b"}}, "spec": {"volumes": [{"name": "tmp"}]}}
    cluster.answers = {"create pods": Refused('violates PodSecurity "restricted"')}
    installation = await read(cluster)

    pod = cluster.tried[0][1]
    assert pod["metadata"] == {
        "generateName": "zone-a-doctor-",
        "labels": {"a": "b"},
    }
    assert pod["spec"] == {
        "volumes": [
            {"name": "tmp"},
            {"name": "data", "persistentVolumeClaim": {"claimName": "doctor"}},
        ]
    }
    assert [one.set_name for one in installation.pod_trials] == ["zone-a", "zone-b"]


async def test_a_right_is_reviewed_for_the_account_and_its_groups() -> None:
    cluster = Cluster()
    cluster.missing_verbs = {"delete"}
    diagnosis = await examine(cluster, NAMESPACE, NOW)

    (missing,) = [one for one in diagnosis.findings if one.code is FindingCode.RIGHT_MISSING]
    assert "delete pods" in missing.text
    spec = cluster.reviews[1]["spec"]
    assert isinstance(spec, dict)
    assert spec["user"] == OWN
    assert f"system:serviceaccounts:{NAMESPACE}" in spec["groups"]


@pytest.mark.parametrize(
    ("caller", "denied", "requested"),
    [
        (CALLER, (), {"subjectaccessreviews"}),
        (CALLER, ("subjectaccessreviews",), {"localsubjectaccessreviews"}),
        (OWN, ("deployments", "subjectaccessreviews"), {"selfsubjectaccessreviews"}),
    ],
)
async def test_rights_are_reviewed_as_the_caller_may(
    caller: str, denied: Sequence[str], requested: set[str]
) -> None:
    cluster = Cluster(caller=caller, denied=denied)
    installation = await read(cluster)

    found = {str(one["plural"]) for one in cluster.reviews} - {"selfsubjectreviews"}
    assert found == requested
    assert installation.rights
    assert Source.RIGHTS not in installation.unread
    is_local = requested == {"localsubjectaccessreviews"}
    assert (Source.CLUSTER_RIGHTS in installation.unread) is is_local


@pytest.mark.parametrize(
    ("plural", "sources"),
    [
        ("namespaces", {Source.NAMESPACE}),
        ("statefulsets", {Source.STATEFULSETS, Source.POD_TRIALS}),
        ("deployments", {Source.DEPLOYMENTS, Source.RIGHTS, Source.CLUSTER_RIGHTS}),
        ("mutatingwebhookconfigurations", {Source.WEBHOOKS, Source.REACH}),
        ("leases", set[Source]()),
        ("secrets", set[Source]()),
    ],
)
async def test_what_may_not_be_read_is_recorded(plural: str, sources: set[Source]) -> None:
    installation = await read(Cluster(denied=(plural,)))

    assert {*installation.unread} == sources


async def test_kinds_that_the_cluster_does_not_know_are_none() -> None:
    cluster = Cluster()

    def lacks(call: str) -> None:
        if "zoneaware" in call:
            raise NotFound(call, status=404)

    cluster.before = lacks
    installation = await read(cluster)

    assert (installation.zone_budgets, installation.unread) == ((), {})


async def test_no_namespace_is_found_and_nothing_else_read() -> None:
    cluster = Cluster()
    del cluster.objects["namespaces", NAMESPACE]
    diagnosis = await examine(cluster, NAMESPACE, NOW)

    assert [one.code for one in diagnosis.findings] == [FindingCode.NAMESPACE_MISSING]
    assert (len(cluster.calls), cluster.tried) == (1, [])
    assert (diagnosis.passed, len(diagnosis.skipped)) == (0, len(CHECKS) - 1)
    assert {one.why for one in diagnosis.skipped} == {f"namespace {NAMESPACE} does not exist"}


@pytest.mark.parametrize(
    ("denied", "unneeded"),
    [
        pytest.param((), (), id="nothing"),
        pytest.param(("multiazrollouts",), (Source.POLICIES,), id="policies"),
        pytest.param(("rollouts",), (Source.RELEASES,), id="releases"),
        pytest.param(
            ("multiazrollouts", "rollouts"), (Source.POLICIES, Source.RELEASES), id="both"
        ),
    ],
)
async def test_a_check_of_what_may_not_be_read_has_not_passed(
    denied: Sequence[str], unneeded: Sequence[Source]
) -> None:
    """It is no failure either: most users need no right to read these."""
    good, found = [await examine(Cluster(denied=each), NAMESPACE, NOW) for each in ((), denied)]

    left_out = sum(not {*unneeded}.isdisjoint(check.needs) for check in CHECKS)
    assert (found.passed, found.unneeded) == (good.passed - left_out, left_out)
    assert (found.findings, found.skipped) == (good.findings, good.skipped)


@pytest.mark.parametrize("error", [Unreachable("down"), Denied("who are you", status=401)])
async def test_an_api_server_that_cannot_be_reached_is_an_error(error: ApiError) -> None:
    cluster = Cluster()

    def fail(call: str) -> None:
        raise error

    cluster.before = fail
    with pytest.raises(type(error)):
        await read(cluster)
