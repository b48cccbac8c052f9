"""Key pairs in memory and in files: what they are made of, and what becomes of them."""

import asyncio
import os
import re
import ssl
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rollout_operator.model.names import ConfigError, InvalidInput
from rollout_operator.pki.certificates import (
    answer,
    carry_out,
    issue_ca,
    issue_leaf,
    read_bundle,
    read_material,
    trusted_bundle,
)
from rollout_operator.pki.material import KeyMaterial, Pair, Question
from rollout_operator.pki.serving import CertificateFiles, CertificatePaths, ServingCertificate
from rollout_operator.planning.certificate import (
    BrokenCertificate,
    CertificateStep,
    Decision,
    Validity,
)
from rollout_operator.telemetry.metrics import Metrics
from tests.fakes_clock import EPOCH, FakeClock
from tests.pki.certificates import HOST, WANTED, YEAR, Legacy, client_context, load, shake_hands
from tests.pki.stage import WEAK, Names, read_expiry
from tests.stories import Steps

DAY: Final = timedelta(days=1)
_USAGES: Final = ("digital_signature", "key_cert_sign", "crl_sign", "key_encipherment")


def step(kind: str, material: KeyMaterial, *, now: datetime = EPOCH) -> KeyMaterial:
    """Carry out a step; `start_over old` keeps the CA published."""
    name, *words = kind.split()
    decision = Decision(step=CertificateStep(name), reason="", trusts_old=bool(words))
    return carry_out(decision, material, WANTED, now)


def fresh(now: datetime = EPOCH) -> KeyMaterial:
    return step("start_over", KeyMaterial(), now=now)


def legacy(changed: Legacy | None = None) -> KeyMaterial:
    return KeyMaterial(**(changed or Legacy()).data())


def chain() -> tuple[bytes, bytes, Pair]:
    """Return a root, an intermediate signed by it, and a leaf signed by that."""
    top, below = issue_ca(WANTED, EPOCH), issue_ca(WANTED, EPOCH)
    root, inner = load(top.cert), load(below.cert)
    key = serialization.load_pem_private_key(top.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    middle = (
        x509.CertificateBuilder()
        .subject_name(inner.subject)
        .issuer_name(root.subject)
        .public_key(inner.public_key())
        .serial_number(7)
        .not_valid_before(EPOCH)
        .not_valid_after(EPOCH + YEAR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    signed = middle.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return top.cert, signed, issue_leaf(below, WANTED, EPOCH)


ROOT, MIDDLE, LEAF = chain()
ENDS_EARLY = legacy(Legacy(ca_life=DAY))
MATERIALS: Final[dict[str, Callable[[], KeyMaterial]]] = {
    "ours": fresh,
    "of today": lambda: fresh(datetime.now(UTC)),
    "EC in SEC1": lambda: legacy(Legacy(key=ec.generate_private_key(ec.SECP384R1()))),
    "upstream's": legacy,
    "weak": lambda: legacy(Legacy(key=WEAK)),
    "chain with its end": lambda: replace(ENDS_EARLY, cert=ENDS_EARLY.cert + ENDS_EARLY.ca),
    "intermediate": lambda: KeyMaterial(cert=LEAF.cert + MIDDLE, key=LEAF.key, ca=ROOT),
    "no intermediate": lambda: KeyMaterial(cert=LEAF.cert, key=LEAF.key, ca=ROOT),
    "another intermediate": lambda: KeyMaterial(cert=LEAF.cert + fresh().ca, key=LEAF.key, ca=ROOT),
    "nothing": KeyMaterial,
}


class PemStage(Steps):
    """One key pair, of which parts are replaced and which takes steps."""

    def __init__(self) -> None:
        self._names = Names()
        self._material = KeyMaterial()
        self._before = KeyMaterial()
        self._serving = ServingCertificate()

    async def do_have(self, name: str) -> str:
        self._material = MATERIALS[name]()
        return self._tell()

    async def do_step(self, *words: str) -> str:
        self._before, self._material = self._material, step(" ".join(words), self._material)
        if self._before.served == self._material.served:
            return f"{self._tell()}, the same leaf"
        return self._tell()

    async def do_put(self, *parts: str) -> str:
        """Replace parts, such as `ca=new+ca`: of what is there, or `x` for no PEM, or of others."""
        values = {name: self._make(words) for name, words in (one.split("=") for one in parts)}
        self._material = replace(self._material, **values)
        return self._tell()

    async def do_facts(self) -> str:
        facts = read_material(self._material)
        if isinstance(facts, BrokenCertificate):
            return facts.problem
        spans = {"leaf": facts.leaf, "ca": facts.ca, "next": facts.next_ca, "old": facts.old_ca}
        told = [f"{name} {_tell_span(span)}" for name, span in spans.items() if span]
        return ", ".join([*facts.names, *told, *(["may sign"] if facts.may_sign else [])])

    async def do_bundle(self) -> str:
        return self._names.tell(trusted_bundle(self._material))

    async def do_vouch(self, bundle: str, served: str = "cert") -> str:
        """Show what a bundle of these parts says of a certificate; `%` is no base64."""
        text = bundle if bundle == "%" else b64encode(self._make(bundle)).decode()
        facts = read_bundle(text, b"" if served == "unknown" else self._make(served))
        ends = f", ends {_tell_time(facts.ends)}" if facts.ends else ""
        return f"{facts.problem or f'vouches {facts.vouches}'}{ends}"

    async def do_sign(self, key: str) -> str:
        """Have the CA sign with a key."""
        try:
            issue_leaf(Pair(cert=self._material.ca, key=self._make(key)), WANTED, EPOCH)
        except InvalidInput as error:
            return str(error)
        return "signed"

    async def do_describe(self, part: str) -> str:
        told = _describe(self._make(part))
        if part == "cert":
            leaf, ca = load(self._material.cert), load(self._material.ca)
            signer = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
            own = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
            told += ", names its CA" if signer.key_identifier == own.digest else ""
        return told

    async def do_shake(self, *words: str) -> str:
        """Shake hands with a client: `host=`, `trusts=new`, `version=`, `suites=`, `alpn=`.

        With `client-ca` the server wants a certificate of the client, which one that `shows` has.
        """
        given = {key: value for key, _, value in (word.partition("=") for word in words)}
        own = issue_ca(WANTED, datetime.now(UTC))
        client = client_context(self._make(given["trusts"]) if "trusts" in given else b"")
        if "version" in given:
            client.minimum_version = client.maximum_version = ssl.TLSVersion[given["version"]]
            client.set_ciphers(given.get("suites", "ALL:@SECLEVEL=0"))
        if "alpn" in given:
            client.set_alpn_protocols(given["alpn"].split(","))
        if "shows" in given:
            _show(client, issue_leaf(own, WANTED, datetime.now(UTC)))
        try:
            serving = ServingCertificate(own.cert if "client-ca" in given else None)
            serving.swap_pair(self._material.served)
            peer = shake_hands(serving.current, client, given.get("host", HOST))
        except InvalidInput as error:
            return f"{error}{error.__cause__ or ''}"
        except ssl.SSLError as error:
            return type(error).__name__
        return f"{peer.version} {peer.protocol or 'without a protocol'}"

    async def do_serve(self, client_ca: str = "") -> str:
        """Swap this in, after what has been served, with certificates of clients."""
        before = self._serving.current if self._serving._current else None
        try:
            ServingCertificate(self._make(client_ca)) if client_ca else None
            found = answer(Question(material=self._material))
            self._serving.check(found)
            self._serving.swap(found)
        except InvalidInput as error:
            assert before is None or self._serving.current is before
            return str(error)
        return "another" if self._serving.current is not before else "the same"

    async def do_late(self) -> str:
        """Show the end of a leaf that is issued a day before its CA ends."""
        ca = Pair(cert=self._material.ca, key=self._material.ca_key)
        return _tell_time(
            load(issue_leaf(ca, WANTED, EPOCH + WANTED.ca_life - DAY).cert).not_valid_after_utc
        )

    def _make(self, words: str) -> bytes:
        other = fresh()
        made = {"": b"", "x": b"x", "half": b"-----BEGIN CERTIFICATE-----"}
        made |= {"new": other.ca, "newkey": other.key, "comment": b"a comment\n"}
        return b"".join(
            made[word] if word in made else getattr(self._material, word)
            for word in words.split("+")
        )

    def _tell(self) -> str:
        # CAs first: leaves are named after them.
        for part in ("ca", "next_ca", "old_ca"):
            self._names.tell(getattr(self._material, part))
        shown = [
            f"{part}={self._names.tell(pem)}"
            for part in ("cert", "ca", "next_ca", "old_ca")
            if (pem := getattr(self._material, part))
        ]
        return " ".join(shown)


def _show(client: ssl.SSLContext, pair: Pair) -> None:
    """Let a client show a certificate."""
    descriptor = os.memfd_create("client")
    os.write(descriptor, pair.cert + pair.key)
    client.load_cert_chain(f"/proc/self/fd/{descriptor}")
    os.close(descriptor)


def _describe(pem: bytes) -> str:
    if pem.startswith(b"-----BEGIN PRIVATE"):
        key = serialization.load_pem_private_key(pem, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return f"PKCS8 {key.curve.name}"
    cert = load(pem)
    found = {type(one.value): one for one in cert.extensions}
    limits = found[x509.BasicConstraints]
    usage = found[x509.KeyUsage].value
    told = [
        cert.subject.rfc4514_string().replace(f"{cert.serial_number % 2**32:08x}", "SERIAL"),
        _tell_span(Validity(start=cert.not_valid_before_utc, end=cert.not_valid_after_utc)),
        f"ca={limits.value.ca}{' critical' if limits.critical else ''}",
        " ".join(name for name in _USAGES if getattr(usage, name)),
    ]
    if x509.SubjectAlternativeName in found:
        told += found[x509.SubjectAlternativeName].value.get_values_for_type(x509.DNSName)
        told += [purpose._name for purpose in found[x509.ExtendedKeyUsage].value]
    return ", ".join(told)


def _tell_span(span: Validity) -> str:
    return f"{_tell_time(span.start)} to {_tell_time(span.end)}"


def _tell_time(at: datetime) -> str:
    days = (at - EPOCH) / DAY
    return f"{days * 24 * 60:g}m" if abs(days) < 1 else f"{days:g}d"


class FileStage(Steps):
    """A folder as a kubelet fills it: files are links into the version that `now` points to."""

    def __init__(self, tmp_path: Path, lines: list[str]) -> None:
        self._folder = folder = tmp_path
        self._lines = lines
        self._versions = 0
        self._pairs: dict[str, Pair] = {}
        self._names: dict[bytes, str] = {}
        self._paths = CertificatePaths(cert=folder / "tls.crt", key=folder / "tls.key")
        for path in (self._paths.cert, self._paths.key):
            path.symlink_to(folder / "now" / path.name)
        self._serving = ServingCertificate()
        self._clock = FakeClock()
        self._metrics = Metrics()
        self._files = CertificateFiles(self._paths, self._serving, self._clock, self._metrics)
        self._context: object = None
        self._task: asyncio.Task[None] | None = None

    async def do_wait(self, seconds: float) -> None:
        await self._clock.advance(timedelta(seconds=seconds))

    async def do_fill(self, cert: str, key: str) -> None:
        """Bring a new version: the certificate and the key of pairs by name, `x`, or nothing."""
        self._versions += 1
        version = self._folder / f"version-{self._versions}"
        version.mkdir()
        (version / "tls.crt").write_bytes(self._make(cert).cert if cert else b"")
        (version / "tls.key").write_bytes(self._make(key).key)
        link = self._folder / "next"
        link.symlink_to(version)
        link.rename(self._folder / "now")

    async def do_remove(self, part: str) -> None:
        getattr(self._paths, part).unlink()

    async def do_load(self) -> str:
        try:
            self._files.load()
        except ConfigError as error:
            return str(error).replace(str(self._folder), "")
        return ""

    async def do_run(self) -> None:
        self._task = self.start(self._files.run())
        await self._clock.settle()

    def look(self) -> list[str]:
        assert self._task is None or not self._task.done()
        lines = [line.replace(str(self._folder), "") for line in self._lines]
        found = [" ".join(re.findall(r'(?:level|file|err)=(?:"[^"]*"|\S+)', one)) for one in lines]
        self._lines.clear()
        if self._context is not self._serving._current:
            self._context = self._serving.current
            der = shake_hands(self._serving.current, client_context()).cert
            ends = ", ".join(
                f"{name} {_tell_time(at)}" for name, at in read_expiry(self._metrics).items()
            )
            found.append(f"serves {self._names[der]} ({ends})")
        return found

    def _make(self, name: str) -> Pair:
        """Return a pair: `old` from two years ago, `later` in nine days, else from now."""
        if name == "x":
            return Pair(cert=b"garbage", key=b"garbage")
        if name not in self._pairs:
            days = {"old": -2 * 365, "later": 9}.get(name, 0)
            self._pairs[name] = fresh(EPOCH + days * DAY).served
            der = load(self._pairs[name].cert).public_bytes(serialization.Encoding.DER)
            self._names[der] = name
        return self._pairs[name]
