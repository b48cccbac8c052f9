"""The Secret that holds the certificates: read, created, replaced, never listed or watched.

Decides how a key pair is written down and what of an existing Secret is kept: its labels,
annotations, type and the data that is not ours. What is written carries our label from then on.
Whether it may be written is decided in `planning.ownership`, what to do after a lost race by the
caller.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from rollout_operator.kube.api import SECRETS, JsonObject, Resource
from rollout_operator.model.errors import Denied, NotFound, Unreachable
from rollout_operator.model.names import CERTIFICATE_LABEL
from rollout_operator.pki.key_pair import KeyMaterial

# The first three are those of every version of the Secret; a reader that does not know the others
# leaves them alone.
SECRET_KEYS: Final[Mapping[str, str]] = {
    "ca": "ca",
    "cert": "cert",
    "key": "key",
    "ca_key": "ca-key",
    "next_ca": "next-ca",
    "next_ca_key": "next-ca-key",
    "old_ca": "old-ca",
}
"""Field of `KeyMaterial` → key in the data of the Secret."""
_MADE_BY_US: Final = "true"
# The type of a Secret that names none.
_PLAIN: Final = "Opaque"


class SecretApi(Protocol):
    """The part of the API client that the Secret needs; errors as in `kube.api`."""

    async def fetch(self, resource: Resource, namespace: str, name: str) -> bytes: ...

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes: ...

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: JsonObject
    ) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A Secret as it was read."""

    material: KeyMaterial
    problem: str = ""
    """Why its data is no key pair at all, empty where it may be."""
    body: JsonObject = field(default_factory=dict, repr=False)
    """The whole object; empty where there is none."""

    @property
    def uid(self) -> str:
        """Return the UID of the object, empty where there is none."""
        return str(_part(self.body, "metadata").get("uid") or "")

    @property
    def is_labelled(self) -> bool:
        """Return whether it says that we made it."""
        labels = _part(_part(self.body, "metadata"), "labels")
        return labels.get(CERTIFICATE_LABEL) == _MADE_BY_US

    @property
    def is_empty(self) -> bool:
        """Return whether it is absent, or has no data and its type does not demand certain data."""
        data = self.body.get("data") or {}
        is_plain = (self.body.get("type") or _PLAIN) == _PLAIN
        return is_plain and isinstance(data, dict) and not any(data.values())

    @property
    def is_immutable(self) -> bool:
        """Return whether the API server refuses every change of its data."""
        return self.body.get("immutable") is True


class SecretStore:
    """One Secret."""

    def __init__(self, api: SecretApi, *, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name

    def __str__(self) -> str:
        return f"secret {self._namespace}/{self._name}"

    async def fetch(self) -> Stored:
        """Return what is stored now. Raises as `kube.api.Reader.fetch`, but never NotFound."""
        try:
            raw = await self._api.fetch(SECRETS, self._namespace, self._name)
        except NotFound:
            return Stored(material=KeyMaterial(), problem="there is no secret")
        return self._decode(raw)

    async def write(self, before: Stored, material: KeyMaterial) -> None:
        """Store `material` in place of what was read before.

        Raises Conflict or NotFound where another client was faster, UnknownOutcome without
        an answer: read again. Else as `kube.api.Writer.create`.
        """
        if not before.body:
            await self._create(material)
            return
        kept = _part(before.body, "data")
        others = {key: kept[key] for key in kept if key not in SECRET_KEYS.values()}
        head = _part(before.body, "metadata")
        labels = {**_part(head, "labels"), CERTIFICATE_LABEL: _MADE_BY_US}
        body = {
            **before.body,
            "metadata": {**head, "labels": labels},
            "data": {**others, **_encode(material)},
        }
        await self._api.replace(SECRETS, self._namespace, self._name, body)

    async def _create(self, material: KeyMaterial) -> None:
        try:
            await self._api.create(SECRETS, self._namespace, self._fresh(material))
        except Denied as error:
            if error.status != 403:
                raise
            # The shipped Role has no right to create, since the Secret is shipped too.
            command = f"kubectl create secret generic {self._name} --namespace {self._namespace}"
            text = f"{self} does not exist: create it empty ({command}), or let this do it: {error}"
            raise Denied(text, call=error.call, status=error.status, reason=error.reason) from error

    def _fresh(self, material: KeyMaterial) -> JsonObject:
        return {
            "apiVersion": SECRETS.version,
            "kind": SECRETS.kind,
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {CERTIFICATE_LABEL: _MADE_BY_US},
            },
            "data": _encode(material),
        }

    def _decode(self, raw: bytes) -> Stored:
        try:
            body = msgspec.json.decode(raw, type=dict[str, object])
        except (msgspec.MsgspecError, RecursionError):
            # Not chained: a decoder may quote what it has read.
            raise Unreachable(f"cannot read {self}: the answer is no object") from None
        data = body.get("data") or {}
        if not isinstance(data, dict):
            return Stored(material=KeyMaterial(), problem="data: not an object", body=body)
        try:
            return Stored(material=_decode_data(data), body=body)
        except _NotBase64 as error:
            return Stored(material=KeyMaterial(), problem=str(error), body=body)


class _NotBase64(Exception):
    """A value of the Secret's data is not what the API promises."""


def _part(body: JsonObject, key: str) -> JsonObject:
    """Return an object inside of an object, empty where there is none."""
    part = body.get(key)
    return part if isinstance(part, dict) else {}


def _decode_data(data: Mapping[str, object]) -> KeyMaterial:
    return KeyMaterial(**{name: _value(data, key) for name, key in SECRET_KEYS.items()})


def _value(data: Mapping[str, object], key: str) -> bytes:
    text = data.get(key) or ""
    try:
        return base64.b64decode(text if isinstance(text, str) else "?", validate=True)
    except (binascii.Error, ValueError):
        raise _NotBase64(f"data.{key}: not base64") from None


def _encode(material: KeyMaterial) -> dict[str, str]:
    values = {key: getattr(material, name) for name, key in SECRET_KEYS.items()}
    return {key: base64.b64encode(value).decode() for key, value in values.items() if value}
