"""Pull secrets of Kubernetes → `Keyring`: `kubernetes.io/dockerconfigjson` and `.../dockercfg`.

Decides what an entry says. An entry that cannot be read stops only the repositories that it is for.
No error holds a value out of a secret: keys are hosts, and are all that is quoted.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.units import quote
from rollout_operator.oci.keyring import Keyring, KeyringEntry, RegistryCredential, split_key

T = TypeVar("T")

DOCKER_CONFIG_JSON: Final = ".dockerconfigjson"
DOCKER_CFG: Final = ".dockercfg"


class _Entry(msgspec.Struct):
    username: str | None = None
    password: str | None = None
    auth: str | None = None
    identitytoken: str | None = None
    registrytoken: str | None = None


class _Config(msgspec.Struct):
    auths: dict[str, msgspec.Raw] | None = None


_CONFIG: Final = msgspec.json.Decoder(_Config)
_ENTRIES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRY: Final = msgspec.json.Decoder(_Entry)


def decode_pull_secret(data: Mapping[str, bytes]) -> Keyring:
    """Return the credentials in the data of a Secret, its values no longer in base64.

    A Secret with neither key has none, and is no error: registries are read without credentials
    (REL-38). Raises InvalidInput where a key is there and does not hold what it should.
    """
    if DOCKER_CONFIG_JSON in data:
        config = _decode(_CONFIG, data[DOCKER_CONFIG_JSON])
        entries = None if config is None else config.auths or {}
    else:
        entries = _decode(_ENTRIES, data[DOCKER_CFG]) if DOCKER_CFG in data else {}
    if entries is None:
        key = DOCKER_CONFIG_JSON if DOCKER_CONFIG_JSON in data else DOCKER_CFG
        raise InvalidInput(f"data[{key}] of the pull secret is no JSON of Docker's credentials")
    read = (_read_entry(key, entry) for key, entry in entries.items())
    return Keyring(tuple(entry for entry in read if entry is not None))


def _decode(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T | None:
    """Return the decoded data, None where malformed: errors of the library may quote it."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _read_entry(key: str, data: msgspec.Raw) -> KeyringEntry | None:
    """Return an entry, None for an entry that says nothing, as those of credential helpers do."""
    host, path = split_key(key)
    shown = f"the pull secret's entry {quote(key)}"
    entry = _decode(_ENTRY, data)
    if entry is None:
        problem = f"{shown} is no JSON object of texts"
        return KeyringEntry(host=host, path=path, credential=None, problem=problem)
    username, password = entry.username or "", entry.password or ""
    if entry.auth:
        pair = _split_auth(entry.auth)
        if pair is None:
            problem = f"{shown}: auth is not `username:password` in base64"
            return KeyringEntry(host=host, path=path, credential=None, problem=problem)
        username, password = pair
    credential = RegistryCredential(
        key=key,
        username=username,
        password=password,
        identity_token=entry.identitytoken or "",
        registry_token=entry.registrytoken or "",
    )
    if credential == RegistryCredential(key=key):
        return None
    return KeyringEntry(host=host, path=path, credential=credential)


def _split_auth(text: str) -> tuple[str, str] | None:
    """Return the two halves, None for what has none. It may lack the padding of base64."""
    plain = text.strip().rstrip("=")
    try:
        decoded = base64.b64decode(f"{plain}{'=' * (-len(plain) % 4)}", validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    username, colon, password = decoded.partition(":")
    # Old Docker clients filled it up with zeros.
    return (username, password.strip("\x00")) if colon else None
