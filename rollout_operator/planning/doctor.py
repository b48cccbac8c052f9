"""What is wrong with an installation: all checks, in the order in which they are reported.

A check whose objects could not be read is skipped, and the report says so. The checks of the
operator and its webhooks are in `doctor_install`, those of MultiAZRollouts and releases in
`doctor_objects`; those of rollout groups, the paths on which pods are prepared, and budgets here.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

import msgspec

from rollout_operator.model import names
from rollout_operator.model.budget import Budget, FlawedBudget
from rollout_operator.model.diagnosis import (
    Diagnosis,
    Finding,
    FindingCode,
    Installation,
    LabelledPod,
    NativeBudget,
    PathAnswer,
    PathQuestion,
    SkippedCheck,
    Source,
    ZoneSet,
)
from rollout_operator.model.names import DOWNSCALE_DELAY_URL, PREPARE_DOWNSCALE, InvalidInput
from rollout_operator.model.objects import Target, selects
from rollout_operator.model.units import is_odd_brake, parse_go_int
from rollout_operator.planning import doctor_install, doctor_objects
from rollout_operator.planning.doctor_remedies import make_finding
from rollout_operator.planning.readiness import list_odd_values
from rollout_operator.planning.requests import NoTarget, is_labelled, plan_delay_target, plan_target
from rollout_operator.planning.wording import count, join_names

_DIGITS: Final = re.compile(r"([0-9]+)")
_PREFIXES: Final = ("grafana.com/", "rollout-")
# Two letters of twenty may be wrong, and a short word may be another word.
_NEAR: Final = 0.85

_KNOWN: Final = frozenset(
    value
    for value in vars(names).values()
    if isinstance(value, str) and value.startswith(_PREFIXES)
)
_APPLICATION: Final = "app.kubernetes.io/name"
_INSTANCE: Final = "app.kubernetes.io/instance"
_GROUP_LABELS: Final = frozenset({names.GROUP_LABEL, names.GROUP_LABEL_LONG})
_SWITCHES: Final = frozenset({names.NO_DOWNSCALE, names.PREPARE_DOWNSCALE})
_ONLY_LABELS: Final = _GROUP_LABELS | _SWITCHES
_ONLY_ANNOTATIONS: Final = (
    names.STATEFULSET_ANNOTATIONS - _SWITCHES - {names.MIN_TIME_BETWEEN_DOWNSCALES}
)
# The pod does not serve the path.
_UNKNOWN: Final = frozenset({404, 410})
# A proxy before the program gave up.
_NOT_OF_THE_PROGRAM: Final = frozenset({502, 504})
# The program wants credentials, and may well serve the path. Any other answer proves that it does.
_CALLER_REFUSED: Final = frozenset({401, 403})
# Mimir and Loki act on a GET of these: no pod is called where an annotation names such a path.
_ACTS_ON_GET: Final = frozenset({"shutdown", "flush", "flush_shutdown"})
_NATIVE: Final = "PodDisruptionBudget"
_ZONED: Final = "ZoneAwarePodDisruptionBudget"


def _check_zones(installation: Installation) -> Iterator[Finding]:
    for group, members in _group_by_name(installation).items():
        if len(members) == 1:
            text = f"its only zone is {members[0].sts.name}"
            yield make_finding(FindingCode.SINGLE_ZONE, f"group {group}", text)


def check_shared(installation: Installation) -> Iterator[Finding]:
    """Yield groups that two applications share, since their charts name groups alike.

    As grafana's charts of Mimir and Loki do in one namespace (grafana/mimir#8406,
    grafana/loki#13168). Each zone may be a release, or an application, of its own: then none of
    them has several sets of the group.
    """
    for group, members in _group_by_name(installation).items():
        sets: dict[tuple[str, ...], list[str]] = {}
        for member in members:
            sets.setdefault(_find_application(member), []).append(member.sts.name)
        if len(sets) > 1 and max(map(len, sets.values())) > 1:
            text = "; ".join(
                f"{_name_application(of)} has {join_names(names)}" for of, names in sets.items()
            )
            yield make_finding(FindingCode.GROUP_SHARED, f"group {group}", text)


def check_strategies(installation: Installation) -> Iterator[Finding]:
    for member in installation.members:
        if member.sts.strategy != names.ON_DELETE:
            text = f"its update strategy is {member.sts.strategy}"
            yield make_finding(FindingCode.NOT_ON_DELETE, _name(member), text)


def _check_order(installation: Installation) -> Iterator[Finding]:
    for group, members in _group_by_name(installation).items():
        by_bytes = sorted(member.sts.name for member in members)
        by_number = sorted(by_bytes, key=natural_key)
        if by_bytes != by_number:
            text = f"the order is {join_names(by_bytes, shown=len(by_bytes))}"
            yield make_finding(FindingCode.ZONE_ORDER, f"group {group}", text)


def _check_values(installation: Installation) -> Iterator[Finding]:
    for members in _group_by_name(installation).values():
        for member in members:
            for _, problem in list_odd_values(member.sts):
                yield make_finding(FindingCode.ODD_VALUE, _name(member), problem)


def _check_preparing(installation: Installation) -> Iterator[Finding]:
    """Yield sets with the label and no path or port, or with these and no label."""
    for sts in installation.sets:
        if is_labelled(sts.sts.labels, names.PREPARE_DOWNSCALE):
            target = plan_target(sts.sts.annotations, sts.sts.service_name)
            if isinstance(target, NoTarget):
                yield make_finding(FindingCode.PREPARE_INCOMPLETE, _name(sts), target.problem)
        elif names.PREPARE_DOWNSCALE not in sts.labels:
            misplaced = sorted({names.PREPARE_PATH, names.PREPARE_PORT} & sts.annotations.keys())
            if misplaced:
                text = f"it has {join_names(misplaced)} without the label {names.PREPARE_DOWNSCALE}"
                yield make_finding(FindingCode.PREPARE_WITHOUT_LABEL, _name(sts), text)


def _check_leading_zones(installation: Installation) -> Iterator[Finding]:
    for members in _group_by_name(installation).values():
        present = {member.sts.name for member in members}
        for member in members:
            leading = member.sts.annotations.get(names.LEADING_ZONE)
            if leading is not None and leading not in present:
                text = f'annotation {names.LEADING_ZONE}: "{leading}" is no zone of its group'
                yield make_finding(FindingCode.LEADING_ZONE_UNKNOWN, _name(member), text)


def natural_key(name: str) -> list[tuple[int, int | str]]:
    """Return what orders names as people do: numbers by what they count."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in _DIGITS.split(name) if part]


def _group_by_name(installation: Installation) -> Mapping[str, list[ZoneSet]]:
    groups: dict[str, list[ZoneSet]] = {}
    for member in sorted(installation.members, key=lambda member: member.sts.name):
        groups.setdefault(f"{member.sts.group}", []).append(member)
    return dict(sorted(groups.items()))


def _check_spelling(installation: Installation) -> Iterator[Finding]:
    for sts in installation.sets:
        for what, keys in _list_places(sts):
            for key in sorted(keys):
                nearest = _choose_nearest(key)
                if nearest:
                    text = f'{what} "{key}" is not known; did you mean "{nearest}"?'
                    yield make_finding(FindingCode.KEY_UNKNOWN, _name(sts), text)


def _choose_nearest(key: str) -> str:
    """Return the known key that `key` misspells, empty where it is known or foreign."""
    if key in _KNOWN or not key.lower().startswith(_PREFIXES):
        return ""
    # Under the other prefix, or without a prefix.
    same_name = [known_key for known_key in sorted(_KNOWN) if _short(known_key) == _short(key)]
    if same_name:
        return same_name[0]
    near = difflib.get_close_matches(_short(key), map(_short, sorted(_KNOWN)), n=1, cutoff=_NEAR)
    return next((known_key for known_key in sorted(_KNOWN) if _short(known_key) in near), "")


def _check_places(installation: Installation) -> Iterator[Finding]:
    """Yield the operator's keys that have no effect where they stand."""
    for sts in installation.sets:
        for key in sorted(_ONLY_LABELS & sts.annotations.keys() - sts.labels.keys()):
            yield make_finding(
                FindingCode.KEY_MISPLACED, _name(sts), f'"{key}" is a label, not an annotation'
            )
        for key in sorted(_ONLY_ANNOTATIONS & sts.labels.keys() - sts.annotations.keys()):
            yield make_finding(
                FindingCode.KEY_MISPLACED, _name(sts), f'"{key}" is an annotation, not a label'
            )
        # A group label of the pods alone is common: the set then belongs to no group.
        for key in sorted((_ONLY_LABELS & sts.pod_labels.keys()) - sts.labels.keys()):
            if key in _SWITCHES or sts.sts.group is None:
                text = f'label "{key}" is on the pod template only, not on the StatefulSet'
                yield make_finding(FindingCode.KEY_MISPLACED, _name(sts), text)


def _check_switches(installation: Installation) -> Iterator[Finding]:
    """Yield labels whose odd value switches a review on."""
    for sts in installation.sets:
        for key in sorted(_SWITCHES & sts.labels.keys()):
            value = sts.labels[key]
            if is_odd_brake(value):
                text = f'label {key}: "{value}" is neither "true" nor "false", and counts as true'
                yield make_finding(FindingCode.ODD_VALUE, _name(sts), text)


def _find_application(member: ZoneSet) -> tuple[str, ...]:
    """Return the application of a set and its release, as charts label them."""
    labels = member.labels
    return labels.get(_APPLICATION, ""), labels.get(_INSTANCE, "")


def _name_application(application: tuple[str, ...]) -> str:
    return " of release ".join(filter(None, application)) or "no application"


def _list_places(sts: ZoneSet) -> Iterable[tuple[str, Mapping[str, str]]]:
    return ("label", sts.labels), ("annotation", sts.annotations)


def _name(sts: ZoneSet) -> str:
    return f"StatefulSet {sts.sts.name}"


def _short(key: str) -> str:
    return key.rpartition("/")[2].lower()


def plan_questions(installation: Installation) -> tuple[PathQuestion, ...]:
    """Return which pods are to be called, and where; sets without replicas have none to prepare."""
    return tuple(
        PathQuestion(set_name=sts.sts.name, target=target, pod=_choose_pod(sts, installation.pods))
        for sts in installation.sets
        if sts.sts.replicas > 0
        for target in _list_targets(sts)
    )


def _list_targets(sts: ZoneSet) -> Iterator[Target]:
    """Yield the paths that can be called; other checks find what is wrong with the rest."""
    targets: list[Target | NoTarget] = []
    if is_labelled(sts.sts.labels, PREPARE_DOWNSCALE):
        targets.append(plan_target(sts.sts.annotations, sts.sts.service_name))
    url = sts.sts.annotations.get(DOWNSCALE_DELAY_URL, "")
    if url:
        targets.append(plan_delay_target(url, sts.sts.service_name))
    for target in targets:
        if isinstance(target, Target) and target.path.rpartition("/")[2] not in _ACTS_ON_GET:
            yield target


def _choose_pod(sts: ZoneSet, pods: Sequence[LabelledPod]) -> str:
    ready = (pod.name for pod in pods if pod.is_ready)
    return min((name for name in ready if _is_of(sts, name)), default="")


def _is_of(sts: ZoneSet, pod: str) -> bool:
    name, _, ordinal = pod.rpartition("-")
    return name == sts.sts.name and ordinal.isdecimal()


def _check_answers(installation: Installation) -> Iterator[Finding]:
    for answer in installation.path_answers:
        code = _judge(answer)
        if code is not None:
            yield make_finding(code, f"StatefulSet {answer.question.set_name}", _describe(answer))


def explain_unknown(answers: Sequence[PathAnswer]) -> str:
    """Return why some sets could not be asked; empty where there are findings."""
    if any(_judge(answer) is not None for answer in answers):
        return ""
    unknown = [answer for answer in answers if answer.problem or answer.status in _CALLER_REFUSED]
    if not unknown:
        return ""
    first = unknown[0]
    if not first.question.pod:
        names = dict.fromkeys(
            answer.question.set_name for answer in unknown if not answer.question.pod
        )
        return f"no pod is ready of {join_names([*names])}"
    return _describe(first)


def _judge(answer: PathAnswer) -> FindingCode | None:
    if answer.status in _UNKNOWN:
        return FindingCode.PREPARE_PATH_UNKNOWN
    if answer.is_lost or answer.status in _NOT_OF_THE_PROGRAM:
        return FindingCode.PREPARE_UNANSWERED
    return None


def _describe(answer: PathAnswer) -> str:
    question, target = answer.question, answer.question.target
    port = f"{target.port}" if target.scheme == "http" else f"{target.port} ({target.scheme})"
    came = answer.problem or f"HTTP status {answer.status}"
    return f"GET /{target.path} on port {port} of pod {question.pod}: {came}"


def _check_native_room(installation: Installation) -> Iterator[Finding]:
    for budget in installation.native_budgets:
        pods = sum(
            member.sts.replicas
            for member in installation.members
            if budget.takes(member.pod_labels)
        )
        room = count_room(budget, pods) if pods else None
        if room is None or 0 < room < pods:
            continue
        code = (
            FindingCode.NATIVE_BUDGET_PROTECTS_NOTHING
            if room > 0
            else FindingCode.NATIVE_BUDGET_REFUSES
        )
        field = "maxUnavailable" if budget.max_unavailable else "minAvailable"
        value = budget.max_unavailable or budget.min_available
        text = f"{field} is {value}, and it selects {count(pods, 'pod')}"
        yield make_finding(code, f"{_NATIVE} {budget.name}", text)


def count_room(budget: NativeBudget, pods: int) -> int | None:
    """Return how many of so many ready pods may go at once, None where nothing says it."""
    most = _count_share(budget.max_unavailable, pods)
    least = _count_share(budget.min_available, pods)
    if most is None and least is None:
        return None
    return max(most if most is not None else pods - (least or 0), 0)


def _count_share(text: str, pods: int) -> int | None:
    """Return the number of pods that a field stands for; shares are rounded up."""
    try:
        number = parse_go_int(text.removesuffix("%"))
    except InvalidInput:
        return None
    return -(-number * pods // 100) if text.endswith("%") else number


def _check_native_overlap(installation: Installation) -> Iterator[Finding]:
    for first, second in combinations(installation.native_budgets, 2):
        shared = [
            pod.name
            for pod in installation.pods
            if first.takes(pod.labels) and second.takes(pod.labels)
        ]
        if shared:
            text = f"{second.name} selects {join_names(shared)} as well"
            yield make_finding(FindingCode.NATIVE_BUDGETS_OVERLAP, f"{_NATIVE} {first.name}", text)


def _check_both_kinds(installation: Installation) -> Iterator[Finding]:
    for native in installation.native_budgets:
        for budget in _list_valid(installation):
            shared = [
                pod.name
                for pod in installation.pods
                if native.takes(pod.labels) and selects(budget.selector, pod.labels)
            ]
            if shared:
                text = f"{_ZONED} {budget.name} selects {join_names(shared)} as well"
                yield make_finding(
                    FindingCode.BUDGETS_OF_TWO_KINDS, f"{_NATIVE} {native.name}", text
                )


def _check_zone_budgets(installation: Installation) -> Iterator[Finding]:
    for budget in installation.zone_budgets:
        name = f"{_ZONED} {budget.name}"
        match budget:
            case FlawedBudget(problem=problem):
                yield make_finding(FindingCode.ZONE_BUDGET_INVALID, name, problem)
            case Budget():
                text = _explain_emptiness(budget, installation)
                if text:
                    yield make_finding(FindingCode.ZONE_BUDGET_SELECTS_NOTHING, name, text)


def _explain_emptiness(budget: Budget, installation: Installation) -> str:
    sets = [sts for sts in installation.sets if selects(budget.selector, sts.labels)]
    pods = [pod for pod in installation.pods if selects(budget.selector, pod.labels)]
    if sets and (pods or not installation.pods):
        return ""
    labels = ",".join(f"{key}={value}" for key, value in sorted(budget.selector.items()))
    lacking = [what for what, objects in (("StatefulSet", sets), ("pod", pods)) if not objects]
    return f"no {' and no '.join(lacking)} has {labels}"


def _check_zone_overlap(installation: Installation) -> Iterator[Finding]:
    for first, second in combinations(_list_valid(installation), 2):
        shared = [
            pod.name
            for pod in installation.pods
            if selects(first.selector, pod.labels) and selects(second.selector, pod.labels)
        ]
        if shared:
            text = f"{second.name} selects {join_names(shared)} as well"
            yield make_finding(FindingCode.ZONE_BUDGETS_OVERLAP, f"{_ZONED} {first.name}", text)


def _list_valid(installation: Installation) -> Sequence[Budget]:
    return [budget for budget in installation.zone_budgets if isinstance(budget, Budget)]


class Check(msgspec.Struct, frozen=True):
    """One question, and what must have been read to answer it."""

    name: str
    run: Callable[[Installation], Iterable[Finding]]
    needs: tuple[Source, ...]


_OPERATORS: Final = Source.DEPLOYMENTS
_SETS: Final = Source.STATEFULSETS
_HOOKS: Final = Source.WEBHOOKS
_RELEASES: Final = Source.RELEASES
_FLUX: Final = Source.FLUX

CHECKS: Final = (
    Check("namespace", doctor_install.check_namespace, (Source.NAMESPACE,)),
    Check("operator is there and ready", doctor_install.check_operator, (_OPERATORS, _SETS)),
    Check("one operator", doctor_install.check_count, (_OPERATORS,)),
    Check(
        "holder of the Lease", doctor_install.check_lease, (Source.LEASE, Source.PODS, _OPERATORS)
    ),
    Check("arguments of the operator", doctor_install.check_arguments, (_OPERATORS,)),
    Check("flags and variables", doctor_install.check_overruled, (_OPERATORS,)),
    Check("rights of the operator", doctor_install.check_rights, (Source.RIGHTS,)),
    Check(
        "rights of the operator in the cluster",
        doctor_install.check_cluster_rights,
        (Source.CLUSTER_RIGHTS,),
    ),
    Check("webhooks are registered", doctor_install.check_registered, (_OPERATORS, _HOOKS)),
    Check(
        "labels and budgets have webhooks",
        doctor_install.check_guards,
        (_HOOKS, _SETS, Source.ZONE_BUDGETS),
    ),
    Check("webhooks of other operators", doctor_install.check_others, (_HOOKS,)),
    Check(
        "Services of webhooks",
        doctor_install.check_services,
        (_HOOKS, Source.SERVICES, Source.ENDPOINTS),
    ),
    Check("CA of webhooks", doctor_install.check_bundles, (_HOOKS,)),
    Check("failure policies", doctor_install.check_policies, (_HOOKS,)),
    Check("time-outs of webhooks", doctor_install.check_timeouts, (_HOOKS,)),
    Check("webhooks are reached", doctor_install.check_reach, (Source.REACH,)),
    Check("zones of groups", _check_zones, (_SETS,)),
    Check("groups of one application", check_shared, (_SETS,)),
    Check("update strategies", check_strategies, (_SETS,)),
    Check("order of zones", _check_order, (_SETS,)),
    Check("values of labels and annotations", _check_values, (_SETS,)),
    Check("values of switches", _check_switches, (_SETS,)),
    Check("spelling of keys", _check_spelling, (_SETS,)),
    Check("places of keys", _check_places, (_SETS,)),
    Check("where pods are prepared", _check_preparing, (_SETS,)),
    Check(
        "pods answer where they are prepared",
        _check_answers,
        (_SETS, Source.PODS, Source.PREPARE_PATHS),
    ),
    Check("kind of MultiAZRollouts", doctor_objects.check_kind, (_OPERATORS, Source.POLICIES)),
    Check(
        "fields of kinds",
        doctor_objects.check_fields,
        (_OPERATORS, Source.ZONE_BUDGETS, Source.DEFINITIONS),
    ),
    Check("MultiAZRollouts are obeyed", doctor_objects.check_obeyed, (_OPERATORS, Source.POLICIES)),
    Check(
        "MultiAZRollouts are accepted",
        doctor_objects.check_policies_accepted,
        (Source.POLICIES, _SETS),
    ),
    Check(
        "MultiAZRollouts select StatefulSets",
        doctor_objects.check_policies_select,
        (Source.POLICIES, _SETS),
    ),
    Check(
        "update strategies under MultiAZRollouts",
        doctor_objects.check_strategies,
        (Source.POLICIES, _SETS),
    ),
    Check("kinds of releases", doctor_objects.check_kinds, (_OPERATORS, _RELEASES)),
    Check(
        "Rollouts are made by one controller", doctor_objects.check_made, (_OPERATORS, _RELEASES)
    ),
    Check("kinds of Flux", doctor_objects.check_flux, (_RELEASES, _FLUX)),
    Check(
        "Rollouts and schedules are accepted", doctor_objects.check_releases_accepted, (_RELEASES,)
    ),
    Check("versions are announced", doctor_objects.check_announced, (_RELEASES, _FLUX)),
    Check("versions are written", doctor_objects.check_written, (_RELEASES, _FLUX)),
    Check("Rollouts that others name", doctor_objects.check_named, (_RELEASES, _FLUX)),
    Check("HealthChecks and Rollouts are selected", doctor_objects.check_selected, (_RELEASES,)),
    Check("zones that others follow", _check_leading_zones, (_SETS,)),
    Check("PodDisruptionBudgets have room", _check_native_room, (Source.NATIVE_BUDGETS, _SETS)),
    Check(
        "PodDisruptionBudgets do not overlap",
        _check_native_overlap,
        (Source.NATIVE_BUDGETS, Source.PODS),
    ),
    Check(
        "one kind of budget for a pod",
        _check_both_kinds,
        (Source.NATIVE_BUDGETS, Source.ZONE_BUDGETS, Source.PODS),
    ),
    Check("zone budgets", _check_zone_budgets, (Source.ZONE_BUDGETS, _SETS, Source.PODS)),
    Check(
        "zone budgets do not overlap",
        _check_zone_overlap,
        (Source.ZONE_BUDGETS, Source.PODS),
    ),
    Check("pods that are to come", doctor_install.check_pods, (Source.POD_TRIALS,)),
)


def diagnose(installation: Installation) -> Diagnosis:
    """Return what is wrong with an installation, as far as it could be read."""
    findings: list[Finding] = []
    skipped: list[SkippedCheck] = []
    passed = unneeded = 0
    for check in CHECKS:
        missing = [source for source in check.needs if source in installation.unread]
        if missing:
            skipped.append(SkippedCheck(check=check.name, why=installation.unread[missing[0]]))
            continue
        if not installation.unneeded.isdisjoint(check.needs):
            unneeded += 1
            continue
        breaches = tuple(check.run(installation))
        findings += breaches
        passed += not breaches
    return Diagnosis(
        namespace=installation.namespace,
        findings=tuple(findings),
        skipped=tuple(skipped),
        passed=passed,
        unneeded=unneeded,
    )
