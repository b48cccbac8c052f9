"""What the shipped manifests must agree on: among themselves, with the code, and with the pages."""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES

import rollout_operator
from rollout_operator.config.checks import read_config
from rollout_operator.config.flags import read_environment
from rollout_operator.gates.model import Status
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, ZONE_BUDGETS
from rollout_operator.model.budget import BudgetStatus, StatusCondition
from rollout_operator.model.decode.adoption import decode_adoptable
from rollout_operator.model.decode.custom import decode_policy
from rollout_operator.model.names import TOPOLOGY_KEYS
from rollout_operator.model.policy import Policy, PolicyStatus
from rollout_operator.operator import reviews
from rollout_operator.releases.model.plan import HealthCheckStatus
from rollout_operator.releases.model.releases import HistoryEntry, ReleaseStatus, ScheduleStatus
from rollout_operator.releases.planning.flux import JUDGED
from tests.code_rules import ROOT
from tests.kustomize import Object, render
from tests.pages import chapter_of, example_of
from tests.rendered import (
    BASE,
    CERTIFICATES,
    DEPLOYMENTS,
    LEAST,
    MANIFESTS,
    MONITORING,
    MUTATING,
    NAMESPACE,
    NETWORK_PARAMETERS,
    NODE_LABELS,
    POLICIES,
    VALIDATING,
    WEBHOOKS,
    Rendered,
    by_name,
    container_of,
    default,
    get_field,
    granted,
    install,
    leaves,
    list_fields,
)
from tests.test_packaging import make

pytestmark = pytest.mark.controlplane  # for kubectl, which is built like it

COMPONENTS: Final = sorted(path.parent.name for path in MANIFESTS.glob("components/*/kusto*.yaml"))
AFTER_WEBHOOKS: Final = (LEAST, DEPLOYMENTS, CERTIFICATES)
AFTER_LEAST: Final = "health-checks-webhook"
ALL: Final = (
    *(WEBHOOKS, LEAST, AFTER_LEAST),
    *(one for one in COMPONENTS if one not in (WEBHOOKS, LEAST, AFTER_LEAST)),
)
KINDS_OF_RELEASES: Final = MANIFESTS / "crds" / "releases"
KINDS_OF_HEALTH_CHECKS: Final = MANIFESTS / "crds" / "health-checks"
OVERLAYS: Final = MANIFESTS / "overlays"
FOLDERS: Final = (
    *(MANIFESTS / "crds", KINDS_OF_RELEASES, KINDS_OF_HEALTH_CHECKS, BASE, MANIFESTS / "shadow"),
    *sorted(path.parent for path in OVERLAYS.glob("*/kustomization.yaml")),
    *sorted(path.parent for path in MANIFESTS.glob("components/*/kustomization.yaml")),
)
POLICY_PAGE: Final = MANIFESTS / "multi-az-rollouts"
POLICY_NAMESPACE: Final = "grafana-rollout-operator"
RBAC: Final = "rbac.authorization.k8s.io"
# What kubectl's own examples and Flux's guides apply, of a kind that has no health of its own.
ORDINARY: Final = {
    *(("", "Namespace"), ("", "ServiceAccount"), (RBAC, "Role"), (RBAC, "RoleBinding")),
    *((RBAC, "ClusterRole"), (RBAC, "ClusterRoleBinding"), ("batch", "CronJob")),
    *(("networking.k8s.io", "Ingress"), ("networking.k8s.io", "NetworkPolicy")),
    *(("policy", "PodDisruptionBudget"), ("autoscaling", "HorizontalPodAutoscaler")),
    ("kustomize.toolkit.fluxcd.io", "Kustomization"),
    *(("helm.toolkit.fluxcd.io", "HelmRelease"), ("source.toolkit.fluxcd.io", "OCIRepository")),
}


def install_all(at: Path, namespace: str = NAMESPACE) -> Rendered:
    return by_name(install(at, *ALL, namespace=namespace, more=[NETWORK_PARAMETERS]))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    return install_all(tmp_path_factory.mktemp("everything"))


@pytest.mark.parametrize("name", ["base", "shadow", "multi-az-rollouts", "everything"])
def test_parts_lead_to_one_another(everything: Rendered, name: str) -> None:
    """DEP-12, DEP-78, SEED-008: by labels, names of ports, roles and accounts."""
    objects = everything if name == "everything" else by_name(render(MANIFESTS / name))
    (deployment,) = (one for (kind, _), one in objects.items() if kind == "Deployment")
    pod = deployment["spec"]["template"]
    labels, container = pod["metadata"]["labels"], pod["spec"]["containers"][0]
    ports = {one[key] for one in container["ports"] for key in ("name", "containerPort")}
    selectors = [deployment["spec"]["selector"]["matchLabels"]]
    bound, roles = set(), set()
    for (kind, own), one in objects.items():
        if kind == "Service":
            selectors.append(one["spec"]["selector"])
            assert {port["targetPort"] for port in one["spec"]["ports"]} <= ports
        if kind == "PodDisruptionBudget":
            selectors.append(one["spec"]["selector"]["matchLabels"])
        if kind.endswith("RoleBinding"):
            bound.add((one["roleRef"]["kind"], one["roleRef"]["name"]))
            (subject,) = one["subjects"]
            assert ("ServiceAccount", subject["name"]) in objects
            assert subject["name"] == pod["spec"]["serviceAccountName"]
        if kind.endswith("Role"):
            assert not [right for right in granted(one) if "*" in right]
            # The rules of these are in another, which is bound.
            if not any("/aggregate-to-" in label for label in one["metadata"]["labels"]):
                roles.add((kind, own))
    spread = pod["spec"].get("topologySpreadConstraints", ())
    selectors += [one["labelSelector"]["matchLabels"] for one in spread]
    assert all(selector.items() <= labels.items() for selector in selectors)
    assert bound == roles
    probes = [container[f"{one}Probe"] for one in ("startup", "liveness", "readiness")]
    assert {probe["httpGet"]["port"] for probe in probes} <= ports


def test_si25_no_service_of_another_operator_leads_to_the_shadow() -> None:
    """SI-25: neither by our labels nor by `name`, which grafana's Services request."""
    shadow, base = by_name(render(MANIFESTS / "shadow")), by_name(render(BASE))
    labels = shadow["Deployment", "rollout-operator-shadow"]["spec"]["template"]["metadata"]

    assert "name" not in labels["labels"]
    selector = base["Service", "rollout-operator"]["spec"]["selector"]
    assert not selector.items() <= labels["labels"].items()


def test_the_operator_understands_its_arguments(everything: Rendered) -> None:
    """DEPLOY-11, DEP-17, SEC-03, SEC-20, DEP-34, DEP-92: and serves the ports that are named."""
    container = container_of(everything)
    words = [word.replace("$(POD_NAMESPACE)", NAMESPACE) for word in container["args"]]
    config = read_config(words)
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}

    assert (config.namespace, config.webhooks_enabled, config.zone_tracker) == (
        *(NAMESPACE, True),
        default("zone-tracker.config-map-name"),
    )
    assert config.drives_releases
    assert ports == {
        "http-metrics": config.server_port,
        "https": default("server-tls.port"),
        "https-peers": default("server-tls.peer-port"),
    }
    served = {one["port"] for one in everything["Service", "rollout-operator"]["spec"]["ports"]}
    assert served == {443, config.server_port}
    assert config.dns_name == ""
    # Each configuration of both kinds, since the flag names no kind.
    hooks = {name for kind, name in everything if kind in {VALIDATING, MUTATING}}
    assert [*config.bundle_names] == [*dict.fromkeys(config.bundle_names)]
    assert {*config.bundle_names} == hooks
    for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        role = granted(everything["ClusterRole", f"rollout-operator-{NAMESPACE}-webhooks"])
        assert {name for kind, verb, name in role if (kind, verb) == (plural, "patch")} == hooks
    (mount,) = container["volumeMounts"]
    assert config.client_ca_file == f"{mount['mountPath']}/ca.crt"
    command = example_of("webhooks.md", "kubectl create configmap")
    assert command.endswith(" rollout-operator-client-ca --from-file=ca.crt")


def test_webhooks_are_at_the_paths_that_are_served(everything: Rendered) -> None:
    """DEPLOY-15, DEP-86: an error of a condition refuses, so it looks before it reads."""
    hooks = [one["webhooks"][0] for one in everything.values() if "webhooks" in one]
    paths = {value for name, value in vars(reviews).items() if name.endswith("_PATH")}

    assert {one["clientConfig"]["service"]["path"] for one in hooks} == paths
    assert {one["failurePolicy"] for one in hooks} == {"Fail"}
    # Neither a Scale nor an eviction has labels: all would pass.
    assert not [one for one in hooks if "objectSelector" in one or "caBundle" in str(one)]
    for condition in (one for hook in hooks for one in hook["matchConditions"]):
        text = condition["expression"]
        reads = re.findall(r"\b(?:oldObject|object)(?:\.(?:spec|replicas|ordinals|start))+", text)
        assert all(f"has({read})" in text for read in reads)
        assert "labels" not in text
    # What the operator is made of, and what its webhooks guard, have nothing in common.
    assert not {kind for kind, _ in everything} & {"StatefulSet", "ZoneAwarePodDisruptionBudget"}


def test_the_namespace_reaches_everything(everything: Rendered, tmp_path: Path) -> None:
    """DEP-84, DEP-48: no placeholder is left, and two installations share no name."""
    texts = leaves([*everything.values()])
    other = install_all(tmp_path, "other")

    assert [text for text in texts if re.search(r"(^|-)namespace\b", text)] == []
    for one in everything.values():
        assert one["metadata"].get("namespace", NAMESPACE) == NAMESPACE
        assert {each["namespace"] for each in one.get("subjects", ())} <= {NAMESPACE}
    cluster = {key for key, one in everything.items() if "namespace" not in one["metadata"]}
    assert cluster
    assert not cluster & {*other}


def test_one_file_is_the_kinds_and_the_overlay_with_webhooks(tmp_path: Path) -> None:
    """DEP-84, D-78: one word moves it to another namespace; docs/install.md relies on it.

    But for the end of the name of a kind.
    """
    one = render(OVERLAYS / "install")
    kinds = render(MANIFESTS / "crds")
    text = yaml.safe_dump_all(one).replace("rollouts", NAMESPACE)
    moved = list(yaml.safe_load_all(text.replace(f"multiaz{NAMESPACE}", "multiazrollouts")))

    assert by_name(one) == by_name([*kinds, *render(OVERLAYS / "with-webhooks")])
    assert by_name(moved) == by_name([*kinds, *install(tmp_path, WEBHOOKS, LEAST)])


def test_overlays_have_the_least_rights_and_make_no_secret() -> None:
    """SEC-18, SEC-19, D-74, RBAC-07: in the cluster only for named objects."""
    for overlay in (one for one in FOLDERS if one.parent == OVERLAYS):
        for role in render(overlay):
            if role["kind"] == "ClusterRole":
                assert all(rule["resourceNames"] for rule in role["rules"]), overlay.name
            if role["kind"].endswith("Role"):
                assert ("secrets", "create", "") not in granted(role), overlay.name
            if role["kind"] == "Secret":
                assert {"data", "stringData"}.isdisjoint(role), "an apply would put it back"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_kustomization_lists_every_file_beside_it(folder: Path) -> None:
    """DEP-84, D-78: and only the first try has a namespace among them, of no Pod Security level."""
    files = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text()).get("resources", ())

    assert {entry for entry in listed if "/" not in entry} == files
    text = "".join((folder / name).read_text() for name in files)
    assert ("kind: Namespace\n" in text) is (folder.name == "development")
    assert "pod-security.kubernetes.io" not in text


def test_the_image_is_of_this_version() -> None:
    image = f"rollout-operator:{rollout_operator.__version__}"
    words = make("--dry-run", "image").stdout.split()

    assert container_of(by_name(render(BASE)))["image"] == image
    assert words[words.index("--tag") + 1] == image


def test_what_is_scraped_is_there(everything: Rendered) -> None:
    """DEP-78, DEP-74: and where a runbook is, which each alert has."""
    spec = everything["ServiceMonitor", "rollout-operator"]["spec"]
    service = everything["Service", "rollout-operator"]
    (endpoint,) = spec["endpoints"]

    assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    page = "http://rollout-operator.{{ $labels.namespace }}.svc:8001/status"
    assert list_runbooks(everything) == {page}


def list_runbooks(objects: Rendered) -> set[str]:
    """Return the pages of all alerts, each of which has its anchor there."""
    (group,) = objects["PrometheusRule", "rollout-operator"]["spec"]["groups"]
    pages = set()
    for rule in group["rules"]:
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert rule["alert"].removeprefix("rollout-operator").lower() == anchor
        pages.add(page)
    return pages


def test_another_page_is_named_as_the_document_says(tmp_path: Path) -> None:
    """The block in docs/monitoring.md, as it stands there."""
    install(tmp_path, MONITORING)
    path = tmp_path / "kustomization.yaml"
    block = example_of("monitoring.md", "replacements:")
    read = yaml.safe_load(path.read_text()) | yaml.safe_load(block)
    read["resources"].append("runbooks.yaml")
    path.write_text(yaml.safe_dump(read))
    runbook = {"page": "https://docs.example.com/rollout-operator/alerts"}
    metadata = {"name": "runbooks", "annotations": {"config.kubernetes.io/local-config": "true"}}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": runbook}
    (tmp_path / "runbooks.yaml").write_text(yaml.safe_dump(made))

    assert list_runbooks(by_name(render(tmp_path))) == {runbook["page"]}


def test_d78_the_pages_have_every_component_sentence_and_parameter() -> None:
    """DEP-84, DEP-77: what kustomize says is in misuse.txt, and each alert has its chapter."""
    page = (ROOT / "docs" / "install.md").read_text()
    rows = dict(line.split("|")[1:4:2] for line in page.splitlines() if line.startswith("| `"))
    printed = {name.strip(" `"): where.strip() for name, where in rows.items()}
    said = (Path(__file__).parent / "misuse.txt").read_text()

    after = {
        **dict.fromkeys(AFTER_WEBHOOKS, f"after `{WEBHOOKS}`"),
        AFTER_LEAST: f"after `{LEAST}`",
    }
    for name in COMPONENTS:
        assert printed[name] == after.get(name, "anywhere")
    sentences = re.findall(r"`((?:list|set) the [^`]+|already registered id)`", page)
    assert len(sentences) == 4
    assert [one for one in sentences if one not in said] == []
    assert NETWORK_PARAMETERS["metadata"]["name"] in page
    shown = yaml.safe_load(example_of("webhooks.md", "name: rollout-operator-network"))
    assert {*shown["data"]} == {*NETWORK_PARAMETERS["data"]}
    assert {**shown, "data": NETWORK_PARAMETERS["data"]} == NETWORK_PARAMETERS
    headings = re.findall(r"^### (\w+)$", chapter_of("monitoring.md", "Alerts"), re.MULTILINE)
    rules = (MANIFESTS / "components" / MONITORING / "prometheusrule.yaml").read_text()
    assert headings == re.findall(r"alert: rollout-operator(\w+)", rules)


# By kind: what is written of its status, by path.
STATUSES: Final[Mapping[str, Mapping[str, type[msgspec.Struct]]]] = {
    "zoneawarepoddisruptionbudgets": {"": BudgetStatus, "conditions": StatusCondition},
    "multiazrollouts": {"": PolicyStatus, "conditions": StatusCondition},
    "rollouts": {"": ReleaseStatus, "conditions": StatusCondition, "history": HistoryEntry},
    "rolloutschedules": {"": ScheduleStatus, "conditions": StatusCondition},
    "clusterrolloutschedules": {"": ScheduleStatus, "conditions": StatusCondition},
    "healthchecks": {"": HealthCheckStatus},
    "rollouthealthchecks": {"": Status},
}


def read_crds() -> dict[str, Object]:
    folders = (MANIFESTS / "crds", KINDS_OF_RELEASES, KINDS_OF_HEALTH_CHECKS)
    found = [one for folder in folders for one in render(folder)]
    return {one["spec"]["names"]["plural"]: one["spec"] for one in found}


def schema_of(plural: str) -> Object:
    schema: Object = get_field(read_crds()[plural], "versions.0.schema.openAPIV3Schema.properties")
    return schema


def test_maz_50_a_status_has_the_fields_that_are_written() -> None:
    """MAZ-50, REL-15: one that the schema lacks would be dropped, and written for ever."""
    for plural, parts in STATUSES.items():
        status = schema_of(plural)["status"]
        for path, struct in parts.items():
            _compare(status["properties"][path]["items"] if path else status, struct)


def _compare(schema: Object, struct: type[msgspec.Struct]) -> None:
    """Compare with the fields of a struct, and of those that it consists of."""
    fields = msgspec.structs.fields(struct)
    assert {*schema["properties"]} == {one.encode_name for one in fields}, struct
    for one in fields:
        inner = schema["properties"][one.encode_name]
        for part in _list_structs(one.type):
            _compare(inner.get("items", inner), part)


def _list_structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for part in getattr(kind, "__args__", ()):
        yield from _list_structs(part)


def test_kinds_are_as_the_operator_requests_them_and_explain_themselves() -> None:
    """ZPDB-01, DEPLOY-40, MAZ-81: `kubectl explain` has a text for each field."""
    crds = read_crds()
    for one in (ZONE_BUDGETS, REPLICA_TEMPLATES, MULTI_AZ_ROLLOUTS):
        spec = crds[one.plural]
        assert (spec["group"], spec["names"]["kind"]) == (one.group, one.kind)
        assert spec["versions"][0]["name"] == one.version
    silent = [
        f"{plural}.{path}"
        for plural in crds
        for part in ("spec", "status")
        for path, field in list_fields(schema_of(plural)[part], part)
        if "description" not in field
    ]
    assert silent == []
    # Of CEL Kubernetes 1.19 knows nothing.
    assert "x-kubernetes-validations" not in str(crds["multiazrollouts"])


def test_relb_28_what_kustomizations_usually_apply_may_be_read(everything: Rendered) -> None:
    """RELB-28: what may fail, and what else is ordinary; and no Secret."""
    role = everything["ClusterRole", f"rollout-operator-{NAMESPACE}-inventory-kinds"]
    plurals = {
        pair for rule in role["rules"] for pair in product(rule["apiGroups"], rule["resources"])
    }
    for group, kind in {*JUDGED, *ORDINARY}:
        names = (f"{kind}s", f"{kind}es", f"{kind[:-1]}ies")
        assert {(group, name.lower()) for name in names} & plurals, kind
    assert not {("", "secrets"), ("", "configmaps")} & plurals


def test_maz_83_the_operator_of_the_page_starts_with_nothing_but_its_environment() -> None:
    """MAZ-83, MAZ-84: it may what base and component may, and read nodes."""
    objects = by_name(render(POLICY_PAGE))
    container = container_of(objects)
    environ = {one["name"]: one["value"] for one in container["env"]}
    found = read_environment(environ, POLICY_NAMESPACE)
    config = read_config([], found)

    assert [config.server_port, config.extra_port] == [
        one["containerPort"] for one in container["ports"]
    ]
    assert (found.watched, found.own_namespace, found.warnings) == ((), POLICY_NAMESPACE, ())


def test_maz_84_rights_of_the_page_are_those_of_the_components(everything: Rendered) -> None:
    """MAZ-84: everywhere, but for the Lease, which is its own."""
    page, name = by_name(render(POLICY_PAGE)), "rollout-operator"
    base = granted(everything["Role", name]) | granted(everything["Role", f"{name}-{POLICIES}"])
    own = {one for one in base if one[0] == "leases"}
    nodes = everything["ClusterRole", f"{name}-{NAMESPACE}-nodes"]

    assert granted(page["Role", name]) == own
    assert granted(page["ClusterRole", name]) == base - own
    assert granted(page["ClusterRole", f"{name}-nodes"]) == granted(nodes)
    assert NODE_LABELS in COMPONENTS


def test_samples_are_groups_of_three_zones() -> None:
    """MAZ-83, MT-20: one pod at a time, half a minute between, three StatefulSets by a label."""
    decoders: dict[str, Any] = {"MultiAZRollout": decode_policy, "StatefulSet": decode_adoptable}
    head = {"namespace": "prod", "uid": "u1", "resourceVersion": "1"}
    policy, *sets = (
        decoders[one["kind"]](msgspec.json.encode({**one, "metadata": one["metadata"] | head}))
        for one in yaml.safe_load_all((POLICY_PAGE / "sample.yaml").read_text())
        if one["kind"] in decoders
    )

    assert isinstance(policy, Policy)
    assert policy.zone_order == ("us-west-2a", "us-west-2b", "us-west-2c")
    assert (policy.max_unavailable.of(3), policy.interval.total_seconds()) == (1, 30)
    assert [(one.replicas, one.strategy) for one in sets] == [(3, "OnDelete")] * 3
    assert all(policy.selector.may_take(one.labels) for one in sets)
    assert [one.node_selector[TOPOLOGY_KEYS[0]] for one in sets] == [*policy.zone_order]
    for each in render(OVERLAYS / "development"):
        if each["kind"] == "StatefulSet":
            labels = each["spec"]["template"]["metadata"]["labels"]
            assert each["spec"]["updateStrategy"] == {"type": "OnDelete"}
            assert each["spec"]["selector"]["matchLabels"] == labels
            assert labels["name"] == each["metadata"]["name"]
