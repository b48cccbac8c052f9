"""Reviews sent to the operator by hand, as an API server would, or a client that plays it."""

import base64
import ssl
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import aiohttp
import msgspec

from tests.system.guarded import Guarded
from tests.world.api import STATEFULSETS, Json

LIMIT: Final = timedelta(seconds=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a review is answered with, without the UID that it came with."""

    is_allowed: bool
    message: str
    patch: tuple[str, ...]
    """The steps of the JSON patch, each as JSON."""
    warnings: tuple[str, ...]


async def fetch_review(
    guarded: Guarded, name: str, replicas: int, *, subresource: str = "", is_dry_run: bool = False
) -> Json:
    """Return the review by which an API server requests so many replicas of a set as it is now."""
    old = await guarded.world.api.get(STATEFULSETS, guarded.world.namespace, name, subresource)
    new: Json = msgspec.json.decode(msgspec.json.encode(old))
    new["spec"]["replicas"] = replicas
    group, _, version = old["apiVersion"].rpartition("/")
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "",
            "kind": {"group": group, "version": version, "kind": old["kind"]},
            "resource": {"group": "apps", "version": "v1", "resource": "statefulsets"},
            "subResource": subresource,
            "name": name,
            "namespace": guarded.world.namespace,
            "operation": "UPDATE",
            "userInfo": {"username": "test"},
            "object": new,
            "oldObject": old,
            "dryRun": is_dry_run,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions"},
        },
    }


async def send_request(guarded: Guarded, review: Json, hook: str = "prepare-downscale") -> Reply:
    """Send a review with a new UID and return the answer, whose UID must be the same."""
    uid = str(uuid.uuid4())
    body = review | {"request": review["request"] | {"uid": uid}}
    bundle = (await guarded.hooks.wait_injected())[0].decode()
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=bundle))
    timeout = aiohttp.ClientTimeout(total=LIMIT.total_seconds())
    url = f"https://localhost:{guarded.operator.tls_port}/admission/{hook}?timeout=10s"
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
        session.post(url, json=body) as came,
    ):
        content = await came.read()
        assert came.status == 200, content
    response = msgspec.json.decode(content)["response"]
    assert response["uid"] == uid
    patch = base64.b64decode(response.get("patch", ""))
    return Reply(
        is_allowed=response["allowed"],
        message=response.get("status", {}).get("message", ""),
        patch=tuple(msgspec.json.encode(step).decode() for step in _steps(patch)),
        warnings=tuple(response.get("warnings", ())),
    )


def _steps(patch: bytes) -> list[Json]:
    steps: list[Json] = msgspec.json.decode(patch) if patch else []
    return steps
