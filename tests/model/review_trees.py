"""AdmissionReviews as trees of JSON, for tests to bend."""

from typing import Any, Final

from tests.model.wire_trees import Tree

STATEFULSETS: Final = {"group": "apps", "version": "v1", "resource": "statefulsets"}


def review_tree(version: str = "admission.k8s.io/v1", **request: Any) -> Tree:
    """Return an AdmissionReview of a StatefulSet from 3 to 2 replicas."""
    return {
        "apiVersion": version,
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "operation": "UPDATE",
            "resource": STATEFULSETS,
            "namespace": "prod",
            "name": "zone-a",
            "dryRun": False,
            "object": set_tree(2),
            "oldObject": set_tree(3),
            **request,
        },
    }


def set_tree(replicas: object, **more: object) -> Tree:
    """Return a StatefulSet; `more` is added to its metadata."""
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "zone-a", "uid": "s-1", "resourceVersion": "7", **more},
        "spec": {"replicas": replicas, "serviceName": "store"},
    }
