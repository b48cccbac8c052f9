"""Which bucket a path uses (RATE-01) and what the metrics call it (METR-53)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout_operator.kube.api import PODS, STATEFULSETS
from rollout_operator.kube.client.paths import bucket_key, describe_path


@pytest.mark.parametrize(
    ("path", "key"),
    [
        pytest.param("/api", "core", id="T-12 core root"),
        pytest.param("/api/v1/pods", "core", id="RATE-01 core"),
        pytest.param("/apis", "apis", id="T-12 groups"),
        pytest.param("/apis/", "apis", id="RATE-01 groups with a slash"),
        pytest.param("/apis/apps", "apps", id="T-12 group"),
        pytest.param("/apis/apps/v1/statefulsets", "apps", id="RATE-01 group with resource"),
        pytest.param(
            "/apis/admissionregistration.k8s.io/v1",
            "admissionregistration.k8s.io",
            id="RATE-01 group with dots",
        ),
        pytest.param("/healthz", "/healthz", id="T-12 no API"),
        pytest.param("", "/", id="T-12 empty"),
        pytest.param("/", "/", id="T-12 slash"),
        pytest.param("/openapi/v2", "/openapi", id="T-12 first segment only"),
    ],
)
def test_bucket_of_a_path(path: str, key: str) -> None:
    assert bucket_key(path) == key


@pytest.mark.parametrize(
    ("path", "description"),
    [
        pytest.param("/api/v1/nodes", "core/v1/nodes collection", id="T-12 collection"),
        pytest.param(
            "/api/v1/namespaces/x/pods/p/status",
            "core/v1/pods object status subresource",
            id="T-12 subresource",
        ),
        pytest.param(
            "/apis/apps/v1/namespaces/x/statefulsets/s",
            "apps/v1/statefulsets object",
            id="T-12 object",
        ),
        pytest.param(
            "/api/v1/namespaces/x", "core/v1/namespaces object", id="T-12 namespace as object"
        ),
        pytest.param("/api/v1/namespaces", "core/v1/namespaces collection", id="METR-53 all"),
        pytest.param(
            "/api/v1/namespaces/x/pods", "core/v1/pods collection", id="METR-53 in a namespace"
        ),
        pytest.param(
            "/api/v1/namespaces/x/status",
            "core/v1/namespaces object status subresource",
            id="METR-53 status of a namespace",
        ),
        pytest.param(
            "/apis/apps/v1/namespaces/x/statefulsets/s/scale",
            "apps/v1/statefulsets object scale subresource",
            id="METR-53 scale",
        ),
        pytest.param(
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            "admissionregistration.k8s.io/v1/validatingwebhookconfigurations collection",
            id="METR-53 collection of the cluster",
        ),
        pytest.param(
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/guard",
            "admissionregistration.k8s.io/v1/validatingwebhookconfigurations object",
            id="METR-53 object of the cluster",
        ),
        pytest.param("/api", "/api", id="T-12 root unchanged"),
        pytest.param("/apis/apps/v1", "/apis/apps/v1", id="T-12 version unchanged"),
        pytest.param("", "", id="T-12 empty unchanged"),
        pytest.param("/version", "/version", id="METR-53 no API"),
        pytest.param(
            "/api/v1/nodes/n/proxy/metrics", "/api/v1/nodes/n/proxy/metrics", id="METR-53 deeper"
        ),
    ],
)
def test_description_of_a_path(path: str, description: str) -> None:
    assert describe_path(path) == description


_NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)


@given(namespace=_NAMES, name=_NAMES)
def test_metr_53_names_never_reach_a_metric(namespace: str, name: str) -> None:
    assert describe_path(PODS.path(namespace, name)) == "core/v1/pods object"
    assert (
        describe_path(STATEFULSETS.path(namespace, name, "status"))
        == "apps/v1/statefulsets object status subresource"
    )
    assert describe_path(PODS.path(namespace)) == "core/v1/pods collection"
