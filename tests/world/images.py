"""Images pushed into the reference registry, with the password that it wants."""

import base64
import hashlib
import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final
from urllib.request import Request, urlopen

from tests.oci.registries import CONFIG, MANIFEST, NAME, labels
from tests.world.registry import PASSWORD, USER

_PAIR: Final = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
authorization: Final = ContextVar("authorization", default=f"Basic {_PAIR}")
"""What pushes show: the password, or what a registry wants in place of it."""


def _call(method: str, url: str, body: bytes = b"", kind: str = "") -> Mapping[str, str]:
    """Send one request of a push, and return the headers of its answer."""
    shown = authorization.get()
    headers = {"Authorization": shown, "Content-Type": kind or "application/octet-stream"}
    with urlopen(Request(url, data=body, headers=headers, method=method)) as answer:
        return dict(answer.headers)


def push_blob(host: str, document: Mapping[str, object]) -> Mapping[str, object]:
    return push_bytes(host, json.dumps(document).encode(), CONFIG)


def push_bytes(host: str, body: bytes, kind: str) -> Mapping[str, object]:
    """Push a blob of any kind, and return the descriptor by which a manifest names it."""
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    place = _call("POST", f"http://{host}/v2/{NAME}/blobs/uploads/")["Location"]
    _call("PUT", f"{place}&digest={digest}", body)
    return {"mediaType": kind, "digest": digest, "size": len(body)}


def push(host: str, tag: str, document: Mapping[str, object], kind: str) -> Mapping[str, object]:
    body = json.dumps({"schemaVersion": 2, "mediaType": kind, **document}).encode()
    digest = _call("PUT", f"http://{host}/v2/{NAME}/manifests/{tag}", body, kind)[
        "Docker-Content-Digest"
    ]
    return {"mediaType": kind, "digest": digest, "size": len(body)}


def push_image(host: str, tag: str, **fields: str) -> None:
    """Push an image whose config says this of it: `version="1.0.0"`."""
    config = push_blob(host, {"config": {"Labels": labels(**fields)}})
    push(host, tag, {"config": config, "layers": []}, MANIFEST)


def render_pull_secret(host: str) -> Mapping[str, str]:
    """Return the data of a pull secret for the registry, in base64."""
    entry = {"username": USER, "password": PASSWORD}
    config = json.dumps({"auths": {f"http://{host}/v2/": entry}})
    return {".dockerconfigjson": base64.b64encode(config.encode()).decode()}
