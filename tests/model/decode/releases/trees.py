"""Objects of `kuberik.com` as the API server has them."""

import json
from typing import Any


def tree(spec: object = None, **more: Any) -> dict[str, Any]:
    """Return an object `prod/app`; `annotations`, `labels` and `status` by name."""
    head = {"namespace": "prod", "name": "app", "uid": "u1", "resourceVersion": "7"}
    metadata = {**head, "generation": 3, **{key: more.pop(key) for key in [*more] if key in _HEAD}}
    found = {"apiVersion": "kuberik.com/v1alpha1", "metadata": metadata, **more}
    return found if spec is None else {**found, "spec": spec}


_HEAD = {"annotations", "labels", "name", "namespace", "deletionTimestamp"}


def as_json(spec: object = None, **more: Any) -> bytes:
    return json.dumps(tree(spec, **more)).encode()
