"""Reviews as an API server sends them, whole HTTP requests with all that nobody here reads.

Two ask for one replica less of the first set that `server` shows: of the object itself, about
21.6 kB, and of its Scale, about 1.7 kB, which are the sizes that an API server was seen to send.
The third asks whether a pod may be evicted.
"""

from enum import StrEnum, unique
from typing import Final

import msgspec

from benchmarks.objects import NAMESPACE, OBJECT_VERSION, Json, Place, make_set
from benchmarks.server import Traits

NO_DOWNSCALE_PATH: Final = "/admission/no-downscale"
PREPARE_PATH: Final = "/admission/prepare-downscale"
EVICTION_PATH: Final = "/admission/pod-eviction"
# What each answer to a falling count of a labelled set holds.
REFUSED: Final = b'"allowed":false,"status":{"metadata":{},"message":"downscale of statefulsets/'
ALLOWED: Final = b'"allowed":true'
# What the answer to an eviction holds that is to be tried again.
TRY_AGAIN: Final = b'"code":429'

_TIME: Final = "2026-01-01T12:00:00Z"
_UID: Final = "705ab4f5-6393-11e8-b7cc-42010a800002"
# As `kubectl apply` leaves it behind: a copy of the object, as text.
_APPLIED_SIZE: Final = 2_130


@unique
class Kind(StrEnum):
    """What is under review."""

    OBJECT = "object"
    SCALE = "scale"


def make_request(
    kind: Kind, path: str, replicas: tuple[int, int], place: Place, more: Traits
) -> bytes:
    """Return the request of one review; `replicas` are those before and after."""
    return _post(path, make_review(kind, replicas, place, more))


def make_eviction(place: Place) -> bytes:
    """Return the request of the review of a pod's eviction, about 1.3 kB."""
    return _post(EVICTION_PATH, make_eviction_review(place))


def _post(path: str, review: Json) -> bytes:
    return make_post(path, msgspec.json.encode(review))


def make_post(path: str, body: bytes) -> bytes:
    """Return the request with a body, as an API server sends it."""
    head = (
        f"POST {path}?timeout=10s HTTP/1.1",
        "Host: rollout-operator.bench.svc:443",
        "User-Agent: kube-apiserver-admission",
        f"Content-Length: {len(body)}",
        "Accept: application/json, */*",
        "Content-Type: application/json",
        "Accept-Encoding: gzip",
    )
    return "\r\n".join([*head, "", ""]).encode() + body


def make_review(kind: Kind, replicas: tuple[int, int], place: Place, more: Traits) -> Json:
    """Return the review as a tree."""
    make = _make_object if kind is Kind.OBJECT else _make_scale
    old, new = (make(place, count, more) for count in replicas)
    under_review = {
        Kind.OBJECT: {"group": "apps", "version": "v1", "kind": "StatefulSet"},
        Kind.SCALE: {"group": "autoscaling", "version": "v1", "kind": "Scale"},
    }[kind]
    resource = {"group": "apps", "version": "v1", "resource": "statefulsets"}
    subresource = (
        {"subResource": "scale", "requestSubResource": "scale"} if kind is Kind.SCALE else {}
    )
    request = {
        "uid": _UID,
        "kind": under_review,
        "resource": resource,
        "requestKind": under_review,
        "requestResource": resource,
        **subresource,
        "name": place.set_name,
        "namespace": NAMESPACE,
        "operation": "UPDATE",
        "userInfo": _make_user(),
        "object": new,
        "oldObject": old,
        "dryRun": False,
        "options": {
            "kind": "UpdateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "fieldManager": "autoscaler",
        },
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def make_eviction_review(place: Place) -> Json:
    """Return the same as a tree."""
    under_review = {"group": "policy", "version": "v1", "kind": "Eviction"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    metadata = {"name": place.pod_name, "namespace": NAMESPACE}
    request = {
        "uid": _UID,
        "kind": under_review,
        "resource": resource,
        "subResource": "eviction",
        "requestKind": under_review,
        "requestResource": resource,
        "requestSubResource": "eviction",
        "name": place.pod_name,
        "namespace": NAMESPACE,
        "operation": "CREATE",
        "userInfo": _make_user(),
        "object": {
            "kind": "Eviction",
            "apiVersion": "policy/v1",
            "metadata": metadata | {"creationTimestamp": None},
            "deleteOptions": {},
        },
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def _make_object(place: Place, replicas: int, more: Traits) -> Json:
    made = make_set(place, replicas, more.labels, more.annotations)
    copy = msgspec.json.encode(made["spec"]["template"]["spec"]).decode()[:_APPLIED_SIZE]
    made["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = copy
    return made


def _make_scale(place: Place, replicas: int, more: Traits) -> Json:
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": place.set_name,
            "namespace": NAMESPACE,
            "uid": place.set_uid,
            "resourceVersion": f"{OBJECT_VERSION}",
            "creationTimestamp": _TIME,
        },
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas, "selector": f"name={place.set_name}"},
    }


def _make_user() -> Json:
    account = "system:serviceaccount:monitoring:autoscaler"
    return {
        "username": account,
        "uid": _UID,
        "groups": [
            "system:serviceaccounts",
            "system:serviceaccounts:monitoring",
            "system:authenticated",
        ],
        "extra": {
            "authentication.kubernetes.io/credential-id": [f"JTI={_UID}"],
            "authentication.kubernetes.io/node-name": ["node-a-1"],
            "authentication.kubernetes.io/pod-name": ["autoscaler-7d9c6b5f44-x2x9v"],
            "authentication.kubernetes.io/pod-uid": [_UID],
        },
    }
