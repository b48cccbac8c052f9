"""Serve a certificate from files that somebody else renews, such as a mounted Secret.

Decides when they are read again and what happens where they do not fit together. Nothing is
written, and no CA is published: who issues the certificate has made it known.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from rollout_operator.aio.clock import Clock
from rollout_operator.model.errors import ConfigError, InvalidInput
from rollout_operator.pki.facts import assess_served, load_chain, load_key
from rollout_operator.pki.key_pair import Material
from rollout_operator.pki.serving import ServingCertificate
from rollout_operator.planning.certificate import Validity
from rollout_operator.telemetry.logs import log

# Far below the minutes that a kubelet takes to bring a new version into a mount.
LOOK_EVERY: Final = timedelta(seconds=10)
CERT_FLAG: Final = "-server-tls.cert-file"
KEY_FLAG: Final = "-server-tls.key-file"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatePaths:
    """Where chain and key are, as PEM."""

    cert: Path
    key: Path


class CertificateFiles:
    """The certificate of this process, in step with two files."""

    def __init__(
        self,
        paths: CertificatePaths,
        serving: ServingCertificate,
        clock: Clock,
        note_expiry: Callable[[str, datetime], None] = lambda which, not_after: None,
    ) -> None:
        self._paths = paths
        self._serving = serving
        self._clock = clock
        self._note_expiry = note_expiry
        self._seen: Material | None = None
        self._told = ""

    def load(self) -> None:
        """Serve what the files hold. Raises ConfigError naming flag and file."""
        self._serve(self._read())

    async def run(self) -> NoReturn:
        """Serve what the files hold whenever that has changed and fits together."""
        while True:
            await self._clock.sleep(LOOK_EVERY)
            self.look()

    def look(self) -> None:
        """Serve what the files hold where it is new; what is not right is told once."""
        try:
            material = self._read()
            if material != self._seen:
                self._serve(material)
            self._told = ""
        except ConfigError as error:
            # Halfway through an exchange of both files; the next look finds the rest.
            if str(error) != self._told:
                log.warn("Keeping certificate, its files are not right", err=error)
            self._told = str(error)

    def _serve(self, material: Material) -> None:
        validity = self._check(material)
        self._seen = material
        self._note_expiry("leaf", validity.end)
        emit = log.info if validity.covers(self._clock.now()) else log.warn
        emit("Serving certificate", file=self._paths.cert, validity=validity.text())

    def _check(self, material: Material) -> Validity:
        """Swap and return the validity. Raises ConfigError, and the old one is served on."""
        cert, key = self._paths.cert, self._paths.key
        _translated(lambda: load_chain(material.cert, "content"), CERT_FLAG, cert)
        _translated(lambda: load_key(material.key, "content"), KEY_FLAG, key)
        validity = _translated(lambda: assess_served(material), KEY_FLAG, key)
        _translated(lambda: self._serving.swap(material), CERT_FLAG, cert)
        return validity

    def _read(self) -> Material:
        return Material(
            cert=_content(self._paths.cert, CERT_FLAG), key=_content(self._paths.key, KEY_FLAG)
        )


def _content(path: Path, flag: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{flag}: {path}: {error.strerror}") from error


_T = TypeVar("_T")


def _translated(work: Callable[[], _T], flag: str, path: Path) -> _T:
    """Return what `work` returns, its InvalidInput turned into a ConfigError for this flag."""
    try:
        return work()
    except InvalidInput as error:
        raise ConfigError(f"{flag}: {path}: {error}") from error
