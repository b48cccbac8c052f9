"""The reference registry of the OCI specification, built from source like the control plane.

Images are pushed into it with the password that it wants. `python -m tests.world.registry` builds
it beforehand. Marked `controlplane` is what needs it.
"""

import base64
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

from tests.oci.registries import CONFIG, MANIFEST, NAME, labels
from tests.world.childproc import Child, free_ports, start_program, wait_served
from tests.world.gobuild import GoProgram

REGISTRY: Final = GoProgram(
    title="the reference registry (half a minute on two cores)",
    sources=Path(__file__).parent.parent / "registry",
    parts=("registry",),
)
USER: Final = "mallory"
PASSWORD: Final = "hidden"
# bcrypt of that password, as cheap as it goes.
_HASH: Final = "$2a$05$DMD4cXps8TDrmkfvC7JVCuNOYI4G.Vx1t2iFIHUHmZpJIoflBKNDq"


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve without TLS and with nothing stored to who has the password, and yield the host."""
    (port,) = free_ports(1)
    users, settings = folder / "users", folder / "registry.yaml"
    users.write_text(f"{USER}:{_HASH}\n")
    settings.write_text(
        "version: 0.1\n"
        "log: {level: warn}\n"
        "storage: {inmemory: {}}\n"
        f"http: {{addr: '127.0.0.1:{port}', secret: tests}}\n"
        f"auth: {{htpasswd: {{realm: tests, path: '{users}'}}}}\n"
    )
    env = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}
    command: list[str | Path] = [REGISTRY.locate(), "serve", settings]
    log = folder / "registry.log"
    child = Child("registry", start_program(command, log, env), log)
    try:
        wait_served(f"http://127.0.0.1:{port}/v2/", child)
        yield f"127.0.0.1:{port}"
    finally:
        child.kill()


_PAIR: Final = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def _call(method: str, url: str, body: bytes = b"", kind: str = "") -> Mapping[str, str]:
    """Send one request of a push, and return the headers of its answer."""
    kind = kind or "application/octet-stream"
    headers = {"Authorization": f"Basic {_PAIR}", "Content-Type": kind}
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


if __name__ == "__main__":
    sys.stdout.write(f"{REGISTRY.locate()}\n")
