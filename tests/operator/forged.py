"""Reviews that no API server sends."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from rollout_lab.admission.webhooks import HookCall

from rollout_operator.model.names import PREPARE_DOWNSCALE, PREPARE_PATH, PREPARE_PORT
from tests.model.review_trees import STATEFULSETS, review_tree

# What is made up: objects that were never created.
MADE_UP: Final = ("pods", "alone", "group", "member", "scale", "unlabelled", "deployment")


def ask_eviction(namespace: str, pod: str, *, dry_run: bool = False) -> HookCall:
    """Return a review of an eviction that no client sent to the API server, without a UID."""
    request = {
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "subResource": "eviction",
        "namespace": namespace,
        "name": pod,
        "object": {"apiVersion": "policy/v1", "kind": "Eviction"},
        "oldObject": None,
        "dryRun": dry_run,
    }
    return _ask("pod-eviction", request, seconds=5)


def make_up(kind: str, namespace: str, name: str) -> HookCall:
    """Return a review of something that was never created."""
    if kind == "pods":
        return ask_eviction(namespace, name, dry_run=True)
    labels = {PREPARE_DOWNSCALE: "true"}
    if group := {"group": name, "member": "ingester"}.get(kind):
        labels["rollout-group"] = group
    is_scale = kind in ("scale", "unlabelled", "deployment")

    def state(replicas: int) -> Mapping[str, object]:
        head = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}
        if is_scale:
            meta: Mapping[str, object] = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
            return {**meta, "metadata": head, "spec": {"replicas": replicas}}
        annotations = {PREPARE_PORT: "80", PREPARE_PATH: "p"}
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {**head, "labels": labels, "annotations": annotations},
            "spec": {"replicas": replicas, "serviceName": "s"},
        }

    plural = "deployments" if kind == "deployment" else "statefulsets"
    request = {
        "resource": {**STATEFULSETS, "resource": plural},
        "subResource": "scale" if is_scale else "",
        "namespace": namespace,
        "name": name,
        "object": state(2),
        "oldObject": state(3),
    }
    hook = "no-downscale" if kind in ("unlabelled", "deployment") else "prepare-downscale"
    return _ask(hook, request, seconds=10)


def _ask(hook: str, request: Mapping[str, Any], *, seconds: int) -> HookCall:
    return HookCall(
        path=f"/admission/{hook}?timeout={seconds}s",
        service="default/rollout-operator",
        body=json.dumps(review_tree(uid="f", **request)).encode(),
        timeout=timedelta(seconds=seconds),
    )
