"""The commands of stories of one Rollout: what people set, what Flux and checks say, its passes.

Times are minutes from the start, `1-1s` a second before the first. Only what has changed is shown;
nothing where a pass leaves the status as it was. An entry of the history is shown as

    #2 0.2.0 Failed 1-3 manual+force for ann failed prod/check

with start and end of its bake, what let it through, and the checks that failed it. A `!` marks
a warning, a `~` what is routine. Conditions begin as those of a release at rest.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from rollout_operator.model.outcome import Severity
from rollout_operator.releases.model.plan import (
    KUSTOMIZATION,
    OCI_REPOSITORY,
    ApplyTag,
    Correction,
    FluxTarget,
    HealthCheck,
    PolicyReading,
    ReleaseAction,
    ReleaseEvent,
    ReleasePlan,
    ReleaseSnapshot,
    RemoveIntents,
)
from rollout_operator.releases.model.releases import (
    KUBERIK,
    OURS,
    BakeStatus,
    ExcludedRelease,
    HistoryEntry,
    PolicyOrder,
    RefusedRelease,
    Release,
    ReleaseCompat,
    ReleaseGate,
    ReleaseMetadata,
    ReleaseRollout,
    ReleaseSpec,
    ReleaseStatus,
    TagOrder,
    TriggerKind,
)
from rollout_operator.releases.planning.releases import list_drifted, plan_release, remember
from tests import stories
from tests.planning.releases.builders import (
    ALL_CHECKS,
    MINUTE,
    START,
    at,
    check,
    entry,
    gate,
    read_minutes,
    rollout,
    show_minutes,
)
from tests.planning.releases.builders import releases as build_releases

# What stories begin with; what comes of it is shown where it is their subject.
PREFIX: Final = "rollout.kuberik.com/"
GIVEN: Final = {
    "deployed": "spec {}; pass 0.1.0; pass",
    "silent": "spec bake=5 checks=all {}; pass 0.1.0; check; pass",
    "baking": "given silent {}; 1m; check Healthy change=1; pass",
    "fraction": "given silent; 1m; 400ms; begun; 2s",
    "failed": "given baking {}; 1m; check Unhealthy error=2 change=2; pass",
    # A pin was deployed while a check was unhealthy.
    "recovering": "given silent deadline=0.5 {}; check Unhealthy; spec pin=1.0.0; pass",
    "announced": "spec bake=1 checks=all {}; known 1.0.0 2.0.0; check Pending; gate",
    "written": "spec {}; pass 0.1.0; targets r=0.1.0 k=0.1.0; pass; 2m; pass",
    "contested": "given written; contest 6",
}
NORMAL: Final = {
    "ReleasesUpdated": "True ReleasesUpdated",
    "GatesPassing": "True NoReleaseCandidates",
    "DeploymentBlocked": "False HealthChecksHealthy",
    "BakeFailureDisabled": "False Normal",
    "Ready": "True RolloutSucceeded",
    "Reconciling": "False Idle",
    "Stalled": "False Idle",
}
MESSAGES: Final = {
    "Automatic deployment": "auto",
    "Manual deployment": "manual",
    ", with force deploy": "+force",
    ", with gate bypass": "+bypass",
    ", with failed bake unblock": "+unblock",
    "Deployment was cancelled by that of ": "by ",
}
DURATIONS: Final = {"bake": "bake_time", "deadline": "deploy_timeout"}
NUMBERS: Final = {"limit": "history_limit", "least": "least_available"}
KINDS: Final = {"r": OCI_REPOSITORY, "k": KUSTOMIZATION}


class ReleaseStage(stories.Steps):
    """A Rollout without bake time and checks, until a story says otherwise."""

    def __init__(self, *, latest: str | None = None, known: str = "", **spec: Any) -> None:
        self.rollout: ReleaseRollout = rollout(
            status=ReleaseStatus(available_releases=build_releases(known)), **spec
        )
        self.latest = latest or (known.split()[-1] if known else None)
        self.order: TagOrder | None = TagOrder(by=PolicyOrder.SEMVER)
        self.policy_problem = self.policy_reason = ""
        self.digest: str | None = None
        self.metadata: dict[str, ReleaseMetadata | None] = {}
        self.gates: tuple[ReleaseGate, ...] = ()
        self.schedule_holds: tuple[str, ...] = ()
        self.checks: tuple[HealthCheck, ...] = ()
        self.targets: tuple[FluxTarget, ...] = ()
        self.write_problem = ""
        self.may_be_written = False
        self.refused: dict[str, str] = {}
        self.corrections: tuple[Correction, ...] = ()
        self.verifies_wanted = False
        self.compat: ReleaseCompat = OURS
        self.now = START
        self.plan = ReleasePlan(status=self.rollout.status)
        self.reported: list[ReleaseEvent] = []
        """All events so far."""
        self.shown = dict(NORMAL)

    @property
    def status(self) -> ReleaseStatus:
        return self.rollout.status

    @property
    def current(self) -> HistoryEntry:
        assert self.status.current is not None
        return self.status.current

    def history(self) -> str:
        """Return `2.0.0 Deploying, 1.0.0 Succeeded`, the newest first."""
        return ", ".join(f"{one.version.tag} {one.bake_status}" for one in self.status.history)

    def tags(self) -> str:
        return " ".join(one.version.tag for one in self.status.history)

    def set_spec(self, **spec: Any) -> None:
        self._replace(spec=msgspec.structs.replace(self.rollout.spec, **spec))

    def set_status(self, **status: Any) -> None:
        self._replace(status=msgspec.structs.replace(self.rollout.status, **status))

    def post(self, **intents: str | None) -> None:
        """Set annotations by their names, or remove them: `post(force_deploy="1.0.0")`."""
        changed = {f"{PREFIX}{key.replace('_', '-')}": text for key, text in intents.items()}
        found = {**self.rollout.intents, **changed}
        self._replace(intents={key: text for key, text in found.items() if text is not None})

    def wait(self, minutes: float) -> None:
        self.now += timedelta(minutes=minutes)

    def snapshot(self) -> ReleaseSnapshot:
        reading = PolicyReading(
            latest=self.latest,
            digest=self.digest,
            order=self.order,
            problem=self.policy_problem,
            reason=self.policy_reason,
        )
        return ReleaseSnapshot(
            rollout=self.rollout,
            now=self.now,
            policy=reading,
            metadata=self.metadata,
            gates=self.gates,
            schedule_holds=self.schedule_holds,
            checks=self.checks,
            namespaces={"prod": {}},
            targets=self.targets,
            write_problem=self.write_problem,
            may_be_written=self.may_be_written,
            refused=self.refused,
            corrections=self.corrections,
            verifies_wanted=self.verifies_wanted,
            compat=self.compat,
        )

    def step(self, latest: str | None = None, *, acts: bool = True) -> ReleasePlan:
        """Plan, write the status and, unless the process dies before it, act."""
        self.latest = latest or self.latest
        self.plan = plan_release(self.snapshot())
        self.reported += self.plan.events
        self._replace(status=self.plan.status)
        if acts:
            self._carry_out()
        return self.plan

    def _carry_out(self) -> None:
        failed = list_drifted(self.plan) if self.write_problem else ()
        self.corrections = remember(self.corrections, self.plan, self.now, failed)
        for action in self.plan.actions:
            if isinstance(action, ApplyTag) and not self.write_problem:
                known = [one for one in self.targets if one != action.target]
                fresh = msgspec.structs.replace(action.target, tag=action.tag)
                self.targets = (*known, fresh)
            if isinstance(action, RemoveIntents):
                self.post(**{one.annotation.removeprefix(PREFIX): None for one in action.intents})

    def _replace(self, **fields: Any) -> None:
        self.rollout = msgspec.structs.replace(self.rollout, **fields)

    async def do_given(self, name: str, *spec: str) -> None:
        await self.act(f"{GIVEN[name].format(' '.join(spec))} > wait")

    async def do_wait(self, seconds: float = 0) -> None:
        self.wait(seconds / 60)

    async def do_spec(self, *words: str) -> None:
        """Set fields: durations are minutes, an empty one goes."""
        spec: dict[str, Any] = {}
        for word in words:
            key, _, text = word.partition("=")
            match key:
                case "suspended" | "resumed":
                    spec["is_suspended"] = key == "suspended"
                case "checks":
                    spec["checks"] = ALL_CHECKS if text else None
                case "pin":
                    spec["wanted_version"] = text or None
                case "limit" | "least":
                    spec[NUMBERS[key]] = int(text)
                case _:
                    spec[DURATIONS[key]] = float(text) * MINUTE if text else None
        self.set_spec(**spec)

    async def do_as(self, who: str) -> None:
        assert who == "kuberik"
        self.compat = KUBERIK

    async def do_post(self, *words: str) -> None:
        """Set annotations: `post retry=x force_deploy=` has an empty one."""
        self.post(**_split(words))

    async def do_remove(self, *annotations: str) -> None:
        self.post(**dict.fromkeys(annotations))

    async def do_known(self, *tags: str) -> None:
        self.set_status(available_releases=build_releases(" ".join(tags)))
        self.latest = tags[-1] if tags else None

    async def do_latest(self, tag: str) -> None:
        self.latest = tag or None

    async def do_history(self, *entries: str) -> None:
        """The newest first: `history 2.0.0:Failed 1.0.0`; a `#` is one without a number."""
        self.set_status(history=tuple(_read_entry(one) for one in entries))
        self.shown.pop("BakeFailureDisabled", None)

    async def do_begun(self) -> None:
        """The current release was deployed just now."""
        current = msgspec.structs.replace(self.current, timestamp=self.now)
        self.set_status(history=(current,))

    async def do_gate(self, *words: str) -> None:
        """Set a gate: `gate a closed allowed=1.0.0,2.0.0`."""
        given = _split(word for word in words if "=" in word)
        [name] = [word for word in words if word != "closed" and "=" not in word] or ["gate"]
        allowed = given["allowed"].replace(",", " ") if "allowed" in given else None
        one = gate(name, passing="closed" not in words, allowed=allowed)
        self.gates = (*(old for old in self.gates if old.head.name != name), one)

    async def do_open(self) -> None:
        self.gates = ()

    async def do_hold(self, *texts: str) -> None:
        """A schedule is against a release."""
        self.schedule_holds = texts

    async def do_check(self, *words: str) -> None:
        """One check as it stands from now on: `check b Healthy error=1 also`, beside others."""
        given = _split(word for word in words if "=" in word)
        error, change = (read_minutes(given[key]) if key in given else None
                         for key in ("error", "change"))  # fmt: skip
        rest = [word for word in words if "=" not in word and word != "also"]
        name = "check" if not rest or rest[0][0].isupper() else rest.pop(0)
        others = self.checks if "also" in words else ()
        message = given.get("message")
        one = check(name, "".join(rest), error=error, change=change, message=message)
        self.checks = (*others, one)

    async def do_targets(self, *words: str, waits: str = "") -> None:
        """What Flux runs of a repository and of a variable: `targets r=1.0.0 k=1.0.0`."""
        self.targets = tuple(
            FluxTarget(
                kind=KINDS[kind],
                name="app",
                variable="app_version" if kind == "k" else "",
                tag=tag,
                waiting_for=waits,
            )
            for kind, tag in _split(words).items()
        )

    async def do_waits(self, target: str, text: str) -> None:
        await self.do_targets(target, waits=text)

    async def do_ignore(self, flux: str) -> None:
        assert flux == "flux"
        self.rollout = msgspec.structs.replace(self.rollout, waits_for_flux=False)

    async def do_forbid(self, text: str = "") -> None:
        """Writes into objects of Flux are refused from now on, or are not."""
        self.write_problem, self.may_be_written = text, text == "timed-out"

    async def do_refuse(self, tag: str = "", text: str = "") -> None:
        """Flux would refuse a tag, which is tried before it is recorded."""
        self.refused = {tag: text} if tag else {}

    async def do_forget(self) -> None:
        """The process begins anew."""
        self.corrections = ()

    async def do_policy(self, problem: str = "", reason: str = "") -> None:
        self.policy_problem, self.policy_reason = problem, reason

    async def do_verify(self, word: str = "") -> None:
        self.verifies_wanted = word != "no"

    async def do_registry(self, tag: str = "", digest: str = "") -> None:
        """What the registry says of a tag: `none` where it has none; nothing of others."""
        said = ReleaseMetadata(digest=digest, version="v2", revision="abc", created=START)
        self.metadata = {tag: None if digest == "none" else said} if tag else {}

    async def do_pass(self, *words: str) -> str:
        """Plan and act once; `dies` before it acts."""
        tags = [word for word in words if word != "dies"]
        before = self.status
        return self._show(before, self.step(*tags, acts="dies" not in words))

    async def do_passes(self, count: str, minutes: str = "0") -> str:
        """Make so many passes, and wait after each; return what they show but for repetitions."""
        found: list[str] = []
        for _ in range(int(count)):
            found.append(await self.do_pass())
            self.wait(float(minutes))
        return " / ".join(
            one for place, one in enumerate(found) if place == 0 or one != found[place - 1]
        )

    async def do_contest(self, count: str, minutes: str = "1") -> str:
        """Another writer changes the tag so often, each time after it was corrected."""
        found: list[str] = []
        for _ in range(int(count)):
            await self.do_targets("r=mine", "k=0.1.0")
            found.append(await self.do_pass())
            self.wait(float(minutes))
        return " / ".join(dict.fromkeys(found))

    async def do_rest(self, minutes: str) -> str:
        """As many passes as are requested until then."""
        count = 0
        while self.now < at(float(minutes)):
            pause = self.step().requeue_after
            assert pause is not None
            assert pause > timedelta(0)
            self.now += pause
            count += 1
        return f"{count} passes"

    async def do_invalid(self, problem: str, announced: str = "") -> str:
        """One pass while the spec is refused, but for its image policy where that is valid."""
        before = self.status
        valid = msgspec.structs.replace(self.rollout, spec=ReleaseSpec(policy_name="app"))
        refused = RefusedRelease(
            head=self.rollout.head,
            problem=problem,
            status=before,
            announced=valid if announced else None,
        )
        snapshot = msgspec.structs.replace(self.snapshot(), rollout=refused)
        plan = plan_release(snapshot)
        self.rollout = msgspec.structs.replace(self.rollout, status=plan.status)
        return self._show(before, plan)

    async def do_say(self, *kinds: str) -> str:
        """Whole sentences: of the bake, of conditions and of the last events."""
        status = self.status
        found = [status.find_condition(kind) for kind in kinds if kind[0].isupper()]
        texts = [one.message for one in found if one is not None]
        if "bake" in kinds:
            texts.append(self.current.bake_status_message or "")
        if "events" in kinds:
            texts += [one.note for one in self.plan.events]
        return "\n".join(texts)

    def _show(self, before: ReleaseStatus, plan: ReleasePlan) -> str:
        status = plan.status
        assert status.available_releases_count == len(status.available_releases)
        assert status.observed_generation == self.rollout.head.generation
        old, new = ({(one.id, one.timestamp): one for one in each.history}
                    for each in (before, status))  # fmt: skip
        found = [_show_entry(one, old.get(key)) for key, one in new.items() if one != old.get(key)]
        assert {when for _, when in new.keys() - old.keys()} <= {self.now}
        found += [f"gone {one.version.tag}" for key, one in old.items() if key not in new]
        found += _show_actions(plan.actions)
        if plan.events:
            found.append(f"events {' '.join(map(_show_event, plan.events))}")
        found += self._show_conditions(status, {one.reason for one in plan.events})
        found += _show_lists(before, status, deploys=bool(plan.tag))
        found += [f'problem "{plan.problem}"'] * bool(plan.problem)
        if not found and status != before:
            found.append("other texts")
        if plan.requeue_after is not None:
            seconds = plan.requeue_after.total_seconds()
            found.append(
                f"again in {seconds:g}s" if seconds % 60 else f"again in {seconds / 60:g}m"
            )
        return "; ".join(found)

    def _show_conditions(self, status: ReleaseStatus, reported: set[str]) -> list[str]:
        now = {one.type: f"{one.status} {one.reason}" for one in status.conditions}
        assert {one.observed_generation for one in status.conditions} <= {
            status.observed_generation
        }
        kinds = dict.fromkeys([*self.shown, *now])
        changed = [one for one in kinds if now.get(one) != self.shown.get(one)]
        self.shown = now
        return [
            f"{kind}={now.get(kind, 'none')}"
            for kind in changed
            # The event says it.
            if kind != "GatesPassing" or now.get(kind, "").partition(" ")[2] not in reported
        ]


def _show_entry(one: HistoryEntry, before: HistoryEntry | None) -> str:
    message = one.message or ""
    if before is not None and before.message == one.message:
        message = ""
    for text, short in MESSAGES.items():
        message = message.replace(text, short)
    by = one.triggered_by
    parts = [
        f"#{one.id}" if one.id else "",
        one.version.tag,
        *filter(None, (one.version.digest, one.version.version, one.version.revision)),
        f"of {one.version.created:%Y}" if one.version.created else "",
        one.bake_status or "none",
        _show_span(one.bake_start_time, one.bake_end_time),
        "" if message == "auto" else message,
        f"for {by.name}" if by is not None and by.kind is TriggerKind.USER else "",
        f"failed {' '.join(each.name for each in one.failed_health_checks)}".removesuffix(
            "failed "
        ),
        f"retry {one.retries} at {show_minutes(one.last_retry_timestamp)}" if one.retries else "",
        f"for {one.last_retry_by}" if one.last_retry_by else "",
    ]
    return " ".join(filter(None, parts))


def _show_span(start: datetime | None, end: datetime | None) -> str:
    return f"{show_minutes(start)}-{show_minutes(end)}" if start or end else ""


def _show_actions(actions: Sequence[ReleaseAction]) -> list[str]:
    found: dict[str, list[str]] = {}
    for one in actions:
        if isinstance(one, RemoveIntents):
            texts = [each.annotation.split("/")[1] for each in one.intents]
            found.setdefault("remove", []).extend(texts)
            continue
        kind = "k" if one.target.kind == KUSTOMIZATION else "r"
        if isinstance(one, ApplyTag):
            word = "rewrite" if one.is_drift else "write"
            found.setdefault(word, []).append(f"{kind}={one.tag}")
        else:
            found.setdefault("reconcile", []).append(kind)
    return [" ".join([word, *texts]) for word, texts in found.items()]


def _show_event(one: ReleaseEvent) -> str:
    sign = "!" if one.severity is Severity.WARN else "~" if one.is_routine else ""
    return f"{one.reason}{sign}"


def _show_lists(before: ReleaseStatus, status: ReleaseStatus, *, deploys: bool) -> list[str]:
    """Return the lists that have changed; of what is known only what did not just join."""
    found: list[str] = []
    tags = [[one.tag for one in each.available_releases] for each in (before, status)]
    if tags[1][: len(tags[0])] != tags[0] or len(tags[1]) > len(tags[0]) + 1:
        found.append(f"known {' '.join(tags[1])}")
    candidates, allowed = _join(status.release_candidates), _join(status.gated_release_candidates)
    old = (_join(before.release_candidates), _join(before.gated_release_candidates))
    if candidates != old[0]:
        found.append(f"candidates {candidates}")
    # What is deployed was among them.
    if not deploys and allowed not in (candidates, old[1]):
        found.append(f"by version {allowed}")
    if before.excluded_releases != status.excluded_releases:
        found.append(f"excluded {_join(status.excluded_releases)}")
    return found


def _join(releases: Sequence[Release | ExcludedRelease]) -> str:
    return " ".join(one.tag for one in releases) or "none"


def _read_entry(text: str) -> HistoryEntry:
    tag, _, status = text.rstrip("#").partition(":")
    known = None if status == "none" else status or BakeStatus.SUCCEEDED
    return entry(tag, known, id=None if text.endswith("#") else 1)


def _split(words: Iterable[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words)
