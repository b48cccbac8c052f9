"""A token server for the reference registry: it signs what a registry then accepts.

As the distribution specification has it: a password for a token that is good for one repository.
"""

import base64
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from tests.world.pki import Pki
from tests.world.registry import PASSWORD, USER

ISSUER: Final = "tests"
SERVICE: Final = "registry"
_LIFE: Final = 300


class TokenServer(msgspec.Struct, frozen=True, kw_only=True):
    """One that runs."""

    realm: str
    requested: list[str] = []
    """The scopes of all requests, in their order."""


@contextmanager
def serving_tokens(pki: Pki) -> Iterator[TokenServer]:
    """Serve tokens without TLS to holders of the password, for as long as the context lasts."""
    requested: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Answers, pki, requested))
    thread = threading.Thread(target=server.serve_forever, name="token server")
    thread.start()
    try:
        yield TokenServer(realm=f"http://127.0.0.1:{server.server_port}/token", requested=requested)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def render_auth(server: TokenServer, pki: Pki) -> str:
    """Return the part of a registry's settings that makes it trust the server."""
    return (
        f"token: {{realm: '{server.realm}', service: {SERVICE}, issuer: {ISSUER},"
        f" rootcertbundle: '{pki.ca}'}}"
    )


def sign_token(pki: Pki, scopes: Sequence[str]) -> str:
    """Return a token for scopes such as `repository:NAME:pull,push`."""
    now = int(time.time())
    claims = {
        "iss": ISSUER,
        "aud": SERVICE,
        "sub": USER,
        "jti": f"{now}",
        "iat": now,
        "nbf": now - 60,
        "exp": now + _LIFE,
        "access": [_read_scope(scope) for scope in scopes],
    }
    cert = x509.load_pem_x509_certificate(pki.cert.read_bytes())
    der = cert.public_bytes(serialization.Encoding.DER)
    header = {"typ": "JWT", "alg": "ES256", "x5c": [base64.b64encode(der).decode()]}
    signed = ".".join(_encode(json.dumps(part).encode()) for part in (header, claims))
    return f"{signed}.{_encode(_sign(pki.key, signed.encode()))}"


class _Answers(BaseHTTPRequestHandler):
    """What one request is answered."""

    def __init__(self, pki: Pki, requested: list[str], *args: object) -> None:
        self._pki = pki
        self._requested = requested
        super().__init__(*args)  # type: ignore[arg-type]  # as the server passes them

    def do_GET(self) -> None:
        """Answer with a token, or with 401."""
        query = parse_qs(urlsplit(self.path).query)
        pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {pair}":
            self._send(401, {"errors": [{"code": "UNAUTHORIZED"}]})
            return
        self._requested.extend(query.get("scope", []))
        token = sign_token(self._pki, query.get("scope", []))
        self._send(200, {"token": token, "expires_in": _LIFE})

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def _send(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", f"{len(body)}")
        self.end_headers()
        self.wfile.write(body)


def _read_scope(text: str) -> dict[str, object]:
    kind, name, actions = text.split(":")
    return {"type": kind, "name": name, "actions": actions.split(",")}


def _sign(key: Path, text: bytes) -> bytes:
    """Return both numbers of a signature, one after the other."""
    private = serialization.load_pem_private_key(key.read_bytes(), password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    pair = utils.decode_dss_signature(private.sign(text, ec.ECDSA(hashes.SHA256())))
    return b"".join(number.to_bytes(32, "big") for number in pair)


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
