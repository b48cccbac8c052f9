"""What the chart does beyond grafana's, and what it refuses."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from rollout_operator.cli.main import get_command
from rollout_operator.config.checks import read_config
from rollout_operator.config.flags import Config
from tests.chart.rendering import (
    CHART,
    RELEASE,
    ChartError,
    Values,
    is_hook,
    render_all,
    render_chart,
    run_helm,
)
from tests.chart.test_chart_grafana_values import CONTAINER, POD
from tests.code_rules import ROOT
from tests.rendered import NAMESPACE, get_field, granted

pytestmark = pytest.mark.controlplane

SECURITY: Final = (ROOT / "SECURITY.md").read_text()
HOOK_LABELS: Final = {
    "app.kubernetes.io/part-of": "rollout-operator",
    "app.kubernetes.io/component": "hooks",
}
DIGEST: Final = f"sha256:{'a' * 64}"
# No value here stands in the way of another.
CHANGED: Final[Values] = {
    "global": {"imageRegistry": "mirror.io", "imagePullSecrets": ["one"], "unknown": 1},
    "imagePullSecrets": ["one", {"name": "two"}],
    "image": {"digest": DIGEST, "registry": "not.here"},
    "hostNetwork": True,
    "deploymentStrategy": {"type": "Recreate"},
    "terminationGracePeriodSeconds": 40,
    "dnsConfig": {"searches": ["a.b"]},
    "topologySpreadConstraints": [{"topologyKey": "rack"}],
    "livenessProbe": {"periodSeconds": 20},
    "extraVolumes": [{"name": "v"}],
    "extraVolumeMounts": [{"name": "v", "mountPath": "/v"}],
    "extraContainers": [{"name": "c"}],
    "extraObjects": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-x"}}
    ],
    "log": {"level": "warn", "format": "json"},
    "limits": {
        "clientQps": 0,
        "clientBurst": 50,
        "clientTimeout": "1m",
        "podsTimeout": "7s",
        "reconcileInterval": "9s",
    },
    "clusterDomain": "example.",
    "tracing": {"endpoint": "http://otel:4318"},
    "rbac": {"extraRules": [{"apiGroups": ["x"], "resources": ["things"], "verbs": ["see"]}]},
    "mirroring": {"kinds": [{"apiGroup": "apps", "resource": "deployments"}]},
    "zoneTracker": {"enabled": True, "configMapName": "times"},
    "webhooks": {
        "port": 9443,
        "annotations": {"a": "b"},
        "failurePolicy": "Ignore",
        "createSecret": False,
        "selfSignedCertExpiration": "2w",
        "noDownscale": {"failClosed": True, "failurePolicy": "Fail", "timeoutSeconds": 3},
        "podEviction": {"enabled": False},
    },
    "zoneAwarePodDisruptionBudgets": {
        "ingester": {"selector": {"matchLabels": {"rollout-group": "ingester"}}}
    },
    "serviceMonitor": {"enabled": True, "namespace": "other", "jobLabel": False},
}
FIELDS: Final[dict[str, Any]] = {
    f"{CONTAINER}.image": f"mirror.io/rollout-operator@{DIGEST}",
    f"{POD}.imagePullSecrets": [{"name": "one"}, {"name": "two"}],
    f"{POD}.dnsPolicy": "ClusterFirstWithHostNet",
    f"{POD}.dnsConfig": {"searches": ["a.b"]},
    f"{POD}.topologySpreadConstraints": [{"topologyKey": "rack"}],
    f"{POD}.terminationGracePeriodSeconds": 40,
    f"{POD}.volumes": [{"name": "v"}],
    f"{POD}.containers.1": {"name": "c"},
    f"{CONTAINER}.volumeMounts": [{"name": "v", "mountPath": "/v"}],
    f"{CONTAINER}.livenessProbe.periodSeconds": 20,
    f"{CONTAINER}.livenessProbe.timeoutSeconds": 5,
    f"{CONTAINER}.env.3": {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://otel:4318"},
    f"{CONTAINER}.ports.1.containerPort": 9443,
    "spec.strategy": {"type": "Recreate"},
}


def test_dep47_dep79_values_of_our_own_have_their_effect() -> None:
    """DEP-44, DEP-46 to DEP-49, DEP-75, DEP-79, DEP-81: each changes what it says."""
    objects = {(one["kind"], one["metadata"]["name"]): one for one in render_chart(CHANGED)}
    deployment = objects["Deployment", RELEASE]
    assert {path: get_field(deployment, path) for path in FIELDS} == FIELDS
    assert read_config(get_field(deployment, f"{CONTAINER}.args")) == read_config(
        [
            f"-kubernetes.namespace={NAMESPACE}",
            "-server-tls.enabled",
            "-server-tls.port=9443",
            "-server-tls.self-signed-cert.secret-name=certificate",
            f"-server-tls.self-signed-cert.dns-name={RELEASE}.{NAMESPACE}.svc",
            "-server-tls.self-signed-cert.expiration=2w",
            "-no-downscale.fail-closed",
            f"-webhooks.ca-bundle-names={','.join(_configurations())}",
            "-use-zone-tracker",
            "-zone-tracker.config-map-name=times",
            "-log.level=warn",
            "-log.format=json",
            "-kubernetes.client-qps=0",
            "-kubernetes.client-burst=50",
            "-kubernetes.client-timeout=1m",
            "-pods.client-timeout=7s",
            "-reconcile.interval=9s",
            "-kubernetes.cluster-domain=example.",
        ]
    )
    rights = granted(objects["Role", RELEASE])
    for grant in (
        ("things", "see", ""),
        ("deployments/scale", "get", ""),
        ("configmaps", "patch", "times"),
        ("secrets", "create", ""),
    ):
        assert grant in rights
    assert ("ConfigMap", f"{RELEASE}-x") in objects
    assert ("Secret", "certificate") not in objects
    budget = objects["ZoneAwarePodDisruptionBudget", "ingester"]
    assert budget["spec"] == {"selector": {"matchLabels": {"rollout-group": "ingester"}}}
    monitor = objects["ServiceMonitor", RELEASE]
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": [NAMESPACE]}
    assert "relabelings" not in monitor["spec"]["endpoints"][0]
    policies = {
        one["metadata"]["name"].removesuffix(f"-{NAMESPACE}"): (
            one["webhooks"][0]["failurePolicy"],
            one["webhooks"][0]["timeoutSeconds"],
            one["metadata"]["annotations"],
        )
        for one in objects.values()
        if "webhooks" in one
    }
    assert policies == {
        "no-downscale": ("Fail", 3, {"a": "b"}),
        "prepare-downscale": ("Ignore", 10, {"a": "b"}),
        "zpdb-validation": ("Ignore", 10, {"a": "b"}),
    }


def _configurations() -> list[str]:
    hooks = ("no-downscale", "prepare-downscale", "pod-eviction", "zpdb-validation")
    return [f"{hook}-{NAMESPACE}" for hook in hooks]


@pytest.mark.parametrize("source", ["certManager", "existingSecret"])
def test_dep49_the_certificate_can_come_from_elsewhere(source: str) -> None:
    """DEP-19, DEP-49: from files, so that the operator writes neither a Secret nor a bundle."""
    certificate = {"source": source, "secretName": "tls", "ca": "PEM"}
    objects = render_chart({"webhooks": {"certificate": certificate}})
    (deployment,) = (one for one in objects if one["kind"] == "Deployment")
    config = read_config(get_field(deployment, f"{CONTAINER}.args"))
    folder = "/etc/rollout-operator/tls"
    assert (config.cert_file, config.key_file) == (f"{folder}/tls.crt", f"{folder}/tls.key")
    assert (config.self_signed, config.updates_bundle) == (False, False)
    assert get_field(deployment, f"{CONTAINER}.volumeMounts.0.mountPath") == folder
    assert get_field(deployment, f"{POD}.volumes.0.secret.secretName") == "tls"
    rights = {right for one in objects if one["kind"].endswith("Role") for right in granted(one)}
    assert not [one for one in rights if one[0] == "secrets"]
    assert not [one for one in rights if "webhook" in one[0] and one[1] == "patch"]
    hooks = [one for one in objects if "webhooks" in one]
    assert not [one for one in hooks if "grafana.com/inject-rollout-operator-ca" in str(one)]
    issued = {one["kind"]: one for one in objects if one["apiVersion"] == "cert-manager.io/v1"}
    if source == "existingSecret":
        assert issued == {}
        assert {one["webhooks"][0]["clientConfig"]["caBundle"] for one in hooks} == {"UEVN"}
        return
    assert {*issued} == {"Certificate", "Issuer"}
    made = issued["Certificate"]["spec"]
    assert (made["secretName"], made["dnsNames"]) == ("tls", [f"{RELEASE}.{NAMESPACE}.svc"])
    assert made["issuerRef"]["name"] == issued["Issuer"]["metadata"]["name"]
    injected = {one["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] for one in hooks}
    assert injected == {f"{NAMESPACE}/{issued['Certificate']['metadata']['name']}"}


REFUSED: Final = {
    "replica=2": "additional properties 'replica' not allowed",
    "image.tga=v1": "at '/image': additional properties 'tga' not allowed",
    "replicas=two": "at '/replicas': got string, want integer",
    "webhooks.failurePolicy=fail": "at '/webhooks/failurePolicy': value must be one of",
    "webhooks.timeoutSeconds=31": "at '/webhooks/timeoutSeconds': maximum: got 31, want 30",
    "webhooks.podEviction.timeout=3": "additional properties 'timeout' not allowed",
    "limits.clientTimeout=5d": "at '/limits/clientTimeout': '5d' does not match pattern",
    "log.level=verbose": "at '/log/level': value must be one of",
    "networkPolicy.nodes={10.0.0.1}": "at '/networkPolicy/nodes/0'",
    "image.digest=latest": "at '/image/digest'",
    "image.repository=": "at '/image/repository'",
    "nameOverride=x.*": "at '/nameOverride'",
    "zoneTracker.configMapName=on": "at '/zoneTracker/configMapName'",
    "mirroring.kinds[0].apiGroup=,mirroring.kinds[0].resource=secrets": (
        "value must be 'replicationcontrollers'"
    ),
    "webhooks.port=8444": "at '/webhooks/port'",
    "zoneAwarePodDisruptionBudgets.a.maxUnavailable=1": "missing property 'selector'",
}
TOGETHER: Final = {
    "networkPolicy.enabled=true": "networkPolicy.enabled needs networkPolicy.fromApiServer",
    "webhooks.certificate.source=existingSecret": "needs webhooks.certificate.secretName",
    "webhooks.enabled=false,webhooks.clientCertificates.enabled=true": "needs webhooks.enabled",
}


def test_dep82_errors_in_values_are_refused_with_their_place() -> None:
    """DEP-82: by the schema, all of them in one answer."""
    with pytest.raises(ChartError) as refused:
        run_helm(
            "template", RELEASE, CHART, *(word for each in REFUSED for word in ("--set", each))
        )
    text = str(refused.value)
    assert [error for error in REFUSED.values() if error not in text] == []


def _empty(values: Values, path: str = "") -> list[str]:
    """Return the paths of the values that are an empty map or list."""
    return [
        place
        for key, value in values.items()
        for place in (
            _empty(value, f"{path}{key}.")
            if isinstance(value, dict) and value
            else [f"{path}{key}"] * (value in ({}, []))
        )
    ]


def test_a_key_without_a_value_is_an_empty_one() -> None:
    """DEP-43: `podAnnotations:` with nothing behind it is null, which takes the default away."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    switches = {
        key: {"enabled": True}
        for key in ("multiAZRollout", "mirroring", "serviceMonitor", "prometheusRule", "dashboard")
    }
    empty = {
        "podAnnotations",
        "hooks.podLabels",
        "imagePullSecrets",
        "multiAZRollout.watchNamespaces",
    }
    nulls = [word for each in _empty(defaults) for word in ("--set", f"{each}=null")]
    assert empty <= {*_empty(defaults)}

    plain, given = (
        run_helm("template", RELEASE, CHART, "--values=-", *words, stdin=yaml.safe_dump(switches))
        for words in ([], nulls)
    )
    assert given == plain


def _list_sections(values: Values, path: str = "") -> list[str]:
    return [
        place
        for key, value in values.items()
        if isinstance(value, dict) and value
        for place in (f"{path}{key}", *_list_sections(value, f"{path}{key}."))
    ]


SECTIONS: Final = _list_sections(yaml.safe_load((CHART / "values.yaml").read_text()))


@pytest.mark.parametrize("path", [*SECTIONS, "hostNetwork", "serviceAccount.create"])
def test_dep82_a_section_without_a_value_is_left_out_or_refused_by_its_name(path: str) -> None:
    """DEP-82: `releases:` with nothing behind it was an error of the template."""
    error = _find_error(f"{path}=null")
    assert error is None or f"): {path}: null, or missing in values of another" in error


def _list_scalars(values: Values, path: str = "") -> Iterator[str]:
    """Yield the paths of numbers and texts; a switch that is null is off."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _list_scalars(value, f"{path}{key}.")
        elif not isinstance(value, list | bool):
            yield f"{path}{key}"


def _list_leaves(part: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    pairs = part.items() if isinstance(part, dict) else enumerate(part)
    for key, value in pairs:
        if isinstance(value, dict | list):
            yield from _list_leaves(value, f"{place}.{key}")
        else:
            yield f"{place}.{key}", value


# Kubernetes has a default for each, or does without.
LEFT_OUT: Final = re.compile(
    r"\.(\w+Seconds|failureThreshold|replicas|revisionHistoryLimit|imagePullPolicy|failurePolicy"
    r"|runAs(User|Group)|(requests|limits)\.\w+|labels\.grafana_dashboard)$"
)
EVERYTHING: Final = {
    key: {"enabled": True}
    for key in (
        *("multiAZRollout", "mirroring", "serviceMonitor", "prometheusRule", "dashboard"),
        *("releases", "zoneTracker"),
    )
} | {
    "webhooks": {"clientCertificates": {"enabled": True}},
    "networkPolicy": {
        "enabled": True,
        **{key: ["10.0.0.0/8"] for key in ("fromApiServer", "toApiServer", "nodes")},
    },
}
NEEDED: Final = (
    *("image.repository", "podSecurityContext.seccompProfile.type", "releases.metadata"),
    *("zoneTracker.configMapName", "webhooks.port", "webhooks.certificate.source"),
    *("webhooks.selfSignedCertSecretName", "webhooks.clientCertificates.configMapName"),
    *("webhooks.clientCertificates.clientName", "networkPolicy.monitoringNamespace"),
)


@pytest.mark.parametrize("path", NEEDED)
def test_dep82_a_value_that_is_needed_is_refused_by_its_name_where_it_is_null(path: str) -> None:
    """DEP-82: it was rendered as nothing, which the API server or the operator refused."""
    given = ("template", RELEASE, CHART, "--values=-", "--set", f"{path}=null")
    with pytest.raises(ChartError, match=rf"\): {path}: null, or missing in values of another"):
        run_helm(*given, stdin=yaml.safe_dump(EVERYTHING))


def test_dep82_any_other_value_may_be_null() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    others = {*_list_scalars(defaults)} - {*NEEDED}
    nulls = [word for path in sorted(others) for word in ("--set", f"{path}=null")]
    text = run_helm(
        "template", RELEASE, CHART, "--values=-", *nulls, stdin=yaml.safe_dump(EVERYTHING)
    )
    leaves = [
        leaf for one in yaml.load_all(text, yaml.CSafeLoader) if one for leaf in _list_leaves(one)
    ]

    assert len(others) > 40
    assert [place for place, value in leaves if value is None and not LEFT_OUT.search(place)] == []
    texts = [value for place, value in leaves if "dashboard" not in place]
    broken = re.compile(r"<nil>|^-[\w.-]+=$|^:|/:")
    assert [each for each in texts if isinstance(each, str) and broken.search(each)] == []


def _find_error(given: str) -> str | None:
    try:
        run_helm("template", RELEASE, CHART, "--set", given)
    except ChartError as error:
        return str(error)
    return None


def test_dep26_a_probe_can_be_switched_off() -> None:
    objects = render_chart({"livenessProbe": None})
    container = get_field(next(one for one in objects if one["kind"] == "Deployment"), CONTAINER)
    assert {"startupProbe", "readinessProbe"} == {key for key in container if "Probe" in key}


@pytest.mark.parametrize("given", TOGETHER)
def test_dep82_values_that_contradict_are_refused(given: str) -> None:
    with pytest.raises(ChartError, match=TOGETHER[given]):
        run_helm("template", RELEASE, CHART, "--set", given)


def test_a_text_stays_one_value_whatever_is_in_it() -> None:
    """Else a line break in it would begin a field, and `true` would be no name."""
    ranges = {key: ["::/0"] for key in ("fromApiServer", "toApiServer", "nodes")}
    values: Values = {
        "priorityClassName": "x\n      hostPID: true",
        "clusterDomain": "x\n            - -log.level=debug",
        "networkPolicy": {"enabled": True, **ranges, "monitoringNamespace": "true"},
        "zoneAwarePodDisruptionBudgets": {"true": {"selector": {}}},
    }
    objects = render_chart(values)
    pod = get_field(next(one for one in objects if one["kind"] == "Deployment"), POD)

    assert pod["priorityClassName"] == values["priorityClassName"]
    assert f"-kubernetes.cluster-domain={values['clusterDomain']}" in pod["containers"][0]["args"]
    names = [one["metadata"]["name"] for one in objects if one["kind"].startswith("ZoneAware")]
    assert names == ["true"]
    rules = next(one for one in objects if one["kind"] == "NetworkPolicy")["spec"]["ingress"]
    labels = rules[1]["from"][-1]["namespaceSelector"]["matchLabels"]
    assert labels == {"kubernetes.io/metadata.name": "true"}


def test_dep82_lint_finds_nothing(tmp_path: Path) -> None:
    """DEP-82: neither of the defaults nor of all that can be switched on."""
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(dict(CHANGED)))
    for words in ((), ("--values", str(values))):
        assert "1 chart(s) linted, 0 chart(s) failed" in run_helm("lint", "--strict", CHART, *words)


def test_hooks_run_commands_that_there_are() -> None:
    """DEP-80, DEP-85, DEP-88: Jobs before an upgrade and a removal, and the test."""
    jobs = {}
    for one in render_all({}):
        if one["kind"] in ("Job", "Pod"):
            assert is_hook(one)
            spec = one["spec"].get("template", one)["spec"]
            event = one["metadata"]["annotations"]["helm.sh/hook"]
            (container,) = spec["containers"]
            jobs[event] = container["args"]
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert get_command(container["args"][0])
            labels = one["spec"].get("template", one)["metadata"]["labels"]
            # The Service leads to pods with the name of the operator.
            assert labels["app.kubernetes.io/name"] == "rollout-operator-hooks"
    assert jobs == {
        "pre-upgrade": ["apply-crds", "/crds"],
        "pre-delete": ["uninstall-webhooks", f"-namespace={NAMESPACE}"],
        "test": ["doctor", f"-namespace={NAMESPACE}"],
    }
    off = render_all({"hooks": {"enabled": False}})
    assert [one["kind"] for one in off if one["kind"] == "Job"] == []


def test_hooks_may_do_no_more_than_they_need() -> None:
    """DEP-48: definitions and configurations by name, where a name can be given."""
    rights: dict[str, set[tuple[str, str, str]]] = {}
    for one in render_all({}):
        if is_hook(one) and one["kind"] in ("Role", "ClusterRole"):
            event = one["metadata"]["annotations"]["helm.sh/hook"]
            rights.setdefault(event, set()).update(granted(one))
    ours = {
        "replicatemplates.rollout-operator.grafana.com",
        "zoneawarepoddisruptionbudgets.rollout-operator.grafana.com",
    }
    crds = "customresourcedefinitions"
    assert rights["pre-upgrade"] == {(crds, "create", "")} | {(crds, "patch", one) for one in ours}
    both = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
    assert rights["pre-delete"] == {(one, "list", "") for one in both} | {
        (one, verb, name)
        for one in both
        for verb in ("get", "delete")
        for name in _configurations()
    }
    tried = {one for one in rights["test"] if one[1] not in ("get", "list")}
    assert tried == {
        ("pods/eviction", "create", ""),
        ("statefulsets/scale", "patch", ""),
        ("zoneawarepoddisruptionbudgets", "create", ""),
        *((f"{one}subjectaccessreviews", "create", "") for one in ("", "local")),
    }
    assert ("secrets", "get", "certificate") in rights["test"]
    assert "evict pods, scale\nStatefulSets and create budgets" in SECURITY


def test_dep48_a_hook_that_fails_leaves_no_account() -> None:
    """DEP-48: rights go with the hook, however it ends; only what has its log stays."""
    events = set()
    for one in render_all({}):
        if not is_hook(one):
            continue
        annotations = one["metadata"]["annotations"]
        policies = {*annotations["helm.sh/hook-delete-policy"].split(",")}
        runs = one["kind"] in ("Job", "Pod")
        events.add((annotations["helm.sh/hook"], one["kind"]))
        # A name that an earlier run has left is no obstacle.
        assert "before-hook-creation" in policies, one
        # Helm deletes what came before a hook that failed as succeeded, and that one as failed.
        assert runs or {"hook-succeeded", "hook-failed"} <= policies, one
        assert not runs or "hook-failed" not in policies, one
        assert int(annotations.get("helm.sh/hook-weight", 0)) == (0 if runs else -5), one
        # By these SECURITY.md has them deleted where helm could not.
        assert HOOK_LABELS.items() <= one["metadata"]["labels"].items(), one
        is_wide = one["kind"].startswith("Cluster")
        assert (NAMESPACE in one["metadata"]["name"]) is is_wide, one
    accounts = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    assert events == {
        *((event, kind) for event in ("pre-upgrade", "pre-delete", "test") for kind in accounts),
        *(("pre-upgrade", kind) for kind in ("ConfigMap", "Job")),
        ("pre-delete", "Job"),
        *(("test", kind) for kind in ("Role", "RoleBinding", "Pod")),
    }
    selector = ",".join(f"{key}={value}" for key, value in HOOK_LABELS.items())
    (command,) = re.findall(rf"kubectl delete (\S+) --selector {selector}", SECURITY)
    left = {kind for _, kind in events} - {"Job", "Pod"}
    assert {*command.split(",")} == {kind.lower() for kind in left}


def test_a_mesh_is_kept_out_of_each_pod() -> None:
    """DEP-48: values for pods hold for those of hooks and the test, too, whose own win."""
    values: Values = {
        "podAnnotations": {"linkerd.io/inject": "disabled", "scrape": "true"},
        "podLabels": {"sidecar.istio.io/inject": "false", "app.kubernetes.io/component": "x"},
        "hooks": {"podAnnotations": {"scrape": "false"}, "podLabels": {"queue": "hooks"}},
    }
    templates = {
        one["kind"]: one["spec"].get("template", one)["metadata"]
        for one in render_all(values)
        if one["kind"] in ("Deployment", "Job", "Pod")
    }
    assert {*templates} == {"Deployment", "Job", "Pod"}
    for kind, pod in templates.items():
        is_hooks = kind != "Deployment"
        assert pod["annotations"]["linkerd.io/inject"] == "disabled"
        assert pod["annotations"]["scrape"] == f"{not is_hooks}".lower()
        assert pod["labels"]["sidecar.istio.io/inject"] == "false"
        assert pod["labels"].get("queue") == ("hooks" if is_hooks else None)
        # By these the Service, and SECURITY.md, find pods.
        name = "rollout-operator-hooks" if is_hooks else "rollout-operator"
        assert pod["labels"]["app.kubernetes.io/name"] == name
        assert not is_hooks or HOOK_LABELS.items() <= pod["labels"].items()


def test_dep88_helm_finds_a_log_for_each_hook_of_the_test() -> None:
    """DEP-88: `helm test --logs` reads that of a pod of the same name, whatever the hook's kind."""
    text = run_helm("template", "a-release", CHART)
    hooks = [
        one["metadata"]
        for one in yaml.safe_load_all(text)
        if one and one["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"
    ]
    assert [one["name"] for one in hooks] == ["a-release-rollout-operator-test"] * 2


POLICIES: Final = "multiAZRollout.enabled=true"
NOTES: Final = {
    "": ("StatefulSets of namespace default that", True),
    f"{POLICIES},multiAZRollout.watchNamespaces={{loki}}": ("of namespace loki, and", True),
    f"{POLICIES},multiAZRollout.watchNamespaces={{loki,mimir}}": (
        "of namespaces loki, mimir, and",
        True,
    ),
    POLICIES: ("of all namespaces, and", False),
    f"{POLICIES},namespaceSelector=null": ("of all namespaces, and", True),
    f"{POLICIES},namespaceSelector.matchExpressions=null": ("of all namespaces, and", False),
    f"{POLICIES},namespaceSelector.matchLabels.a=b": ("of all namespaces, and", True),
    f"{POLICIES},webhooks.enabled=false": ("of all namespaces, and", True),
}


@pytest.mark.parametrize("given", NOTES)
def test_the_notes_say_which_namespaces(given: str, tmp_path: Path) -> None:
    """DEP-87: and warn where webhooks cover fewer."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    notes = (chart / "templates/NOTES.txt").read_text()
    # Helm prints them only where it reaches a cluster.
    text = (
        f'{{{{ define "notes" }}}}{notes}{{{{ end }}}}\nnotes: {{{{ include "notes" . | toJson }}}}'
    )
    (chart / "templates/notes.yaml").write_text(text)
    shown = yaml.safe_load(
        run_helm("template", RELEASE, chart, "--show-only=templates/notes.yaml", "--set", given)
    )["notes"]

    words, is_covered = NOTES[given]
    assert words in " ".join(shown.split())
    assert ("WARNING" in shown) is not is_covered
    assert "\n\n\n" not in shown
    assert shown.startswith("The operator")


def test_dep80_the_kinds_are_installed_unless_they_are_switched_off() -> None:
    """DEP-98, DEP-80: `crds.enabled`, as in grafana's chart."""
    for is_on in (True, False):
        words = ("--include-crds", "--set", f"crds.enabled={is_on}".lower())
        text = run_helm("template", RELEASE, CHART, *words)
        assert text.count("kind: CustomResourceDefinition\nmetadata:\n  name") == 3 * is_on
        assert ("helm.sh/hook: pre-upgrade" in text) is is_on


def test_dep43_a_parent_chart_takes_it_under_an_alias(tmp_path: Path) -> None:
    """DEP-42, DEP-43: by the names that grafana's has there, with its condition."""
    shutil.copytree(CHART, tmp_path / "charts" / "rollout-operator")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    dependency = {
        "name": "rollout-operator",
        "alias": "rollout_operator",
        "version": version,
        "condition": "rollout_operator.enabled",
    }
    parent = {"apiVersion": "v2", "name": "mimir", "version": "1.0.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(parent))
    for is_on in (True, False):
        values = {"global": {"clusterDomain": "x."}, "rollout_operator": {"enabled": is_on}}
        objects = render_all(values, release="mimir", chart=tmp_path)
        names = {one["metadata"]["name"] for one in objects if one["kind"] == "Deployment"}
        assert names == ({"mimir-rollout-operator"} if is_on else set())
        assert not [one for one in objects if "_" in one["metadata"]["name"]]


def test_a_plain_start_needs_no_flag_beyond_the_originals() -> None:
    """DEP-29: with the webhooks off, the namespace is all that is set."""
    (deployment,) = (
        one for one in render_chart({"webhooks": {"enabled": False}}) if one["kind"] == "Deployment"
    )
    assert read_config(get_field(deployment, f"{CONTAINER}.args")) == Config(namespace=NAMESPACE)
