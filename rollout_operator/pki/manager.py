"""Keep the certificate in the Secret, what is served and the CA bundle right.

Reads the Secret, lets `planning.certificate` decide, carries the step out and reads again until
nothing is left to do. All replicas do so side by side; one that loses a race for the Secret takes
what the winner wrote. Of the Secret, labels, annotations, type and data that is not ours are kept.
"""

import asyncio
import dataclasses
import signal
import sys
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NoReturn, Protocol

import msgspec
from msgspec.structs import replace

import rollout_operator
from rollout_operator.aio.clock import Clock
from rollout_operator.aio.programs import run_program
from rollout_operator.aio.queue import CERTIFICATES
from rollout_operator.kube.api import SECRETS, JsonObject, Resource
from rollout_operator.model.names import (
    CERTIFICATE_LABEL,
    ApiError,
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    OperatorError,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.units import format_duration
from rollout_operator.pki.material import Examined, Issue, KeyMaterial, Question, Refused
from rollout_operator.pki.serving import ServingCertificate
from rollout_operator.planning.certificate import (
    BrokenCertificate,
    CertificateStep,
    Decision,
    Marks,
    UsableCertificate,
    Wanted,
    plan_certificate,
    plan_secret,
)
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics

# A broken Secret is repaired within a minute: one reconcile, and time for failures of the API.
CHECK_EVERY: Final = timedelta(seconds=20)
_SOONEST: Final = timedelta(milliseconds=100)
# Longer than an API server takes to restart; then the process says why, and is started again.
_START_LIMIT: Final = timedelta(seconds=60)
# Of what only a person can mend the first failure is logged, then one every five minutes.
_REPORTED_EVERY: Final = 15
# No API server is so far ahead of another.
_AHEAD: Final = timedelta(days=1)
# Steps and lost races in one reconcile: a foreign Secret needs three steps at most.
_MOST_STEPS: Final = 8
# It takes less than a tenth of a second of a processor, of which there may be a tenth as well.
_ANSWER_LIMIT: Final = timedelta(seconds=30)
# The launcher of an image has told us where modules are: nobody else tells this process.
# To take the interpreter apart at the end would be a fifth of its processor time.
_PROGRAM: Final = """
import gc, os, sys
gc.disable()
sys.path[:] = {path!r}
from rollout_operator.pki.certificates import main
main()
sys.stdout.flush()
os._exit(0)
"""
# The first three are those of every version of the Secret; a reader that does not know the others
# leaves them alone.
_SECRET_KEYS: Final[Mapping[str, str]] = {
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


class _SecretApi(Protocol):
    """The part of the API client that the Secret needs; errors as in `kube.api`."""

    async def fetch(self, resource: Resource, namespace: str, name: str) -> bytes: ...

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes: ...

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: JsonObject
    ) -> bytes: ...

    def server_time(self) -> datetime | None: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    material: KeyMaterial
    problem: str = ""
    """Why its data is no key pair at all, empty where it may be."""
    body: JsonObject = dataclasses.field(default_factory=dict, repr=False)
    """The whole object; empty where there is none."""

    @property
    def uid(self) -> str:
        return str(_part(self.body, "metadata").get("uid") or "")

    @property
    def is_labelled(self) -> bool:
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
        return self.body.get("immutable") is True


class SecretStore:
    def __init__(self, api: _SecretApi, *, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name

    def __str__(self) -> str:
        return f"secret {self._namespace}/{self._name}"

    def server_time(self) -> datetime | None:
        return self._api.server_time()

    async def fetch(self) -> Stored:
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
        others = {key: kept[key] for key in kept if key not in _SECRET_KEYS.values()}
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
            material = KeyMaterial(
                **{name: _value(data, key) for name, key in _SECRET_KEYS.items()}
            )
            return Stored(material=material, body=body)
        except _NotBase64 as error:
            return Stored(material=KeyMaterial(), problem=str(error), body=body)


class _NotBase64(Exception):
    """A value of the Secret's data is not what the API promises."""


def _part(body: JsonObject, key: str) -> JsonObject:
    part = body.get(key)
    return part if isinstance(part, dict) else {}


def _value(data: Mapping[str, object], key: str) -> bytes:
    text = data.get(key) or ""
    try:
        return b64decode(text if isinstance(text, str) else "?", validate=True)
    except (Base64Error, ValueError):
        raise _NotBase64(f"data.{key}: not base64") from None


def _encode(material: KeyMaterial) -> dict[str, str]:
    values = {key: getattr(material, name) for name, key in _SECRET_KEYS.items()}
    return {key: b64encode(value).decode() for key, value in values.items() if value}


Ask = Callable[[Question], Awaitable[Examined]]


class NoAnswer(OperatorError):
    """The process that reads and makes certificates has failed."""


async def ask_child(question: Question) -> Examined:
    """Return the answer of `pki.certificates` in a process of its own.

    Raises NoAnswer, and InvalidInput where the material does not allow the step.
    """
    path = [str(Path(rollout_operator.__file__).parents[1]), *sys.path]
    try:
        async with asyncio.timeout(_ANSWER_LIMIT.total_seconds()):
            # Keys pass in memory and through a pipe: no other process sees them.
            raw = await _run(_PROGRAM.format(path=path), msgspec.msgpack.encode(question))
        reply = msgspec.msgpack.decode(raw, type=Examined | Refused)
    except TimeoutError as error:
        raise _no_answer(f"did not answer within {format_duration(_ANSWER_LIMIT)}") from error
    except OSError as error:
        raise _no_answer(f"cannot be started: {error.strerror or error}") from error
    except msgspec.MsgspecError as error:
        raise _no_answer("gave an answer that cannot be read") from error
    if isinstance(reply, Refused):
        raise InvalidInput(reply.why)
    return reply


def _no_answer(why: str) -> NoAnswer:
    return NoAnswer(f"cannot read certificates: their process {why}")


async def _run(program: str, given: bytes) -> bytes:
    # As the launcher of the image; the path is given whole, which site would make.
    flags = "-IBSc" if sys.flags.isolated else "-Sc"
    printed, status = await run_program([sys.executable, flags, program], given=given)
    if status:
        raise _no_answer(f"ended {_name_end(status)}")
    return printed


def _name_end(status: int) -> str:
    if status > 0:
        return f"with status {status}"
    if -status == signal.SIGKILL:
        return "by a kill signal, as where memory runs out"
    return f"by signal {-status}"


class Publisher(Protocol):
    """What brings the CA bundle to callers, as `bundle.BundleInjector` does."""

    def publish(self, bundle: bytes) -> None: ...

    def holds(self, bundle: bytes) -> bool:
        """Return whether every webhook configuration that is ours holds exactly this bundle."""
        ...


class _LeftAlone(InvalidInput):
    """The Secret must not, or cannot, be written, and a person has to mend that."""


class CertificateController:
    """The certificate of this process, in step with the Secret."""

    def __init__(
        self,
        store: SecretStore,
        serving: ServingCertificate,
        clock: Clock,
        wanted: Wanted,
        metrics: Metrics,
        publisher: Publisher | None = None,
        ask: Ask = ask_child,
    ) -> None:
        self._store = store
        self._serving = serving
        self._clock = clock
        self._wanted = wanted
        self._expiry = metrics.certificate_expiry
        self._publisher = publisher
        self._ask = ask
        # Of the reconcile that is underway.
        self._lock = asyncio.Lock()
        self._served: Examined | None = None
        self._uid = ""
        self._latest: Examined | None = None
        self._bundle = b""
        self._published_since: timedelta | None = None
        self._logged: tuple[CertificateStep, str] | None = None
        self._wait = CHECK_EVERY
        self._failures = 0
        self._error: OperatorError | None = None
        self._left_alone = 0
        """How often in a row the Secret was left alone."""

    @property
    def last_error(self) -> OperatorError | None:
        return self._error

    @property
    def ca_bundle(self) -> bytes:
        """Return the PEM of all CAs that callers must trust now; empty before the start."""
        return self._bundle

    async def start(self) -> None:
        """Return once something is served.

        Failures of the API are retried for `_START_LIMIT`, then raised as ApiError with their
        cause. A Secret that is not ours is read again until a person has fixed that.
        """
        begin = self._clock.elapsed()
        while True:
            await self._attempt()
            if self._served is not None:  # what was read can be served: `run` tries again
                return
            if isinstance(self._error, _LeftAlone):
                begin, self._failures, self._wait = self._clock.elapsed(), 0, CHECK_EVERY
            elif self._clock.elapsed() - begin + self._wait > _START_LIMIT:
                text = f"{self._store}: no certificate to serve: {self._error}"
                raise ApiError(text, status=getattr(self._error, "status", 0)) from self._error
            await self._clock.sleep(self._wait)

    async def run(self) -> NoReturn:
        while True:
            await self._clock.sleep(self._wait)
            await self._attempt()

    async def _attempt(self) -> None:
        try:
            await self.reconcile()
            self._failures = 0
        except OperatorError as error:
            self._failures += 1
            self._wait = CERTIFICATES.bound(self._failures)
            self._report_failure(error)

    async def reconcile(self) -> None:
        """Bring Secret, served certificate and bundle in order. Raises ApiError and _LeftAlone."""
        async with self._lock:
            await self._reconcile()

    async def confirm(self) -> None:
        """Read the Secret, so that `ca_bundle` is no older than it. Raises ApiError.

        A Secret that is not ours, or may not be read, says nothing: what is served still counts.
        """
        try:
            await self.reconcile()
        except (_LeftAlone, Denied) as error:
            log.debug("Certificate is not confirmed", secret=self._store, err=error)

    async def _reconcile(self) -> None:
        for _ in range(_MOST_STEPS):
            stored = await self._store.fetch()
            found = await self._examine_stored(stored)
            now = self._now()
            facts = self._read_facts(found)
            marks = self._read_marks(stored, found.leaf_name)
            decision = plan_secret(marks, facts, self._wanted, now)
            self._report(decision)
            if isinstance(facts, UsableCertificate) and decision.may_serve:
                if decision.step is CertificateStep.DROP_OLD_CA:
                    # It has had its time, and is not published for a moment first.
                    found = await self._examine(dataclasses.replace(found.material, old_ca=b""))
                self._adopt(found, facts)
                self._uid = stored.uid
            if decision.step is CertificateStep.LEAVE:
                raise _LeftAlone(f"{self._store}: {decision.reason}")
            if decision.step is CertificateStep.KEEP:
                self._error, self._left_alone = None, 0
                self._wait = self._until(decision)
                return
            try:
                await self._store.write(stored, await self._successor(stored, decision))
            except (Conflict, NotFound, UnknownOutcome) as error:
                log.debug("Reading certificate again", secret=self._store, err=error)
        raise Conflict(f"{self._store}: another client keeps writing it")

    def _read_marks(self, stored: Stored, leaf_name: str) -> Marks:
        return Marks(
            is_labelled=stored.is_labelled,
            leaf_name=leaf_name,
            is_empty=stored.is_empty,
            is_known=bool(stored.uid) and stored.uid == self._uid,
            is_immutable=stored.is_immutable,
        )

    async def _examine_stored(self, stored: Stored) -> Examined:
        if stored.problem:
            broken = BrokenCertificate(problem=stored.problem)
            return Examined(material=stored.material, facts=broken)
        return await self._examine(stored.material)

    async def _examine(self, material: KeyMaterial) -> Examined:
        # Only what is new is read.
        if self._latest is None or self._latest.material != material:
            self._latest = self._try_out(await self._ask(Question(material=material)))
        return self._latest

    def _try_out(self, found: Examined) -> Examined:
        """Return it as broken where TLS does not take the key pair."""
        if isinstance(found.facts, UsableCertificate):
            try:
                self._serving.check(found)
            except InvalidInput as error:
                return replace(found, facts=BrokenCertificate(problem=str(error)))
        return found

    def _read_facts(self, found: Examined) -> BrokenCertificate | UsableCertificate:
        if isinstance(found.facts, BrokenCertificate):
            return found.facts
        return replace(found.facts, next_published_for=self._published_for(found.bundle))

    def _published_for(self, bundle: bytes) -> timedelta | None:
        """Return for how long the bundle is known to be everywhere; a lapse starts it anew."""
        is_held = self._publisher is None or self._publisher.holds(self._bundle)
        if bundle != self._bundle or not is_held:
            self._published_since = None
            return None
        now = self._clock.elapsed()
        if self._published_since is None:
            self._published_since = now
        return now - self._published_since

    async def _successor(self, stored: Stored, decision: Decision) -> KeyMaterial:
        """Return what to write: what we serve where the Secret was spoilt, else the next step."""
        now = self._now()
        mine = self._served
        if (
            decision.step is CertificateStep.START_OVER
            and mine is not None
            and plan_certificate(mine.facts, self._wanted, now).may_serve
        ):
            log.warn("Restoring certificate from memory", secret=self._store)
            return mine.material
        # Of several API servers one may be ahead: a certificate is to be valid for all. Where our
        # clock is far behind, it would be over already.
        now = max(min(now, self._clock.now()), now - _AHEAD)
        issue = Issue(decision=decision, wanted=self._wanted, now=now)
        issued = await self._ask(Question(material=stored.material, issue=issue))
        # It is read back in a moment, and known then.
        self._latest = self._try_out(issued)
        return issued.material

    def _adopt(self, found: Examined, facts: UsableCertificate) -> None:
        before = self._served
        if before is not None and found.material == before.material:
            return
        self._serving.swap(found)
        if before is None or found.material.served != before.material.served:
            log.info("Serving certificate", secret=self._store, until=facts.leaf.end)
        self._served = found
        self._expiry.labels("ca").set(facts.ca.end.timestamp())
        self._expiry.labels("leaf").set(facts.leaf.end.timestamp())
        if found.bundle != self._bundle:
            self._bundle = found.bundle
            self._published_since = None
            if self._publisher is not None:
                self._publisher.publish(found.bundle)

    def _now(self) -> datetime:
        """Return the API server's time, by which it judges what is served; else ours."""
        return self._store.server_time() or self._clock.now()

    def _until(self, decision: Decision) -> timedelta:
        if decision.requeue_at is None:
            return CHECK_EVERY
        left = decision.requeue_at - self._now()
        return min(max(left, _SOONEST), CHECK_EVERY)

    def _report(self, decision: Decision) -> None:
        """Log a decision once, not at each reconcile that comes to the same."""
        logged = (decision.step, decision.reason)
        if logged == self._logged:
            return
        self._logged = logged
        # What is left alone is reported as a failure, with the way out.
        emit = (
            log.debug
            if decision.step in {CertificateStep.KEEP, CertificateStep.LEAVE}
            else log.info
        )
        emit(
            "Deciding on certificate",
            secret=self._store,
            step=decision.step,
            reason=decision.reason,
        )

    def _report_failure(self, error: OperatorError) -> None:
        self._error = error
        if not isinstance(error, _LeftAlone):
            log.warn("Looking after the certificate failed", secret=self._store, err=error)
            return
        if self._left_alone % _REPORTED_EVERY == 0:
            log.error("Leaving the certificate's secret alone", secret=self._store, err=error)
        self._left_alone += 1
