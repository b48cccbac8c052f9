"""Certificates from files: SEED-095, DEP-19, TLS-21."""

import re
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography import x509

from rollout_operator.model.names import ConfigError
from rollout_operator.pki.certificates import KeyMaterial, Pair, carry_out
from rollout_operator.pki.serving import CertificateFiles, CertificatePaths, ServingCertificate
from rollout_operator.planning.certificate import CertificateStep, Decision
from tests.fakes_clock import EPOCH, FakeClock
from tests.pki.certificates import WANTED, YEAR, client_context, load, shake_hands
from tests.pki.stage import background

SECONDS = timedelta(seconds=1)


def fresh(now: datetime = EPOCH) -> Pair:
    decision = Decision(step=CertificateStep.START_OVER, reason="")
    return carry_out(decision, KeyMaterial(), WANTED, now).served


class Mount:
    """A folder as a kubelet fills it: files are links into the version that `now` points to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._versions = 0
        self.paths = CertificatePaths(cert=folder / "tls.crt", key=folder / "tls.key")
        for path in (self.paths.cert, self.paths.key):
            path.symlink_to(folder / "now" / path.name)
        self.serving = ServingCertificate()
        self.clock = FakeClock()
        self.expiry: dict[str, datetime] = {}
        self.files = CertificateFiles(self.paths, self.serving, self.clock, self.expiry.__setitem__)

    def fill(self, pair: Pair) -> None:
        self._versions += 1
        version = self._folder / f"version-{self._versions}"
        version.mkdir()
        (version / "tls.crt").write_bytes(pair.cert)
        (version / "tls.key").write_bytes(pair.key)
        link = self._folder / "next"
        link.symlink_to(version)
        link.rename(self._folder / "now")

    @property
    def serial(self) -> int:
        der = shake_hands(self.serving.current, client_context()).cert
        return load_der(der)


def load_der(der: bytes) -> int:
    return x509.load_der_x509_certificate(der).serial_number


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    return Mount(tmp_path)


@pytest_asyncio.fixture
async def running(mount: Mount) -> AsyncIterator[Mount]:
    """A mount with one good pair, served."""
    mount.fill(fresh())
    mount.files.load()
    async with background(mount.files):
        yield mount


async def test_the_files_are_served(mount: Mount) -> None:
    """SEED-095."""
    pair = fresh()
    mount.fill(pair)
    mount.files.load()
    assert mount.serial == load(pair.cert).serial_number
    assert mount.expiry == {"leaf": EPOCH + YEAR}


GOOD = fresh()


@pytest.mark.parametrize(
    ("pair", "error"),
    [
        (None, "-server-tls.cert-file: {cert}: No such file or directory"),
        (
            Pair(cert=b"garbage", key=GOOD.key),
            "-server-tls.cert-file: {cert}: content: not a certificate in PEM",
        ),
        (Pair(cert=b"", key=GOOD.key), "-server-tls.cert-file: {cert}: content: missing"),
        (
            Pair(cert=GOOD.cert, key=GOOD.cert),
            "-server-tls.key-file: {key}: content: not a private key in PEM",
        ),
        (
            Pair(cert=GOOD.cert, key=fresh().key),
            "-server-tls.key-file: {key}: key: does not belong to the certificate",
        ),
    ],
)
async def test_files_that_cannot_be_served_end_the_start(
    mount: Mount, pair: Pair | None, error: str
) -> None:
    """SEED-095: the error names flag and file."""
    if pair is not None:
        mount.fill(pair)
    text = error.format(cert=mount.paths.cert, key=mount.paths.key)
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        mount.files.load()


async def test_a_missing_key_file_is_named(mount: Mount) -> None:
    mount.fill(GOOD)
    mount.paths.key.unlink()
    with pytest.raises(ConfigError, match=r"^-server-tls\.key-file: .*tls\.key: No such file"):
        mount.files.load()


async def test_new_files_are_served_within_ten_seconds(running: Mount) -> None:
    """DEP-19: an atomic exchange, as mounts do it."""
    pair = fresh(EPOCH + timedelta(days=9))
    context = running.serving.current
    running.fill(pair)
    await running.clock.advance(10 * SECONDS)
    assert running.serving.current is not context
    assert running.serial == load(pair.cert).serial_number
    assert running.expiry["leaf"] == EPOCH + timedelta(days=9) + YEAR


async def test_files_that_stay_are_not_loaded_again(running: Mount) -> None:
    context = running.serving.current
    await running.clock.advance(60 * SECONDS)
    assert running.serving.current is context


async def test_a_pair_that_does_not_fit_yet_is_left_alone(running: Mount, lines: list[str]) -> None:
    """TLS-21: the old one goes on, with one warning, until the other file has come as well."""
    pair, old = fresh(), running.serial
    running.fill(Pair(cert=pair.cert, key=fresh().key))
    await running.clock.advance(60 * SECONDS)
    assert running.serial == old
    running.fill(pair)
    await running.clock.advance(10 * SECONDS)
    assert running.serial == load(pair.cert).serial_number
    assert len([line for line in lines if "level=warn" in line]) == 1


async def test_files_that_go_away_are_no_end(running: Mount) -> None:
    old = running.serial
    running.paths.cert.unlink()
    await running.clock.advance(60 * SECONDS)
    assert running.serial == old


async def test_an_expired_file_is_served_with_a_warning(mount: Mount, lines: list[str]) -> None:
    """Rolling updates go on, reviews come back as soon as the file is renewed."""
    mount.fill(fresh(EPOCH - 2 * YEAR))
    mount.files.load()
    assert ["level=warn" in line for line in lines] == [True]
