"""The hook prepare-downscale: pods that are to go are told, and must confirm, before they go.

Looks at the whole group under its lock, claims the downscale, notes it on the pods, calls them, and
answers. Who is asked and who must wait is decided in `planning.downscale`. What becomes of a
downscale afterwards is the concern of `controllers.downscales`; an answer that is never given, for
whatever reason, leaves pods to it that are owed a cancellation.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from rollout_operator.aio.clock import Clock
from rollout_operator.guards.downscales import PERSIST_LIMIT, Claim, Downscales, Stage
from rollout_operator.guards.locks import Locks, calls_lock, group_lock
from rollout_operator.guards.notes import Notes
from rollout_operator.kube.server_clock import CLOCK_ERROR
from rollout_operator.model.downscale import Decrease, Endpoint, Key, Note
from rollout_operator.model.errors import ApiError, Conflict, InvalidInput
from rollout_operator.model.group import Group, Zone
from rollout_operator.model.names import (
    LAST_DOWNSCALE,
    NO_DOWNSCALE,
    PREPARE_DOWNSCALE,
    GroupName,
    Uid,
)
from rollout_operator.model.objects import StatefulSet, find_group
from rollout_operator.model.outcome import Code, Reason, Verdict
from rollout_operator.model.review import Review, Scalable
from rollout_operator.planning.admission import (
    RETRY,
    allow,
    assess_no_downscale,
    assess_prepare_change,
    find_misplaced,
    is_labelled,
    refuse_decrease,
)
from rollout_operator.planning.downscale import (
    PreparePods,
    assess_neighbours,
    choose_pods_to_prepare,
)
from rollout_operator.planning.endpoint import Target, plan_target
from rollout_operator.planning.spacing import format_downscale_time
from rollout_operator.pods.client import PodError
from rollout_operator.telemetry.logs import log
from rollout_operator.web.parents import Parents

# Kept back of the time that there is, so that pods can be told that they stay before the answer.
UNDO_SHARE: Final = 0.2
FAILURES_SHOWN: Final = 3
# For writing the answer.
ANSWER_TIME: Final = timedelta(milliseconds=200)

_NOT_PREPARED: Final = "one or more pods failed to prepare for shutdown."


class Looker(Protocol):
    """Where pictures of groups come from."""

    def observe(self, name: GroupName) -> Group: ...

    async def observe_live(self, cached: Group) -> Group: ...

    async def observe_alone(self, name: str) -> Group: ...


class Calls(Protocol):
    """The part of `pods.client.PodClient` that is needed."""

    async def prepare_all(self, endpoints: Sequence[Endpoint]) -> list[PodError]: ...

    async def cancel_all(self, endpoints: Sequence[Endpoint]) -> Mapping[Uid, PodError]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the hook works with."""

    parents: Parents
    looker: Looker
    locks: Locks
    downscales: Downscales
    notes: Notes
    pods: Calls
    clock: Clock
    server_time: Callable[[], datetime]
    """The API server's clock, at most a second behind the truth."""
    namespace: str
    cluster_domain: str
    retell_after: timedelta
    """When no call that was sent can still arrive: then pods are told again that they stay."""
    is_stopping: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ask:
    """One decrease of a labelled set."""

    decrease: Decrease
    key: Key
    group: GroupName | None
    target: Target
    until: timedelta
    takes_patch: bool
    """Whether the object under review is the set itself, not its Scale."""

    @property
    def lock(self) -> str:
        return calls_lock(self.key.set_uid) if self.group is None else group_lock(self.group)

    def refuse(self, code: Code, why: str, *, status: int = 0) -> Verdict:
        return refuse_decrease(self.decrease, code, why, status=status)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A downscale that is claimed, and who is still to be called for it."""

    claim: Claim
    plan: PreparePods
    missing: tuple[Endpoint, ...]
    granted_at: timedelta | None
    """On the clock's `elapsed`: when the same was allowed before, if that may persist still."""
    is_repeated: bool
    """Whether it is the same request again: then the time of the first answer stands."""


class PrepareDownscale:
    """Answers reviews. Asked the same again, it gives the same answer and does nothing twice."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def review(self, review: Review, until: timedelta) -> Verdict:
        """Return the verdict; `until`, on the clock's `elapsed`, is when it must be out."""
        change = assess_prepare_change(review)
        if isinstance(change, Verdict):
            return change
        old = review.old
        assert isinstance(old, Scalable), "nothing else is a decrease"
        try:
            # Of a whole object its old state decides, so that no request can take the label off.
            carrier = old if old.kind != "Scale" else await self._parents.find_set(review, until)
        except (ApiError, InvalidInput) as error:
            why = f"the label {PREPARE_DOWNSCALE} cannot be ruled out: {error}"
            return refuse_decrease(change, Code.CANNOT_CHECK, why, status=RETRY)
        if not is_labelled(carrier.labels, PREPARE_DOWNSCALE):
            warning = find_misplaced(carrier.labels, carrier.annotations, PREPARE_DOWNSCALE)
            code = Code.LABEL_MISPLACED if warning else Code.NOT_GUARDED
            return allow(code, warning=warning)
        if is_labelled(carrier.labels, NO_DOWNSCALE):
            # no-downscale is asked after this hook: pods would be prepared for nothing.
            return assess_no_downscale(change, carrier.labels, carrier.annotations)
        if isinstance(review.new, Scalable) and review.new.first_ordinal != old.first_ordinal:
            why = "it changes spec.ordinals.start at the same time, so that other pods go"
            return refuse_decrease(change, Code.PREPARE_MISCONFIGURED, why)
        target = plan_target(carrier.annotations, carrier.service_name)
        if isinstance(target, str):
            return refuse_decrease(change, Code.PREPARE_MISCONFIGURED, target)
        ask = _Ask(
            decrease=change,
            key=Key(
                set_uid=old.uid,
                replicas_from=change.replicas_from,
                replicas_to=change.replicas_to,
            ),
            group=find_group(carrier.labels),
            target=target,
            until=until,
            takes_patch=old.kind != "Scale",
        )
        return await self._prepare(ask)

    @property
    def _parents(self) -> Parents:
        return self._parts.parents

    async def _prepare(self, ask: _Ask) -> Verdict:
        parts = self._parts
        if ask.decrease.namespace != parts.namespace:
            why = f"namespace {ask.decrease.namespace} is not looked after by this operator"
            return ask.refuse(Code.OTHER_NAMESPACE, why)
        if parts.is_stopping():
            return ask.refuse(Code.STOPPING, "the operator is stopping", status=RETRY)
        try:
            async with asyncio.timeout(self._left(ask.until)):
                step = await self._claim(ask)
                if isinstance(step, asyncio.Future):
                    return await asyncio.shield(step)
        except TimeoutError:
            why = "there was no time left to look at the group"
            return ask.refuse(Code.REVIEW_TIMED_OUT, why, status=RETRY)
        except (ApiError, InvalidInput) as error:
            why = f"finding other statefulsets failed. {error}"
            return ask.refuse(Code.GROUP_NOT_READ, why, status=RETRY)
        if isinstance(step, Verdict):
            return step
        return await self._carry_out(ask, step)

    async def _claim(self, ask: _Ask) -> Verdict | _Step | asyncio.Future[Verdict]:
        """Decide on a live picture of the group, and claim the downscale before anyone else can.

        The lock is held across the look, so that what is seen is what is claimed. Returns the
        future of the answer where the same is being asked already. Raises ApiError.
        """
        parts = self._parts
        async with parts.locks.hold(ask.lock):
            known = parts.downscales.get(ask.key.set_uid)
            if known is not None and known.key == ask.key and known.answer is not None:
                # The API server may write it as late as this review allows.
                parts.downscales.renew(known, ())
                return known.answer
            group = await self._look(ask)
            # Again: while we looked, it may have been settled, or found on the pods.
            known = parts.downscales.get(ask.key.set_uid)
            zone = next((one for one in group.zones if one.sts.uid == ask.key.set_uid), None)
            if zone is None or not self._is_as_asked(ask, zone.sts):
                return ask.refuse(Code.CHANGED_MEANWHILE, _word_change(zone), status=RETRY)
            if known is not None and zone.sts.replicas <= known.key.replicas_to:
                parts.downscales.note_persisted(known, parts.server_time())
            return self._decide(ask, group, zone, known)

    def _decide(self, ask: _Ask, group: Group, zone: Zone, known: Claim | None) -> Verdict | _Step:
        parts, now = self._parts, self._parts.server_time()
        is_open = known is not None and known.stage is not Stage.PERSISTED
        same = known if is_open and known is not None and known.key == ask.key else None
        if is_open and same is None:
            why = f"statefulset {zone.sts.name} is already in process of updating replicas"
            return ask.refuse(Code.OTHER_DOWNSCALE_UNDERWAY, why, status=RETRY)
        # A repeated review is not judged again: what was granted holds the others back (D-24). So
        # late it is another request, from a client that keeps trying: the world has changed, and so
        # has the time to record. What another process began it may never have granted.
        is_late = same is not None and now - same.begun >= PERSIST_LIMIT
        is_repeated = same is not None and not same.is_adopted and not is_late
        if ask.group and not is_repeated:
            underway = parts.downscales.find_underway(ask.group, but=ask.key.set_uid)
            picture = replace(group, now=now, downscale=underway)
            times = parts.downscales.times
            refusal = assess_neighbours(ask.decrease, zone.sts, picture, times)
            if refusal is not None:
                return refusal
        plan = choose_pods_to_prepare(ask.decrease, zone, ask.target, parts.cluster_domain)
        if isinstance(plan, Verdict):
            return plan
        granted_at = None if same is None else parts.downscales.granted_at(same)
        told = [(one.uid, one.pod) for one in plan.endpoints]
        if same is not None and is_repeated:
            parts.downscales.renew(same, told)
            claim = same
        else:
            # The server's clock may be a second ahead of what we know of it.
            begun = now + CLOCK_ERROR
            if is_late:
                log.warn(
                    "Downscale is asked for again and again, and does not happen",
                    zone=zone.sts.name, replicas_from=ask.key.replicas_from,
                    replicas_to=ask.key.replicas_to,
                )  # fmt: skip
            claim = parts.downscales.begin(zone.sts, ask.key, begun, told)
        missing = tuple(one for one in plan.endpoints if one.uid not in claim.prepared)
        claim.stage = Stage.PREPARING
        claim.answer = asyncio.get_running_loop().create_future()
        return _Step(
            claim=claim, plan=plan, missing=missing, granted_at=granted_at, is_repeated=is_repeated
        )

    async def _look(self, ask: _Ask) -> Group:
        """Return the live picture. Raises ApiError, and Conflict where the cache is behind it."""
        looker = self._parts.looker
        if not ask.group:
            return await looker.observe_alone(ask.decrease.name)
        cached = looker.observe(ask.group)
        live = await looker.observe_live(cached)
        if cached.owners != live.owners:
            raise Conflict("the cache does not yet show the same members of the group")
        return live

    def _is_as_asked(self, ask: _Ask, sts: StatefulSet) -> bool:
        """Tell whether the store confirms what the review says: nothing is done on its word."""
        is_named = sts.name == ask.decrease.name
        return is_named and sts.replicas == ask.key.replicas_from and sts.group == ask.group

    async def _carry_out(self, ask: _Ask, step: _Step) -> Verdict:
        parts, claim = self._parts, step.claim
        # For others that ask the same, where this task is cancelled.
        why = "the same was asked already, and that review was given up"
        verdict = ask.refuse(Code.REVIEW_TIMED_OUT, why, status=RETRY)
        is_told = False
        try:
            async with parts.locks.hold(calls_lock(ask.key.set_uid)):
                problem = await self._tell(ask, step)
                if problem is None:
                    # The nearer to the write the better: others wait from then on (SI-11).
                    now = None if step.is_repeated else parts.server_time() + CLOCK_ERROR
                    parts.downscales.allow(claim, now)
                    verdict = _allow(ask, step)
                else:
                    verdict = problem
                    is_told = step.granted_at is None and await self._take_back(ask, step)
        finally:
            # Also where this task is cancelled: then the answer never comes, and pods are owed.
            self._end(step, verdict, is_told=is_told)
        return verdict

    def _end(self, step: _Step, verdict: Verdict, *, is_told: bool) -> None:
        """Settle the claim of a review that is over, however it ended."""
        downscales, claim = self._parts.downscales, step.claim
        later = self._parts.retell_after
        if claim.stage is Stage.PREPARING and step.granted_at is not None:
            # What is refused is not written: it does not hold the group back for longer.
            claim.asked_at = step.granted_at
            downscales.allow(claim)
        elif claim.stage is Stage.PREPARING and is_told:
            downscales.close(claim, owed=claim.pods, after=later)
        elif claim.stage is Stage.PREPARING:
            downscales.close(claim, owed=claim.pods, again=later)
        if claim.answer is not None:
            claim.answer.set_result(verdict)
            claim.answer = None

    async def _tell(self, ask: _Ask, step: _Step) -> Verdict | None:
        """Note the downscale and call the pods; return the refusal where not all confirmed."""
        parts, claim = self._parts, step.claim
        limit = self._left(ask.until) * (1 - UNDO_SHARE)
        called = {one.uid for one in step.missing}
        if called:
            log.info(
                "Preparing pods for a downscale",
                zone=claim.name, replicas_from=claim.key.replicas_from,
                replicas_to=claim.key.replicas_to, pods=[one.pod for one in step.missing],
            )  # fmt: skip
        elif step.is_repeated:
            return None
        try:
            async with asyncio.timeout(limit):
                # Where nobody is called either: after a crash the time of it counts (SI-11).
                carriers = [pod for pod in step.plan.going if pod.uid in called]
                note = Note.of(claim.key, claim.begun, first=step.plan.first)
                await parts.notes.write(note, carriers, step.plan.witness)
                failures = await parts.pods.prepare_all(step.missing)
        except ApiError as error:
            why = f"adding an annotation to the pods failed. {error}"
            return ask.refuse(Code.NOT_RECORDED, why, status=RETRY)
        except TimeoutError:
            why = f"{_NOT_PREPARED} not all have answered within {limit:.1f}s"
            return ask.refuse(Code.REVIEW_TIMED_OUT, why, status=RETRY)
        if failures:
            why = f"{_NOT_PREPARED} {_word_failures(failures)}"
            return ask.refuse(Code.POD_NOT_PREPARED, why)
        claim.prepared |= called
        return None

    async def _take_back(self, ask: _Ask, step: _Step) -> bool:
        """Tell all pods of the range that they stay, whoever was called (PREP-22).

        Return whether all have been told.

        They stay owed a second telling: a slow call may arrive after this one.
        """
        try:
            async with asyncio.timeout(self._left(ask.until - ANSWER_TIME)):
                failed = await self._parts.pods.cancel_all(step.plan.endpoints)
        except TimeoutError:
            log.warn("Pods are not told yet that they stay", zone=step.claim.name)
            return False
        for error in failed.values():
            log.warn("Pod is not told yet that it stays", zone=step.claim.name, err=error)
        return not failed

    def _left(self, until: timedelta) -> float:
        return max((until - self._parts.clock.elapsed()).total_seconds(), 0)


def _allow(ask: _Ask, step: _Step) -> Verdict:
    text = f"{ask.decrease.text} is allowed -- all pods successfully prepared for shutdown."
    stamp = {LAST_DOWNSCALE: format_downscale_time(step.claim.begun)} if ask.takes_patch else {}
    skipped = step.plan.skipped
    return Verdict(
        is_allowed=True,
        reason=Reason(code=Code.PODS_PREPARED, text=text),
        warnings=(f"not prepared: {skipped}",) if skipped else (),
        annotations=stamp,
    )


def _word_change(zone: Zone | None) -> str:
    if zone is None:
        return "the API server does not confirm that it exists in its group; try again"
    return f"the API server shows it with {zone.sts.replicas} replicas; try again"


def _word_failures(failures: Sequence[PodError]) -> str:
    shown = "; ".join(str(error) for error in failures[:FAILURES_SHOWN])
    hidden = len(failures) - FAILURES_SHOWN
    return f"{shown}; and {hidden} more" if hidden > 0 else shown
