"""A certificate in its Secret, and the replicas that keep it there, on a clock that is moved.

Certificates have names: `A`, `B` are CAs in the order in which they were seen, `A1` the first leaf
that A has signed. Whatever a story does, what is served verifies under what is published, and
nothing that is logged or kept as text shows a key.
"""

import asyncio
import base64
import json
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from textwrap import shorten
from typing import Any, Final, NoReturn, Protocol, cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from msgspec.structs import replace

from rollout_operator.model.names import Denied, OperatorError
from rollout_operator.pki.certificates import answer
from rollout_operator.pki.manager import Ask, CertificateController, SecretStore
from rollout_operator.pki.material import Examined, Question
from rollout_operator.pki.serving import ServingCertificate
from rollout_operator.planning.certificate import Wanted
from rollout_operator.telemetry.metrics import Metrics
from tests.controllers.fake_client import FakeClient, meta_of
from tests.fakes_clock import EPOCH, FakeClock
from tests.pki.certificates import (
    PKCS8,
    RSA_KEY,
    WANTED,
    YEAR,
    Legacy,
    client_context,
    edit,
    shake_hands,
    verify,
)
from tests.stories import Steps
from tests.web import client_stage

DAY: Final = timedelta(days=1)
MINUTE: Final = timedelta(minutes=1)
NAMESPACE: Final = "prod"
NAME: Final = "certificate"
MADE_BY_US: Final = {"grafana.com/rollout-operator-certificate": "true"}
Data = dict[str, bytes]


class SecretClient(FakeClient):
    """An API server with one Secret, or none."""

    def __init__(self, data: Data | None = None, **metadata: object) -> None:
        """Hold what another client has stored."""
        super().__init__((), ())
        self._version = 100
        self.server_time: Callable[[], datetime | None] = lambda: None
        if data is not None:
            self.store(data, **metadata)

    @property
    def body(self) -> dict[str, Any] | None:
        return self.objects.get(("secrets", NAME))

    @property
    def data(self) -> Data:
        assert self.body is not None
        return {key: base64.b64decode(text) for key, text in self.body["data"].items()}

    @property
    def labels(self) -> object:
        assert self.body is not None
        return meta_of(self.body).get("labels")

    @property
    def writes(self) -> int:
        """Return how many writes came, refused ones included."""
        return sum(not call.startswith("get") for call in self.calls)

    def store(self, data: Data, **metadata: object) -> None:
        """Store data as another client would, in place of what is there."""
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        self.store_raw(encoded, metadata)

    def store_raw(self, data: object, metadata: Mapping[str, object], **fields: object) -> None:
        """Store data as it is, not encoded, and other fields of the object."""
        self._version += 1
        head = {"name": NAME, "namespace": NAMESPACE, "uid": f"u-{NAME}", **metadata}
        head["resourceVersion"] = f"{self._version}"
        whole = {"apiVersion": "v1", "kind": "Secret", "metadata": head, "data": data, **fields}
        self.put("secrets", whole)

    def drop(self) -> None:
        del self.objects["secrets", NAME]


async def answer_here(question: Question) -> Examined:
    """Answer without another process, which has its row in `test_pki_serving`."""
    return answer(question)


class Rig:
    """A replica: its manager and all that it reported."""

    def __init__(
        self,
        secrets: SecretClient,
        clock: FakeClock | None = None,
        wanted: Wanted = WANTED,
        *,
        holds: Callable[[bytes], bool] = lambda bundle: True,
        ask: Ask = answer_here,
    ) -> None:
        self.secrets = secrets
        self.clock = FakeClock() if clock is None else clock
        self.serving = ServingCertificate()
        self._shown: tuple[ssl.SSLContext, bytes] | None = None
        self._metrics = Metrics()
        self._holds = holds
        self.bundles: list[bytes] = []
        self.controller = CertificateController(
            SecretStore(secrets, namespace=NAMESPACE, name=NAME),
            self.serving,
            self.clock,
            wanted,
            self._metrics,
            self,
            ask,
        )

    def holds(self, bundle: bytes) -> bool:
        return self._holds(bundle)

    def publish(self, bundle: bytes) -> None:
        self.bundles.append(bundle)

    @property
    def expiry(self) -> dict[str, datetime]:
        return read_expiry(self._metrics)

    @property
    def served(self) -> bytes:
        """Return the leaf that a handshake shows now, as DER."""
        context = self.serving.current
        if self._shown is None or self._shown[0] is not context:
            self._shown = (context, shake_hands(context, client_context()).cert)
        return self._shown[1]

    async def start(self) -> None:
        """Start the controller; one that goes on trying for real seconds fails the test."""
        async with asyncio.timeout(10):
            await self.controller.start()


def read_expiry(metrics: Metrics) -> dict[str, datetime]:
    """Return the ends that metrics show, by certificate."""
    [family] = metrics.certificate_expiry.collect()
    found = {sample.labels["certificate"]: sample.value for sample in family.samples}
    return {which: datetime.fromtimestamp(at, UTC) for which, at in found.items()}


class Runs(Protocol):
    """What runs for ever."""

    async def run(self) -> NoReturn: ...


@asynccontextmanager
async def background(controller: Runs) -> AsyncIterator[None]:
    """Let something run that was started before."""
    task = asyncio.create_task(controller.run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def without(name: str) -> Callable[[Data], Data]:
    return lambda data: {key: value for key, value in data.items() if key != name}


def but(**parts: bytes) -> Callable[[Data], Data]:
    return lambda data: {**data, **parts}


ENCRYPTED = ec.generate_private_key(ec.SECP256R1()).private_bytes(
    serialization.Encoding.PEM, PKCS8, serialization.BestAvailableEncryption(b"secret")
)
OTHER = Legacy().data()
WEAK = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505 (weak on purpose: TLS must refuse it)
# An address of X.400, which cryptography refuses with an error of its own.
X400 = bytes.fromhex("3004a3020500")
LONG = Legacy(signer=ec.generate_private_key(ec.SECP256R1()), ca_life=50 * YEAR).data()
# In DER: the version of a certificate, and the year in which LONG's CA ends.
V3, V8 = b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07"
ENDS, YEAR_0 = b"\x18\x0f%d" % (EPOCH + 50 * YEAR).year, b"\x18\x0f0000"
FOREIGN = Legacy(issued_to="etcd.example").data()
# What becomes of the data of a Secret.
KINDS: dict[str, Callable[[Data], Data]] = {
    "RSA in PKCS1": lambda data: data,
    "RSA in PKCS8": lambda _: Legacy(format=PKCS8).data(),
    "a wildcard": lambda _: Legacy(names=["*.prod.svc"]).data(),
    "EC in SEC1": lambda _: Legacy(key=ec.generate_private_key(ec.SECP384R1())).data(),
    "key missing": without("key"),
    "cert missing": without("cert"),
    "ca missing": without("ca"),
    "empty data": lambda _: {},
    "empty values": but(cert=b"", key=b""),
    "garbage instead of PEM": but(cert=b"garbage \xff\x00"),
    "key of another certificate": but(
        key=Legacy(key=ec.generate_private_key(ec.SECP256R1())).data()["key"]
    ),
    "leaf not signed by ca": but(ca=OTHER["ca"]),
    "truncated key": lambda data: {**data, "key": data["key"][:200]},
    "truncated cert": lambda data: {**data, "cert": data["cert"][:400]},
    "encrypted key": but(key=ENCRYPTED),
    "ca is no CA": lambda _: Legacy(is_ca=False).data(),
    "expired": lambda _: Legacy(start=EPOCH - YEAR).data(),
    "expired CA": lambda _: Legacy(start=EPOCH - DAY, ca_life=DAY).data(),
    "not valid yet": lambda _: Legacy(start=EPOCH + DAY).data(),
    "another name": lambda _: Legacy(names=["other.prod.svc"]).data(),
    "a key that TLS refuses": lambda _: Legacy(key=WEAK).data(),
    "for clients": lambda _: Legacy(usage=ExtendedKeyUsageOID.CLIENT_AUTH).data(),
    "etcd's under our keys": lambda _: {**FOREIGN, "password": b"hunter2"},
    "no certificate at all": lambda _: {"password": b"hunter2"},
    "as cert-manager does": lambda _: {"tls.crt": FOREIGN["cert"], "tls.key": FOREIGN["key"]},
    "garbage": lambda _: {"cert": b"garbage", "key": b"garbage"},
    "due": lambda _: Legacy(start=EPOCH - 300 * DAY).data(),
    "names of an odd kind": lambda _: Legacy(other_names=X400).data(),
    "cert of an odd version": lambda data: {**data, "cert": edit(data["cert"], V3, V8)},
    "ca of an odd version": lambda data: {**data, "ca": edit(data["ca"], V3, V8)},
    "a next CA of an odd time": but(
        **{"next-ca": edit(LONG["ca"], ENDS, YEAR_0), "next-ca-key": LONG["ca-key"]}
    ),
    "an RSA key of its CA": lambda _: Legacy(signer=RSA_KEY, ca_life=5 * YEAR).data(),
    "another CA as old-ca": lambda data: {**data, "old-ca": OTHER["ca"]},
    "upstream's over ours": lambda data: {**data, **Legacy().data()},
    "key in ca": lambda data: {**data, "ca": data["key"]},
    "key in cert": lambda data: {**data, "cert": data["key"]},
    "key in ca-key": lambda data: {**data, "ca-key": data["key"]},
}
ERRORS: Final = client_stage.ERRORS | {
    "denied": Denied("grant verb create", call="create secrets", status=403),
    "unauthorized": Denied("no such token", status=401),
}
VERBS: Final = {"get": "get", "create": "post", "update": "put"}
# Keys whose values are certificates.
_CERTS: Final = ("ca", "cert", "next-ca", "old-ca")
# So much is shown of an error or a reason.
_LONGEST: Final = 40


class Names:
    """Names of certificates, in the order in which they are seen."""

    def __init__(self) -> None:
        self._names: dict[x509.Certificate, str] = {}
        self._leaves: Counter[str] = Counter()

    def tell(self, pem: bytes) -> str:
        try:
            found = x509.load_pem_x509_certificates(pem)
        except ValueError:
            return "garbage" if pem else "''"
        # A leaf is named after its CA, which may come after it.
        for cert in found:
            self._add(cert)
        return "+".join(self._names[cert] for cert in found)

    def _add(self, cert: x509.Certificate) -> None:
        if cert in self._names:
            return
        if cert.issuer == cert.subject:
            cas = [name for name in self._names.values() if name.isalpha()]
            self._names[cert] = chr(ord("A") + len(cas))
            return
        issuers = (name for ca, name in self._names.items() if _has_signed(ca, cert))
        issuer = next(issuers, "x")
        self._leaves[issuer] += 1
        self._names[cert] = f"{issuer}{self._leaves[issuer]}"


class SecretStage(Steps):
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._clock = FakeClock()
        self._secrets = SecretClient()
        self._replicas: dict[str, Rig] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._names = Names()
        self._shown: dict[str, str] = {}
        self._news: list[str] = []
        self._verified: set[tuple[bytes, bytes]] = set()
        self._calls = 0
        self._keys: set[str] = set()

    async def do_wait(self, seconds: float) -> None:
        await self._clock.advance(timedelta(seconds=seconds))

    async def do_server(self, hours: str) -> None:
        """Have the clock of the API server be so far ahead of ours."""
        self._secrets.server_time = lambda: self._clock.now() + timedelta(hours=float(hours))

    async def do_jump(self, days: str) -> None:
        """Let days go by in which the machine sleeps."""
        self._clock.jump(float(days) * DAY)

    async def do_weekly(self, weeks: str) -> None:
        """Reconcile once a week, for up to so many, until another bundle is published."""
        [rig] = self._replicas.values()
        for _ in range(int(weeks)):
            self._clock.jump(7 * DAY)
            await rig.controller.reconcile()
            self._note()
            if len(rig.bundles) > 1:
                break

    async def do_put(self, kind: str, *words: str) -> None:
        """Store what others write: a kind, `labelled` as ours, `immutable`, or `uid=x`."""
        metadata: dict[str, Any] = dict(one.split("=") for one in words if "=" in one)
        if "labelled" in words:
            metadata["labels"] = MADE_BY_US
        held = self._secrets.data if self._secrets.body else {}
        self._secrets.store(KINDS[kind](held or Legacy().data()), **metadata)
        if "immutable" in words:
            self._secrets.objects["secrets", NAME]["immutable"] = True

    async def do_raw(self, text: str, *fields: str) -> None:
        """Store data as it is, and fields of the object, `name=JSON`."""
        more = {name: json.loads(value) for name, value in (one.split("=", 1) for one in fields)}
        metadata = more.pop("metadata", {})
        self._secrets.store_raw(json.loads(text), metadata, **more)

    async def do_object(self) -> str:
        """Show all of the object but its data."""
        body = self._secrets.body or {}
        return json.dumps({key: it for key, it in body.items() if key != "data"})

    async def do_drop(self) -> None:
        self._secrets.drop()

    async def do_start(self, *names: str) -> None:
        """Start replicas at the same time, each of which then runs; `name=host` for other names."""
        for name, _, host in (one.partition("=") for one in names):
            wanted = replace(WANTED, names=(host,)) if host else WANTED
            self._replicas[name] = Rig(self._secrets, self._clock, wanted)
            self._tasks.append(self.start(self._run(name)))
        await self._clock.settle()

    async def _run(self, name: str) -> None:
        try:
            await self._replicas[name].start()
        except OperatorError as error:
            self._lines.append(f"level=fatal msg=ended err={json.dumps(str(error))}\n")
            return
        await self._replicas[name].controller.run()

    async def do_stop(self, name: str) -> None:
        """Take a replica away."""
        self._tasks.pop([*self._replicas].index(name)).cancel()
        del self._replicas[name]
        self._shown = {key: it for key, it in self._shown.items() if not key.startswith(name)}

    async def do_confirm(self, name: str) -> str:
        return await _tell(self._replicas[name].controller.confirm)

    async def do_reconcile(self, name: str) -> str:
        """Have a replica that does not run reconcile once; show why not."""
        rig = self._replicas.setdefault(name, Rig(self._secrets, self._clock))
        return await _tell(rig.controller.reconcile)

    async def do_fail(self, what: str, error: str) -> None:
        """Have `all` calls, or each `write`, fail."""

        def fail(call: str) -> None:
            if what == "all" or not call.startswith("get"):
                raise ERRORS[error]

        self._secrets.before = fail

    async def do_garble(self) -> None:
        """Have reads find what is no object."""
        self._secrets.objects["secrets", NAME] = cast(Any, ["private"])

    async def do_heal(self) -> None:
        self._secrets.before = lambda call: None

    async def do_lose(self, verb: str) -> None:
        """Have such writes be carried out, and not answered."""
        self._secrets.lost.add(f"{VERBS[verb]} secrets/{NAME}")

    async def do_meet(self, verb: str) -> None:
        """Have the first calls of two replicas with this verb wait for each other."""
        meeting = asyncio.Barrier(2)
        waits = 2

        async def meet(called: str) -> None:
            nonlocal waits
            if called.startswith(VERBS[verb]) and waits:
                waits -= 1
                await meeting.wait()

        self._secrets.pause = meet

    async def do_interfere(self) -> None:
        """Have another client write before each update."""

        async def interfere(called: str) -> None:
            if called.startswith(VERBS["update"]):
                self._secrets.store({})

        self._secrets.pause = interfere

    def look(self) -> list[str]:
        names = {word: verb for verb, word in VERBS.items()}
        calls = Counter(names[call.split()[0]] for call in self._secrets.calls[self._calls :])
        self._calls = len(self._secrets.calls)
        found = [" ".join(f"{number} {verb}" for verb, number in calls.items())] if calls else []
        self._note()
        news, self._news = self._news, []
        return [*found, *news, *self._look_at_log()]

    def _note(self) -> None:
        """Note what has changed since it was noted last."""
        now = {"holds": self._tell_secret()}
        for name, rig in self._replicas.items():
            if rig.bundles:
                now |= {f"{name} {key}": it for key, it in self._tell_replica(rig).items()}
        self._news += [
            f"{key} {it}" for key, it in now.items() if self._shown.get(key, "nothing") != it
        ]
        self._shown |= now

    def _tell_secret(self) -> str:
        if not isinstance(self._secrets.body, dict):
            return "nothing"
        labels = _part(self._secrets.body, "metadata").get("labels") or {}
        data = _part(self._secrets.body, "data")
        parts = []
        for key, text in data.items():
            value = _decode(text)
            if key in _CERTS:
                parts.append(f"{key}={self._names.tell(value)}")
            else:
                parts.append(key)
            if b"PRIVATE" in value:
                self._keys |= {base64.b64encode(value).decode()[80:120]}
                self._keys |= {line.decode() for line in value.splitlines()[1:2]}
        is_labelled = isinstance(labels, dict) and MADE_BY_US.items() <= labels.items()
        return f"{' '.join(sorted(parts)) or 'no data'}{', labelled' if is_labelled else ''}"

    def _tell_replica(self, rig: Rig) -> dict[str, str]:
        now, bundle = self._clock.now(), rig.controller.ca_bundle
        leaf = x509.load_der_x509_certificate(rig.served)
        pem = leaf.public_bytes(serialization.Encoding.PEM)
        is_valid = leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc
        if is_valid and (pem, bundle) not in self._verified:
            self._verified.add((pem, bundle))
            names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            is_ours = x509.AuthorityKeyIdentifier in {type(one.value) for one in leaf.extensions}
            host = names.get_values_for_type(x509.DNSName)[0]
            verify(pem, bundle, now, host=host, lax=not is_ours)
        ends = [f"{key} {(at - EPOCH) / DAY:g}d" for key, at in sorted(rig.expiry.items())]
        return {
            "publishes": self._names.tell(bundle),
            "serves": f"{self._names.tell(pem)} ({', '.join(ends)})",
        }

    def _look_at_log(self) -> list[str]:
        """Return each line but those that say what is shown already."""
        kept = [vars(rig.controller) | vars(rig.serving) for rig in self._replicas.values()]
        said = f"{''.join(self._lines)}{kept}"
        assert "PRIVATE" not in said
        assert not [key for key in self._keys if key in said], "SEC-14"
        told = Counter(
            " ".join(
                shorten(value.strip('"'), _LONGEST, placeholder="...")
                for value in re.findall(r'(?:level|step|reason|err)=("(?:[^"\\]|\\.)*"|\S+)', line)
            )
            for line in self._lines
            if not re.search("Serving certificate|Reading certificate|step=keep", line)
        )
        self._lines.clear()
        return [text if number == 1 else f"{text} x{number}" for text, number in told.items()]


async def _tell(call: Callable[[], Any]) -> str:
    try:
        await call()
    except OperatorError as error:
        of = f" {error.status} {error.call}" if isinstance(error, Denied) else ""
        return f"{type(error).__name__}{of.rstrip()} {error}"
    return ""


def _part(body: Any, key: str) -> dict[str, Any]:
    part = body.get(key)
    return part if isinstance(part, dict) else {}


def _decode(text: object) -> bytes:
    with suppress(ValueError, TypeError):
        return base64.b64decode(str(text), validate=True)
    return b"-"


def _has_signed(ca: x509.Certificate, cert: x509.Certificate) -> bool:
    try:
        cert.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
