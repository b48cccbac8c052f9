"""Keep the certificate in the Secret, what is served and the CA bundle right.

Reads the Secret, lets `planning.certificate` decide, carries the step out and reads again until
nothing is left to do. All replicas do so side by side; one that loses a race for the Secret takes
what the winner wrote.
"""

import asyncio
import dataclasses
from datetime import timedelta
from typing import Final, NoReturn, Protocol

from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import CERTIFICATES
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    Denied,
    InvalidInput,
    NotFound,
    OperatorError,
    UnknownOutcome,
)
from rollout_operator.pki.certificates import (
    KeyMaterial,
    SecretStore,
    Stored,
    carry_out,
    read_leaf_name,
    read_material,
    trusted_bundle,
)
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
# Steps and lost races in one reconcile: a foreign Secret needs three steps at most.
_MOST_STEPS: Final = 8


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
    ) -> None:
        self._store = store
        self._serving = serving
        self._clock = clock
        self._wanted = wanted
        self._expiry = metrics.certificate_expiry
        self._publisher = publisher
        # Of the reconcile that is underway.
        self._lock = asyncio.Lock()
        self._material: KeyMaterial | None = None
        self._uid = ""
        self._assessed: tuple[KeyMaterial, BrokenCertificate | UsableCertificate] | None = None
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
            if self._material is not None:  # what was read can be served: `run` tries again
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
            facts = self._read_stored(stored)
            now = self._clock.now()
            decision = plan_secret(self._read_marks(stored), facts, self._wanted, now)
            self._report(decision)
            if isinstance(facts, UsableCertificate) and decision.may_serve:
                material = stored.material
                if decision.step is CertificateStep.DROP_OLD_CA:
                    # It has had its time, and is not published for a moment first.
                    material = dataclasses.replace(material, old_ca=b"")
                self._adopt(material, facts)
                self._uid = stored.uid
            if decision.step is CertificateStep.LEAVE:
                raise _LeftAlone(f"{self._store}: {decision.reason}")
            if decision.step is CertificateStep.KEEP:
                self._error, self._left_alone = None, 0
                self._wait = self._until(decision)
                return
            try:
                await self._store.write(stored, self._successor(stored, decision))
            except (Conflict, NotFound, UnknownOutcome) as error:
                log.debug("Reading certificate again", secret=self._store, err=error)
        raise Conflict(f"{self._store}: another client keeps writing it")

    def _read_marks(self, stored: Stored) -> Marks:
        return Marks(
            is_labelled=stored.is_labelled,
            leaf_name=read_leaf_name(stored.material.cert),
            is_empty=stored.is_empty,
            is_known=bool(stored.uid) and stored.uid == self._uid,
            is_immutable=stored.is_immutable,
        )

    def _read_stored(self, stored: Stored) -> BrokenCertificate | UsableCertificate:
        if stored.problem:
            return BrokenCertificate(problem=stored.problem)
        # Only what is new is read: TLS takes five milliseconds to load a key pair.
        if self._assessed is None or self._assessed[0] != stored.material:
            self._assessed = (stored.material, self._read_new(stored.material))
        facts = self._assessed[1]
        if isinstance(facts, BrokenCertificate):
            return facts
        return replace(facts, next_published_for=self._published_for(stored.material))

    def _read_new(self, material: KeyMaterial) -> BrokenCertificate | UsableCertificate:
        facts = read_material(material)
        if isinstance(facts, UsableCertificate):
            try:
                self._serving.check(material)
            except InvalidInput as error:
                return BrokenCertificate(problem=str(error))
        return facts

    def _published_for(self, material: KeyMaterial) -> timedelta | None:
        """Return for how long the bundle is known to be everywhere; a lapse starts it anew."""
        is_held = self._publisher is None or self._publisher.holds(self._bundle)
        if trusted_bundle(material) != self._bundle or not is_held:
            self._published_since = None
            return None
        now = self._clock.elapsed()
        if self._published_since is None:
            self._published_since = now
        return now - self._published_since

    def _successor(self, stored: Stored, decision: Decision) -> KeyMaterial:
        """Return what to write: what we serve where the Secret was spoilt, else the next step."""
        now = self._clock.now()
        if decision.step is CertificateStep.START_OVER and self._material is not None:
            mine = plan_certificate(read_material(self._material), self._wanted, now)
            if mine.may_serve:
                log.warn("Restoring certificate from memory", secret=self._store)
                return self._material
        return carry_out(decision, stored.material, self._wanted, now)

    def _adopt(self, material: KeyMaterial, facts: UsableCertificate) -> None:
        before = self._material
        if material == before:
            return
        self._serving.swap(material)
        if before is None or material.served != before.served:
            log.info("Serving certificate", secret=self._store, until=facts.leaf.end)
        self._material = material
        self._expiry.labels("ca").set(facts.ca.end.timestamp())
        self._expiry.labels("leaf").set(facts.leaf.end.timestamp())
        bundle = trusted_bundle(material)
        if bundle != self._bundle:
            self._bundle = bundle
            self._published_since = None
            if self._publisher is not None:
                self._publisher.publish(bundle)

    def _until(self, decision: Decision) -> timedelta:
        if decision.requeue_at is None:
            return CHECK_EVERY
        left = decision.requeue_at - self._clock.now()
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
