"""The TLS side of what is served: material → `ssl.SSLContext`, and which one holds now.

Decides versions, suites and options of TLS. A listener asks for the current context at each accept,
so that a swap is an assignment, and connections that are open go on as they are.
"""

import fcntl
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rollout_operator.model.errors import InvalidInput
from rollout_operator.pki.key_pair import Material, Pair

# Of TLS 1.2 only what has forward secrecy and authenticates what it encrypts; 1.3 has no other.
_SUITES: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class ServingCertificate:
    """The context of the moment. With `client_ca`, callers must show a certificate of theirs."""

    def __init__(self, client_ca: bytes | None = None) -> None:
        """Make a holder. Raises InvalidInput where `client_ca` holds no certificate."""
        if client_ca is not None:
            _require_clients(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), client_ca)
        self._client_ca = client_ca
        self._current: ssl.SSLContext | None = None

    @property
    def current(self) -> ssl.SSLContext:
        """Return the context for a connection that begins now; only after a first `swap`."""
        assert self._current is not None, "nothing is served yet"
        return self._current

    def check(self, material: Material) -> None:
        """Raise InvalidInput where TLS does not take the material."""
        server_context(material.served, self._client_ca)

    def swap(self, material: Material) -> None:
        """Serve this from the next connection on. Raises InvalidInput; the old one stays then."""
        self._current = server_context(material.served, self._client_ca)


def server_context(pair: Pair, client_ca: bytes | None = None) -> ssl.SSLContext:
    """Return a context that serves the chain and key. Raises InvalidInput where TLS refuses it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_SUITES)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    # Tickets cost a signature's worth of time each, and API servers keep their connections anyway.
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    if client_ca is not None:
        _require_clients(context, client_ca)
    _load(context, pair)
    return context


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    with _memory_file(pair.cert.rstrip() + b"\n" + pair.key) as path:
        try:
            # The password keeps OpenSSL from asking for one on a terminal.
            context.load_cert_chain(path, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            raise InvalidInput(f"certificate and key: refused by tls: {reason}") from None


def _require_clients(context: ssl.SSLContext, client_ca: bytes) -> None:
    try:
        context.load_verify_locations(cadata=client_ca.decode("ascii"))
        if not context.cert_store_stats()["x509"]:
            raise InvalidInput("client ca: not a certificate in PEM")
    except (ssl.SSLError, ValueError) as error:
        raise InvalidInput("client ca: not a certificate in PEM") from error
    context.verify_mode = ssl.CERT_REQUIRED


@contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file that is on no disk: ssl reads keys from paths only."""
    descriptor = os.memfd_create("serving", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.write(descriptor, content)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
