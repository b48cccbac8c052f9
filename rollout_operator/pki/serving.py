"""Serve TLS: from a key pair to an `ssl.SSLContext`, and which one is current.

A listener takes the current context at each accept, so a swap is an assignment, and open
connections go on. `CertificateFiles` serves files that others renew, such as a mounted Secret.
"""

import fcntl
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.model.names import ConfigError, InvalidInput, OperatorError
from rollout_operator.pki.material import Examined, KeyMaterial, Pair
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics

# Of TLS 1.2 only what has forward secrecy and authenticates what it encrypts; 1.3 has no other.
_SUITES: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
# Far below the minutes that a kubelet takes to bring a new version into a mount.
CHECK_EVERY: Final = timedelta(seconds=10)
_CERT_FLAG: Final = "-server-tls.cert-file"
_KEY_FLAG: Final = "-server-tls.key-file"


class _PeerContexts(msgspec.Struct, frozen=True):
    """Both ends of a connection between replicas: each shows ours, and trusts our CAs alone."""

    accepting: ssl.SSLContext
    calling: ssl.SSLContext | None
    """None where ours may not be shown to a server, as those of earlier operators."""


class ServingCertificate:
    """The context of the moment. With `client_ca`, callers must show a certificate of theirs."""

    def __init__(self, client_ca: bytes | None = None) -> None:
        if client_ca is not None:
            _require_clients(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), client_ca)
        self._client_ca = client_ca
        self._current: ssl.SSLContext | None = None
        self._peers: _PeerContexts | None = None

    @property
    def current(self) -> ssl.SSLContext:
        """Return the context for a connection that begins now; only after a first `swap`."""
        assert self._current is not None, "nothing is served yet"
        return self._current

    @property
    def peers(self) -> _PeerContexts:
        assert self._peers is not None, "nothing is known of a CA"
        return self._peers

    def check(self, found: Examined) -> None:
        """Raise InvalidInput where TLS does not take the key pair."""
        server_context(found.material.served, self._client_ca)
        _make_peers(found)

    def swap(self, found: Examined) -> None:
        """Serve this from the next connection on, or raise InvalidInput and go on with the old."""
        peers = _make_peers(found)
        self.swap_pair(found.material.served)
        self._peers = peers

    def swap_pair(self, pair: Pair) -> None:
        """Serve what has no CA of ours, and no other replica with it: as `swap`."""
        self._current = server_context(pair, self._client_ca)


def _make_peers(found: Examined) -> _PeerContexts | None:
    """Return the contexts for other replicas, None where no CA is known.

    All CAs that callers trust are trusted: another replica may have the next certificate already,
    or that of before still.
    """
    if not found.bundle:
        return None
    pair = found.material.served
    accepting = server_context(pair, found.bundle)
    accepting.minimum_version = ssl.TLSVersion.TLSv1_3
    return _PeerContexts(accepting, _client_context(pair, found.bundle) if found.may_call else None)


def _client_context(pair: Pair, ca: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    _trust(context, ca, "ca")
    _load(context, pair)
    return context


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
    try:
        with _memory_file(pair.cert.rstrip() + b"\n" + pair.key) as path:
            # The password keeps OpenSSL from prompting for it on a terminal.
            context.load_cert_chain(path, password="")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise InvalidInput(f"certificate and key: refused by tls: {reason}") from None
    except OSError as error:
        # Of this process, as where it may open no more files: a good key must not be replaced.
        text = f"certificate and key: cannot be loaded: {error.strerror}"
        raise OperatorError(text) from error


def _require_clients(context: ssl.SSLContext, client_ca: bytes) -> None:
    _trust(context, client_ca, "client ca")
    context.verify_mode = ssl.CERT_REQUIRED


def _trust(context: ssl.SSLContext, ca: bytes, what: str) -> None:
    try:
        context.load_verify_locations(cadata=ca.decode("ascii"))
        if not context.cert_store_stats()["x509"]:
            raise InvalidInput(f"{what}: not a certificate in PEM")
    except (ssl.SSLError, ValueError) as error:
        raise InvalidInput(f"{what}: not a certificate in PEM") from error


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


class CertificatePaths(msgspec.Struct, frozen=True, kw_only=True):
    cert: Path
    key: Path


class CertificateFiles:
    """The certificate of this process, in step with two files."""

    def __init__(
        self,
        paths: CertificatePaths,
        serving: ServingCertificate,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._paths = paths
        self._serving = serving
        self._clock = clock
        self._expiry = metrics.certificate_expiry
        self._seen: KeyMaterial | None = None
        self._logged = ""

    def load(self) -> None:
        """Serve what the files hold. Raises ConfigError naming flag and file."""
        self._serve(self._read())

    async def run(self) -> NoReturn:
        """Serve what the files hold whenever that has changed and fits together."""
        while True:
            await self._clock.sleep(CHECK_EVERY)
            self.reload()

    def reload(self) -> None:
        """Serve what the files hold where it is new; what is not right is logged once."""
        try:
            material = self._read()
            if material != self._seen:
                self._serve(material)
            self._logged = ""
        except OperatorError as error:
            # Halfway through an exchange of both files; the next reconcile finds the rest.
            if str(error) != self._logged:
                log.warn("Keeping certificate, its files are not right", err=error)
            self._logged = str(error)

    def _serve(self, material: KeyMaterial) -> None:
        # Nobody signs here, and only new files are read: it stays in this process.
        from rollout_operator.pki.certificates import load_chain, load_key, read_validity

        cert, key = self._paths.cert, self._paths.key
        with _naming(_CERT_FLAG, cert):
            load_chain(material.cert, "content")
        with _naming(_KEY_FLAG, key):
            load_key(material.key, "content")
            validity = read_validity(material)
        with _naming(_CERT_FLAG, cert):
            self._serving.swap_pair(material.served)
        self._seen = material
        self._expiry.labels("leaf").set(validity.end.timestamp())
        emit = log.info if validity.covers(self._clock.now()) else log.warn
        emit("Serving certificate", file=self._paths.cert, validity=validity.text())

    def _read(self) -> KeyMaterial:
        return KeyMaterial(
            cert=_content(self._paths.cert, _CERT_FLAG), key=_content(self._paths.key, _KEY_FLAG)
        )


def _content(path: Path, flag: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{flag}: {path}: {error.strerror}") from error


@contextmanager
def _naming(flag: str, path: Path) -> Iterator[None]:
    try:
        yield
    except InvalidInput as error:
        raise ConfigError(f"{flag}: {path}: {error}") from error
