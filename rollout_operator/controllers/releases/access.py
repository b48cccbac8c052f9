"""How a registry may be read, as an ImageRepository says: by which credentials and which proxy.

Secrets are read before each read of a registry, and kept nowhere. An error names a Secret and its
key: no text has anything of its values.
"""

import base64
import binascii
import os
import ssl
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from rollout_operator.kube.api import SECRETS, Reader
from rollout_operator.model.errors import InvalidInput, NotFound
from rollout_operator.model.releases.flux import ImageRepository
from rollout_operator.oci.client import RegistryAccess
from rollout_operator.oci.keyring import Keyring, decode_pull_secret
from rollout_operator.oci.sender import Route

_NO_CLOUD: Final = ("", "generic")
# The newer name, and the name of earlier releases of Flux.
_CA: Final = ("ca.crt", "caFile")
_CERTIFICATE: Final = ("tls.crt", "certFile")
_KEY: Final = ("tls.key", "keyFile")


class _Secret(msgspec.Struct):
    data: dict[str, str] | None = None


_SECRET: Final = msgspec.json.Decoder(_Secret)


async def read_access(reader: Reader, repository: ImageRepository) -> RegistryAccess:
    """Return how to read the registry of an ImageRepository.

    Raises InvalidInput where a person must change something, and what `Reader.fetch` raises.
    """
    return RegistryAccess(
        keyring=await _read_keyring(reader, repository),
        is_insecure=repository.is_insecure,
        route=Route(
            trust=await _read_trust(reader, repository),
            proxy=await _read_proxy(reader, repository),
        ),
    )


async def _read_keyring(reader: Reader, repository: ImageRepository) -> Keyring:
    if repository.pull_secret is not None:
        return decode_pull_secret(await _read(reader, repository, repository.pull_secret))
    if repository.provider not in _NO_CLOUD:
        raise InvalidInput(
            f"{_name(repository)}: spec.provider: credentials of {repository.provider} are not"
            " fetched here; name a pull secret in spec.secretRef"
        )
    return Keyring()


async def _read_trust(reader: Reader, repository: ImageRepository) -> ssl.SSLContext | None:
    if repository.certificates is None:
        return None
    data = await _read(reader, repository, repository.certificates)
    where = f"{_name(repository)}: secret {repository.certificates}"
    ca, certificate, key = (_find(data, names) for names in (_CA, _CERTIFICATE, _KEY))
    has_pair = certificate is not None or key is not None
    context = ssl.create_default_context()
    try:
        if ca is not None or not has_pair:
            context.load_verify_locations(cadata=(ca or b"").decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise InvalidInput(f"{where}: ca.crt holds no certificates in PEM") from None
    try:
        if has_pair:
            _load_pair(context, certificate or b"", key or b"")
    except (ssl.SSLError, OSError, ValueError):
        text = "tls.crt and tls.key are no certificate with its key, in PEM and without a password"
        raise InvalidInput(f"{where}: {text}") from None
    return context


def _find(data: Mapping[str, bytes], names: Iterable[str]) -> bytes | None:
    return next((data[name] for name in names if name in data), None)


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have a client certificate shown to servers that require it.

    The library reads it from a file: from a file in memory, and that no other process sees.
    """
    with os.fdopen(os.memfd_create("client certificate"), "wb") as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        # Without a password it would prompt at the terminal.
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password=lambda: "")


async def _read_proxy(reader: Reader, repository: ImageRepository) -> str | None:
    if repository.proxy is None:
        return None
    data = await _read(reader, repository, repository.proxy)
    address, *pair = (data.get(key, b"") for key in ("address", "username", "password"))
    try:
        url = urlsplit(address.decode("ascii").strip())
        has_host = url.scheme in {"http", "https"} and bool(url.hostname)
    except ValueError:
        has_host = False
    if not has_host:
        text = f"{_name(repository)}: secret {repository.proxy}: address is no URL of a proxy"
        raise InvalidInput(text)
    host = url.netloc.rpartition("@")[2]
    user = ":".join(quote(part, safe="") for part in pair) + "@" if pair[0] else ""
    return f"{url.scheme}://{user}{host}"


async def _read(reader: Reader, repository: ImageRepository, name: str) -> Mapping[str, bytes]:
    """Return the data of a Secret beside the ImageRepository."""
    where = f"{_name(repository)}: secret {name}"
    try:
        body = await reader.fetch(SECRETS, repository.head.namespace, name)
    except NotFound as error:
        raise InvalidInput(f"{where}: there is none") from error
    try:
        data = _SECRET.decode(body).data or {}
        return {key: base64.b64decode(value) for key, value in data.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, binascii.Error):
        # The cause would quote what it read.
        raise InvalidInput(f"{where}: its data cannot be read") from None


def _name(repository: ImageRepository) -> str:
    return f"ImageRepository {repository.head.key}"
