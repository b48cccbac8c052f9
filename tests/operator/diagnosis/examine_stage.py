"""The commands of what `doctor` reads: an API server of a few dictionaries, and what it says.

There is a Deployment with webhooks in namespace `test`, beside zones a and b. `read` shows what
was missed; what follows shows more of the same reading.
"""

import json
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from rollout_operator.kube.api import JsonObject, Page, Resource
from rollout_operator.model.diagnosis import Diagnosis, Installation
from rollout_operator.model.names import (
    HEALTH_CHECK,
    ApiError,
    Denied,
    NotFound,
    Refused,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.operator.examine import examine, read_installation
from tests.controllers.fake_client import FakeClient, Json, set_json
from tests.pki.certificates import Legacy
from tests.stories import Steps

NAMESPACE: Final = "test"
NOW: Final = datetime(2026, 1, 10, tzinfo=UTC)
OWN: Final = f"system:serviceaccount:{NAMESPACE}:rollout-operator"
OLD: Final = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {}}}}
ERRORS: Final[dict[str, ApiError]] = {
    "unreachable": Unreachable("down"),
    "unauthorized": Denied("who are you", status=401),
    "timeout": UnknownOutcome("timed out after 15s"),
}
KINDS: Final = {
    "multiazrollouts": ("MultiAZRollout", "rollout.grafana.com"),
    "rollouthealthchecks": ("RolloutHealthCheck", "rollout-operator.grafana.com"),
    "zoneawarepoddisruptionbudgets": (
        "ZoneAwarePodDisruptionBudget",
        "rollout-operator.grafana.com",
    ),
    "rollouts": ("Rollout", "kuberik.com"),
    "rolloutgates": ("RolloutGate", "kuberik.com"),
    "healthchecks": ("HealthCheck", "kuberik.com"),
    "rolloutschedules": ("RolloutSchedule", "kuberik.com"),
    "clusterrolloutschedules": ("ClusterRolloutSchedule", "kuberik.com"),
    "imagepolicies": ("ImagePolicy", ""),
    "imagerepositories": ("ImageRepository", ""),
    "ocirepositories": ("OCIRepository", ""),
    "kustomizations": ("Kustomization", ""),
}


class Cluster(FakeClient):
    """An API server that answers reviews and dry runs, and may deny any of it."""

    def __init__(self) -> None:
        super().__init__([], [])
        self.caller = "admin"
        self.denied: set[str] = set()
        self.lacking: list[str] = []
        self.failing: ApiError | None = None
        self.missing_verb = ""
        self.answers: dict[str, ApiError] = {}
        self.reviews: list[JsonObject] = []
        self.tried: list[tuple[str, JsonObject]] = []
        self.before = self._deny

    def _deny(self, call: str) -> None:
        if self.failing is not None:
            raise self.failing
        verb, _, rest = call.partition(" ")
        what = rest.partition("/")[0].partition(" ")[0]
        if {what, call} & self.denied:
            raise Denied(f"cannot {verb} {what}", status=403)
        if what in self.lacking:
            raise NotFound(call, status=404)
        if f"{what} at first" in self.lacking:
            self.lacking.remove(f"{what} at first")
            raise NotFound(call, status=404)

    def server_time(self) -> datetime | None:
        return None

    async def fetch_page(
        self, resource: Resource, namespace: str, *, token: str = "", **how: object
    ) -> Page:
        page = await super().fetch_page(resource, namespace, limit=1, token=token)
        if resource.plural != "deployments" or not namespace:
            return page
        places = [
            msgspec.json.decode(item)["metadata"].get("namespace", namespace) for item in page.items
        ]
        here = [item for item, place in zip(page.items, places, strict=True) if place == namespace]
        return Page(items=here, resource_version="1", next_token=page.next_token)

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes:
        self._deny(f"create {resource.plural}")
        self.reviews.append({"plural": resource.plural, **body})
        if resource.plural == "selfsubjectreviews":
            return msgspec.json.encode({"status": {"userInfo": {"username": self.caller}}})
        spec = msgspec.json.encode(body["spec"]).decode()
        allowed = not self.missing_verb or f'"verb":"{self.missing_verb}"' not in spec
        return msgspec.json.encode({"kind": resource.kind, "status": {"allowed": allowed}})

    async def try_write(
        self,
        verb: str,
        resource: Resource,
        namespace: str,
        body: JsonObject,
        name: str = "",
        subresource: str = "",
    ) -> None:
        call = "/".join(filter(None, (f"{verb} {resource.plural}", name, subresource)))
        self.tried.append((call, body))
        if call in self.answers:
            raise self.answers[call]


class ExamineStage(Steps):
    """A cluster before `doctor`."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.found: Installation | None = None
        self.ca = Legacy().data()

    async def set_up(self) -> None:
        self._put("namespaces", {"metadata": {"name": NAMESPACE}})
        await self.do_operator("-server-tls.enabled=true")
        self._put("secrets", {"metadata": {"name": "rollout-operator-self-signed-certificate"}})
        for name in ("zone-a", "zone-b"):
            zone = set_json(name)
            template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}
            zone["spec"]["template"] = template
            self._put("statefulsets", zone)

    # What there is

    async def do_operator(self, *words: str) -> None:
        """Have the operator be started with these flags, `in=`, `image=`, `watches=` these."""
        image = "example.com/rollout-operator:1"
        given = {"in": NAMESPACE, "name": "rollout-operator", "image": image}
        given |= dict(word.split("=", 1) for word in words if not word.startswith("-"))
        container: Json = {"image": given["image"], "args": [w for w in words if w[0] == "-"]}
        if "watches" in given:
            container["env"] = [{"name": "WATCH_NAMESPACE", "value": given["watches"]}]
        pod = {"serviceAccountName": "rollout-operator", "containers": [container]}
        body = {
            "metadata": {"name": given["name"], "namespace": given["in"]},
            "spec": {"replicas": int(given.get("replicas", 1)), "template": {"spec": pod}},
            "status": {"readyReplicas": 1},
        }
        self._put("deployments", body)

    async def do_webhook(self, name: str, *ca: str) -> None:
        """Add a webhook of this path, with our CA if `ca` is said."""
        service = {"name": "rollout-operator", "namespace": NAMESPACE, "path": f"/admission/{name}"}
        bundle = {"caBundle": b64encode(self.ca["ca"]).decode()} if ca else {}
        client: Json = {"service": service, **bundle}
        hooks = [{"name": f"{name}.grafana.com", "clientConfig": client}]
        head = {"name": name, "uid": name, "resourceVersion": "1"}
        self._put("validatingwebhookconfigurations", {"metadata": head, "webhooks": hooks})

    async def do_secret(self) -> None:
        data = {key: b64encode(value).decode() for key, value in self.ca.items()}
        head = {"name": "rollout-operator-self-signed-certificate"}
        self._put("secrets", {"metadata": head, "data": data})

    async def do_put(self, plural: str, name: str, spec: str = "{}", more: str = "{}") -> None:
        """Add an object."""
        own = {} if plural.startswith("cluster") else {"namespace": NAMESPACE}
        head = {"name": name, "uid": name, "resourceVersion": "1", **own}
        kind = KINDS[plural][0]
        one = {"kind": kind, "metadata": head, "spec": json.loads(spec), **json.loads(more)}
        self._put(plural, one)

    async def do_bind(self, name: str, check: str) -> None:
        """Bind a StatefulSet to a health check."""
        metadata = self.cluster.objects["statefulsets", name]["metadata"]
        metadata["annotations"] = {HEALTH_CHECK: check}

    async def do_makes(self) -> None:
        """Have the operator make releases, and a Rollout."""
        await self.do_operator("-releases.enabled")
        await self.do_put("rollouts", "app", '{"releasesImagePolicy": {"name": "app"}}')

    async def do_defined(self, plural: str, *versions: str) -> None:
        """Have a kind be defined with an old schema, served in these versions and not in v0."""
        served = [{"name": one, "served": True, "schema": OLD} for one in versions]
        head = {"name": f"{plural}.{KINDS[plural][1]}"}
        spec = {"versions": [*served, {"name": "v0", "served": False}]}
        self._put("customresourcedefinitions", {"metadata": head, "spec": spec})

    async def do_all_defined(self) -> None:
        for plural, (_, group) in KINDS.items():
            if group:
                version = "v1" if group.startswith("rollout-operator.") else "v1alpha1"
                await self.do_defined(plural, version)

    async def do_claims(self) -> None:
        """Have the pods of zone a get volumes by a claim, and a volume of their own."""
        spec = self.cluster.objects["statefulsets", "zone-a"]["spec"]
        spec["volumeClaimTemplates"] = [{"metadata": {"name": "data"}}]
        spec["template"]["spec"] = {"volumes": [{"name": "tmp"}]}

    async def do_no_namespace(self) -> None:
        del self.cluster.objects["namespaces", NAMESPACE]

    async def do_deny(self, *what: str) -> None:
        self.cluster.denied |= {*what}

    async def do_lacks(self, *plurals: str) -> None:
        """Have kinds not be there, or only not in the newest version: `KIND at first`."""
        self.cluster.lacking += plurals

    async def do_fails(self, error: str) -> None:
        self.cluster.failing = ERRORS[error]

    async def do_may_not(self, verb: str) -> None:
        """Have the operator have no right to a verb."""
        self.cluster.missing_verb = verb

    async def do_as_operator(self) -> None:
        """Ask in the name of the operator itself."""
        self.cluster.caller = OWN

    async def do_answer(self, call: str, answer: str) -> None:
        """Have a dry run be refused with this."""
        self.cluster.answers[call] = ERRORS.get(answer) or Refused(answer)

    def _put(self, plural: str, one: Json) -> None:
        self.cluster.put(plural, {**one, "metadata": {"labels": {}, **one["metadata"]}})

    # What is found

    async def do_read(self) -> str:
        try:
            self.found = await read_installation(self.cluster, NAMESPACE, NOW)
        except ApiError as error:
            return type(error).__name__
        return "misses " + (" ".join(sorted(map(str, self.found.unread))) or "nothing")

    async def do_of(self, *fields: str) -> str:
        """Show fields of what was read, of objects their names."""
        return ", ".join(f"{field} {_name(self._follow(field))}" for field in fields)

    def _follow(self, path: str) -> Any:
        found: Any = self.found
        for word in path.split("."):
            found = getattr(found, word)
        return found

    async def do_hooks(self) -> str:
        """Show whether the CA of each webhook is the one that is served from."""
        assert self.found is not None
        bundles = [one.bundle for one in self.found.own_hooks]
        return " ".join(f"vouches {one.vouches}" for one in bundles if one) or "no CA"

    async def do_rights(self) -> str:
        """Show by which reviews rights were asked for, and of whom."""
        found = [(one["plural"], one.get("spec", {})) for one in self.cluster.reviews]
        kinds = {str(kind) for kind, _ in found} - {"selfsubjectreviews"}
        users = {
            f"{spec['user']} in {' '.join(map(str, spec['groups']))}"
            for _, spec in found
            if isinstance(spec, dict) and "user" in spec
        }
        return ", ".join([*sorted(kinds), *sorted(users)])

    async def do_asked(self, *resources: str) -> str:
        """Show in which namespaces rights to these were asked for."""
        found: dict[str, set[str]] = {one: set() for one in resources}
        for review in self.cluster.reviews:
            spec: Any = review.get("spec", {})
            asked = spec.get("resourceAttributes", {})
            found.get(asked.get("resource", ""), set()).add(asked.get("namespace") or "the cluster")
        return ", ".join(f"{one} in {' '.join(sorted(found[one])) or 'none'}" for one in resources)

    async def do_tried(self) -> str:
        """Show what was tried."""
        return ", ".join(call for call, _ in self.cluster.tried) or "nothing tried"

    async def do_body(self, number: str) -> str:
        """Show a body that was tried."""
        return json.dumps(self.cluster.tried[int(number)][1])

    async def do_reach(self) -> str:
        assert self.found is not None
        return ", ".join(
            f"{'must be refused' if one.must_be_refused else 'reached'} {one.error}".strip()
            for one in self.found.reach
        )

    async def do_calls(self, *words: str) -> str:
        """Show how many calls there were, or which have one of these words."""
        if not words:
            return f"{len(self.cluster.calls)} calls"
        found = [one for one in self.cluster.calls if any(word in one for word in words)]
        return ", ".join(dict.fromkeys(one.strip() for one in found)) or "no such call"

    async def do_writes(self) -> str:
        calls = self.cluster.calls
        return ", ".join(c for c in calls if c.split()[0] not in ("get", "list")) or "no write"

    async def do_examine(self, *objects: str) -> str:
        """Show what is found, beside rights and what a bare cluster lacks, or of some objects."""
        diagnosis = await self._examine()
        found = [one for one in diagnosis.findings if not objects or one.object in objects]
        return ", ".join(f"{one.code} {one.object}".strip() for one in found) or "nothing found"

    async def do_says(self, code: str) -> str:
        """Show the texts of what is found of a code."""
        diagnosis = await self._examine()
        return " / ".join(one.text for one in diagnosis.findings if str(one.code) == code)

    async def do_skips(self) -> str:
        """Show how many checks are skipped, and why."""
        diagnosis = await self._examine()
        whys = dict.fromkeys(one.why for one in diagnosis.skipped)
        return f"passed {min(diagnosis.passed, 1)}+, skipped: {' / '.join(whys) or 'none'}"

    async def do_beside(self) -> str:
        """Show how many checks of what may not be read are left out, and else all is the same."""
        denied, self.cluster.denied = self.cluster.denied, set()
        good = await self._examine()
        self.cluster.denied = denied
        found = await self._examine()
        assert (found.findings, found.skipped) == (good.findings, good.skipped)
        assert found.passed == good.passed - found.unneeded
        return f"{found.unneeded} unneeded"

    async def _examine(self) -> Diagnosis:
        return await examine(self.cluster, NAMESPACE, NOW)


def _name(found: Any) -> str:
    if isinstance(found, tuple | list):
        return " ".join(map(_name, found)) or "none"
    for name in ("sts.name", "title", "head.name", "set_name", "name"):
        one = found
        for word in name.split("."):
            one = getattr(one, word, None)
        if isinstance(one, str):
            return one
    if isinstance(found, dict | frozenset):
        return " ".join(sorted(found)) or "none"
    return f"{found}"
