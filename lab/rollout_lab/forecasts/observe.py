"""Foresee the releases of a copy of objects: when which version would be deployed, and why then.

Manifests that were never applied have neither UID nor generation: they get some, as an API server
would give them. They belong to the namespace that is requested, or to `default`. What cannot be
read is named.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from rollout_lab.model.fields import child, name_of, namespace_of, text
from rollout_operator.cli.dumps import is_of
from rollout_operator.controllers.releases import (
    NO_OTHERS,
    NO_POLICIES,
    describe_policy,
    explain_absence,
    gather_flux,
    index_flux,
)
from rollout_operator.kube import api as kinds
from rollout_operator.kube.api import NAMESPACES, JsonObject, Resource
from rollout_operator.model.decode.flux import DECODERS
from rollout_operator.model.decode.wire import decode_or_salvage
from rollout_operator.model.description import Arrival, Forecast, RolloutForecast
from rollout_operator.model.names import ExitCode, InvalidInput
from rollout_operator.model.objects import AnyWatched
from rollout_operator.model.release_plan import PolicyReading, ReleaseObjects, gather_releases
from rollout_operator.model.releases import (
    ACTIVE,
    OURS,
    BakeStatus,
    RefusedRelease,
    ReleaseCompat,
    ReleaseRollout,
)
from rollout_operator.model.units import format_duration
from rollout_operator.operator.copies import ObjectsCopy
from rollout_operator.planning import candidates
from rollout_operator.planning.flux import list_targets
from rollout_operator.planning.forecasts import ForecastInput, ForecastRollout, play_ahead

_DEFAULT: Final = "default"
_READ: Final[Mapping[str, Resource]] = {
    resource.kind: resource
    for resource in (
        *(kinds.ROLLOUTS, kinds.ROLLOUT_GATES, kinds.HEALTH_CHECKS),
        *(kinds.ROLLOUT_SCHEDULES, kinds.CLUSTER_ROLLOUT_SCHEDULES, kinds.IMAGE_POLICIES[0]),
        *(kinds.OCI_REPOSITORIES[0], kinds.KUSTOMIZATIONS[0], NAMESPACES),
    )
}
# Without the right to read these the operator decides nothing.
_NEEDED: Final = (
    (kinds.ROLLOUT_GATES, candidates.GATES_UNKNOWN),
    (kinds.HEALTH_CHECKS, candidates.CHECKS_UNKNOWN),
    (kinds.IMAGE_POLICIES[0], ""),
    (kinds.OCI_REPOSITORIES[0], ""),
    (kinds.KUSTOMIZATIONS[0], ""),
)


class ForecastSpan(msgspec.Struct, frozen=True, kw_only=True):
    """From when, and for how long."""

    begins: datetime
    lasts: timedelta
    settles_after: timedelta
    compat: ReleaseCompat = OURS
    keeps_to_namespace: bool = False
    """Whether nothing of another namespace counts that an object names."""
    verifies_wanted: bool = False
    """Whether a pin waits until the registry says that it has the tag: here it says nothing."""


def observe_releases(
    copy: ObjectsCopy, namespace: str, span: ForecastSpan
) -> tuple[ForecastInput, tuple[str, ...]]:
    """Return what a forecast is made of, and what of the objects cannot be read.

    Raises InvalidInput where there is no Rollout, or where an object is there twice. `namespace`
    may be empty for all.
    """
    objects = gather_releases(_read(copy.objects, namespace), copy.absent)
    rollouts = [each for each in objects.rollouts if namespace in ("", each.head.namespace)]
    broken = [each.error for each in objects.unreadable]
    if not rollouts:
        place = f" in namespace {namespace}" if namespace else ""
        besides = f"; {'; '.join(broken)}" if broken else ""
        raise InvalidInput(f"there is no Rollout of {kinds.ROLLOUTS.group}{place}{besides}")
    given = ForecastInput(
        begins=span.begins,
        ends=span.begins + span.lasts,
        rollouts=tuple(
            _relate(each, objects, copy, span)
            for each in sorted(rollouts, key=lambda each: (each.head.namespace, each.head.name))
        ),
        objects=objects,
        compat=span.compat,
        verifies_wanted=span.verifies_wanted,
        settles_after=span.settles_after,
    )
    return given, (*broken, *(each.text for each in copy.unread))


def _read(objects: Iterable[JsonObject], namespace: str) -> Iterator[AnyWatched]:
    seen: set[tuple[str, str, str]] = set()
    for obj in objects:
        kind = text(obj, "kind")
        resource = _READ.get(kind)
        if resource is None or not is_of(obj, resource):
            continue
        whole = _complete(obj, namespace if resource.is_namespaced else None)
        key = (kind, namespace_of(whole), name_of(whole))
        if key in seen:
            raise InvalidInput(f"{kind} {'/'.join(filter(None, key[1:]))} is in the input twice")
        seen.add(key)
        yield decode_or_salvage(kind, DECODERS[kind], msgspec.Raw(msgspec.json.encode(whole)))


def _complete(obj: JsonObject, namespace: str | None) -> JsonObject:
    """Return an object with what an API server would have given it; None: it is the cluster's."""
    head = dict(child(obj, "metadata"))
    if namespace is not None:
        head.setdefault("namespace", namespace or _DEFAULT)
    place = "/".join((text(obj, "kind"), str(head.get("namespace", "")), str(head.get("name"))))
    for key, value in (("uid", place), ("resourceVersion", "1"), ("generation", 1)):
        head.setdefault(key, value)
    return {**obj, "metadata": head}


def _relate(
    rollout: ReleaseRollout | RefusedRelease,
    objects: ReleaseObjects,
    copy: ObjectsCopy,
    span: ForecastSpan,
) -> ForecastRollout:
    if isinstance(rollout, RefusedRelease):
        return ForecastRollout(rollout=rollout)
    name, current = rollout.head.name, rollout.status.current
    own = (each for each in objects.flux if each.head.namespace == rollout.head.namespace)
    flux = gather_flux(name, index_flux(own))
    tag = None if current is None else current.version.tag
    targets = list_targets(name, tag, flux)
    policy = _read_policy(rollout, objects, copy)
    if lack := explain_absence(copy.absent, targets):
        policy = PolicyReading(problem=lack, reason=candidates.NO_FLUX)
    place = rollout.spec.policy_namespace
    if span.keeps_to_namespace and place not in ("", rollout.head.namespace):
        policy = PolicyReading(
            problem=f"ImagePolicy {place}/{rollout.spec.policy_name}: {NO_OTHERS}"
        )
    return ForecastRollout(
        rollout=rollout,
        policy=policy,
        targets=targets,
        suspended=frozenset(
            (each.kind, each.head.name) for each in flux if each.progress.is_suspended
        ),
    )


def _read_policy(
    rollout: ReleaseRollout, objects: ReleaseObjects, copy: ObjectsCopy
) -> PolicyReading:
    if copy.known:
        for resource, reason in _NEEDED:
            if resource.kind not in copy.known:
                texts = (each.text for each in copy.unread if each.kind == resource.kind)
                return PolicyReading(problem=next(texts, resource.plural), reason=reason)
    if kinds.IMAGE_POLICIES[0].kind in copy.absent:
        return PolicyReading(problem=NO_POLICIES, reason=candidates.NO_FLUX)
    namespace = rollout.spec.policy_namespace or rollout.head.namespace
    place = (namespace, rollout.spec.policy_name)
    for policy in objects.policies:
        if (policy.head.namespace, policy.head.name) == place:
            return describe_policy(policy)
    for broken in objects.list_unreadable(kinds.IMAGE_POLICIES[0].kind):
        if (broken.namespace, broken.name) == place:
            return PolicyReading(problem=broken.error)
    return PolicyReading(problem=f"ImagePolicy {'/'.join(place)}: there is none")


def foresee(copy: ObjectsCopy, namespace: str, span: ForecastSpan) -> Forecast:
    """Return what is foreseen. Raises InvalidInput where there is no Rollout."""
    given, problems = observe_releases(copy, namespace, span)
    played = play_ahead(given, ZoneInfo)
    settles = format_duration(span.settles_after)
    return Forecast(
        exit_code=_choose_exit_code(played.rollouts),
        begins=given.begins,
        ends=given.ends,
        rollouts=played.rollouts,
        problems=(*problems, *played.problems),
        assumptions=(
            "the operator runs with -releases.enabled",
            f"{settles} after a tag is written, Flux runs it and HealthChecks are healthy that are"
            " not Unhealthy before",
            "no other version is announced, no registry is called, and people change nothing",
        ),
    )


def _choose_exit_code(rollouts: tuple[RolloutForecast, ...]) -> ExitCode:
    """Return how it ends: what needs a person counts more than what takes longer."""
    verdicts = {rollout.versions[-1].verdict for rollout in rollouts}
    bakes = {rollout.versions[-2].bake for rollout in rollouts if len(rollout.versions) > 1}
    if Arrival.PERSON in verdicts or BakeStatus.FAILED in bakes:
        return ExitCode.NEEDS_A_PERSON
    is_late = Arrival.LATER in verdicts or not bakes.isdisjoint(ACTIVE)
    return ExitCode.TIMED_OUT if is_late else ExitCode.DONE
