"""What is wrong with an installation: all checks, in the order in which they are reported.

A check whose objects could not be read is skipped, and the report says so. Of groups, policies,
releases and budgets it repeats what the planner and the decoders say of them. Dry runs tell whether
the API server reaches the webhooks and would accept the pods: only its sentence says which step
failed.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from rollout_operator.model import names
from rollout_operator.model.budget import FlawedBudget
from rollout_operator.model.diagnosis import (
    EVICTION_PATH,
    NO_DOWNSCALE_PATH,
    POLICIES_FLAG,
    PREPARE_DOWNSCALE_PATH,
    RELEASES_FLAG,
    Diagnosis,
    Finding,
    FindingCode,
    Installation,
    Right,
    RightAnswer,
    SkippedCheck,
    Source,
)
from rollout_operator.model.names import NO_DOWNSCALE, ON_DELETE, PREPARE_DOWNSCALE, GroupName
from rollout_operator.model.objects import Group, StatefulSet, Zone
from rollout_operator.model.outcome import Code, Family, Reason, Severity, list_codes
from rollout_operator.model.scaling import ScalingSnapshot, TimesSource
from rollout_operator.model.units import format_rfc3339, is_odd_brake
from rollout_operator.planning.downscales import explain_bad_time
from rollout_operator.planning.requests import NoTarget, is_labelled, plan_target
from rollout_operator.planning.rights import TLS_FLAG, share_policies
from rollout_operator.planning.rollout import plan_group
from rollout_operator.planning.scaling import plan_scaling
from rollout_operator.planning.wording import count, join_names, read_table, verb

_OPERATORS: Final = Source.DEPLOYMENTS
_SETS: Final = Source.STATEFULSETS
_HOOKS: Final = Source.WEBHOOKS
_RELEASES: Final = Source.RELEASES

_POLICY: Final = "MultiAZRollout"
_POLICY_VERSION: Final = "v1alpha1"
_BUDGET: Final = "ZoneAwarePodDisruptionBudget"

# What the planner says of settings, and what only a person changes.
_OF_REASONS: Final[dict[Code, FindingCode]] = {
    Code.WRONG_STRATEGY: FindingCode.NOT_ON_DELETE,
    Code.NO_LEADING_ZONE: FindingCode.LEADING_ZONE_UNKNOWN,
    Code.LEADING_ZONES_CIRCLE: FindingCode.LEADING_ZONE_UNKNOWN,
    **dict.fromkeys(
        (
            # Sets that share labels are told apart by owner.
            *(code for code in list_codes(Family.ODD) if code is not Code.PODS_SHARE_LABELS),
            *(Code.WAIT_TIME_MISSING, Code.BAD_REFERENCE, Code.BAD_DELAY),
        ),
        FindingCode.ODD_VALUE,
    ),
}

_TRACKER_FLAG: Final = "use-zone-tracker"
_PREFIXES: Final = ("grafana.com/", "rollout-")
# Two letters of twenty may be wrong, and a short word may be another word.
_NEAR: Final = 0.85
_KNOWN: Final = sorted(
    value
    for value in vars(names).values()
    if isinstance(value, str) and value.startswith(_PREFIXES)
)
_SWITCHES: Final = frozenset({NO_DOWNSCALE, PREPARE_DOWNSCALE})
_ONLY_LABELS: Final = _SWITCHES | {names.GROUP_LABEL, names.GROUP_LABEL_LONG}
_ONLY_ANNOTATIONS: Final = (
    names.STATEFULSET_ANNOTATIONS - _SWITCHES - {names.MIN_TIME_BETWEEN_DOWNSCALES}
)

_FAILED: Final = re.compile(r'failed calling webhook "([^"]*)"')
_TIMED_OUT: Final = ("context deadline exceeded", "i/o timeout", "Client.Timeout exceeded")
_POD_SECURITY: Final = "violates PodSecurity"
# Another owner's webhook has side effects: the dry run says nothing of ours. A pod that is replaced
# has freed its share of the quota by then.
_NOT_TRIED: Final = ("does not support dry run", "exceeded quota")
# The API server names all violations.
_SHOWN: Final = 120
_POD: Final = re.compile(r'pods "[^"]*" is forbidden: |cannot create pods in namespace [^:]*: ')


class Check(msgspec.Struct, frozen=True):
    """One question, and what must have been read to answer it."""

    name: str
    run: Callable[[Installation], Iterable[Finding]]
    needs: tuple[Source, ...]


class Meaning(NamedTuple):
    """What is the same for all findings of a code."""

    severity: Severity
    meaning: str
    remedy: str


EXPLANATIONS: Final = {
    FindingCode(code): Meaning(Severity(severity), meaning, remedy)
    for code, severity, meaning, remedy in read_table("findings.txt")
}


def find(code: FindingCode, obj: str, text: str) -> Finding:
    severity, _, remedy = EXPLANATIONS[code]
    return Finding(code=code, severity=severity, object=obj, text=text, remedy=remedy)


CHECKS: Final[list[Check]] = []
_Run = Callable[[Installation], Iterator[Finding]]


def _check(name: str, *needs: Source) -> Callable[[_Run], _Run]:
    def add(run: _Run) -> _Run:
        CHECKS.append(Check(name, run, needs))
        return run

    return add


@_check("namespace", Source.NAMESPACE)
def _check_namespace(installation: Installation) -> Iterator[Finding]:
    if installation.namespace_labels is None:
        title = f"Namespace {installation.namespace}"
        yield find(FindingCode.NAMESPACE_MISSING, title, "it does not exist")


@_check("operator is there and ready", _OPERATORS, _SETS, Source.LEASE)
def _check_operator(installation: Installation) -> Iterator[Finding]:
    """Yield that there is no operator, or that it is not ready.

    A process that renews the Lease acts, though it runs in no Deployment that is seen.
    """
    here, acting = installation.namespace, installation.acting
    if installation.namespace_labels is None and Source.NAMESPACE not in installation.unread:
        return
    groups = [*installation.groups]
    watching = [operator for operator in acting if operator.watches(here)]
    # Releases may be those of another controller, and policies have a finding of their own.
    others = (*installation.operators, *installation.policies, *installation.releases.rollouts)
    if not (watching if groups else others) and not installation.has_live_lease:
        text = f"nothing rolls out {join_names(groups)}" if groups else "there is none"
        if acting:
            text += f"; {acting[0].title} watches another namespace"
        yield find(FindingCode.OPERATOR_MISSING, f"Namespace {here}", text)
    for operator in acting:
        if not operator.ready:
            text = f"0 of {count(operator.replicas, 'pod')} ready"
            yield find(FindingCode.OPERATOR_NOT_READY, operator.title, text)


@_check("one operator", _OPERATORS)
def _check_count(installation: Installation) -> Iterator[Finding]:
    """Yield that two operators of this kind, or of releases, act."""
    acting, others = installation.acting, installation.kuberik
    if len(acting) > 1:
        every = join_names(sorted(operator.name for operator in acting), shown=len(acting))
        text = f"{every} run an operator of this namespace"
        yield find(FindingCode.TWO_OPERATORS, f"Namespace {installation.namespace}", text)
    if others and installation.are_any_on(RELEASES_FLAG):
        text = f"Deployment {join_names(others)} runs kuberik's controller"
        yield find(FindingCode.RELEASES_MADE_TWICE, acting[0].title, text)


@_check("rights of the operator", Source.RIGHTS)
def _check_rights(installation: Installation) -> Iterator[Finding]:
    return _list_missing(answer for answer in installation.rights if answer.right.is_namespaced)


@_check("rights of the operator in the cluster", Source.CLUSTER_RIGHTS)
def _check_cluster_rights(installation: Installation) -> Iterator[Finding]:
    return _list_missing(answer for answer in installation.rights if not answer.right.is_namespaced)


def _list_missing(answers: Iterable[RightAnswer]) -> Iterator[Finding]:
    """Yield the rights that are missing, those for one purpose together."""
    missing: dict[tuple[str, str, str, bool], dict[str, list[str]]] = {}
    for answer in answers:
        right = answer.right
        if not answer.is_granted:
            key = answer.account, answer.namespace, right.purpose, right.is_optional
            missing.setdefault(key, {}).setdefault(_name_object(right), []).append(right.verb)
    for (account, namespace, purpose, is_optional), objects in missing.items():
        code = FindingCode.OPTIONAL_RIGHT_MISSING if is_optional else FindingCode.RIGHT_MISSING
        rights = "; ".join(f"{join_names(verbs)} {what}" for what, verbs in objects.items())
        where = f" in namespace {namespace}" if namespace else ""
        text = f"it may not {rights}{where}: {purpose}"
        yield find(code, f"ServiceAccount {account}", text)


def _name_object(right: Right) -> str:
    """Return the object of a right, as a rule of a Role names it."""
    named = f' "{right.name}"' if right.name else ""
    group = f' in API group "{right.group}"' if right.group else ""
    return f"{right.resource}{named}{group}"


@_check("webhooks are registered", _OPERATORS, _HOOKS)
def _check_registered(installation: Installation) -> Iterator[Finding]:
    serving = [operator for operator in installation.acting if operator.is_on(TLS_FLAG)]
    if serving and not installation.own_hooks:
        text = f"-{TLS_FLAG} is on, and no webhook configuration names this namespace"
        yield find(FindingCode.WEBHOOKS_MISSING, serving[0].title, text)


@_check("labels and budgets have webhooks", _HOOKS, _SETS, Source.ZONE_BUDGETS)
def _check_guards(installation: Installation) -> Iterator[Finding]:
    registered = {hook.path for hook in installation.own_hooks}
    for key, path in (
        (NO_DOWNSCALE, NO_DOWNSCALE_PATH),
        (PREPARE_DOWNSCALE, PREPARE_DOWNSCALE_PATH),
    ):
        for each in installation.sets:
            if is_labelled(each.sts.labels, key) and path not in registered:
                text = f'label {key}: "true", and no webhook calls {path}'
                yield find(FindingCode.GUARD_WITHOUT_WEBHOOK, each.title, text)
    if EVICTION_PATH not in registered:
        for budget in installation.zone_budgets:
            text = f"no webhook calls {EVICTION_PATH}: only rollouts obey it"
            yield find(FindingCode.GUARD_WITHOUT_WEBHOOK, f"{_BUDGET} {budget.name}", text)


@_check("owners and failure policies of webhooks", _HOOKS)
def _check_hooks(installation: Installation) -> Iterator[Finding]:
    for hook in installation.hooks:
        if installation.is_own(hook):
            if hook.failure_policy != "Fail":
                text = f"webhook {hook.name} has failurePolicy {hook.failure_policy}"
                yield find(FindingCode.WEBHOOK_IGNORES_FAILURE, hook.configuration, text)
        elif hook.selects.takes(installation.all_labels):
            owner = hook.owner or hook.service_namespace or "(unknown)"
            text = f"webhook {hook.name} of the operator in namespace {owner}"
            text += " selects this namespace"
            yield find(FindingCode.WEBHOOK_OF_OTHERS, hook.configuration, text)


@_check("Secret and CA of webhooks", _HOOKS)
def _check_bundles(installation: Installation) -> Iterator[Finding]:
    if installation.missing_secret:
        text = f"Secret {installation.missing_secret} does not exist"
        yield find(FindingCode.CERTIFICATE_MISSING, installation.acting[0].title, text)
    for hook in installation.own_hooks:
        facts, name = hook.bundle, hook.configuration
        if facts is None:
            text = f"webhook {hook.name} has no caBundle"
            yield find(FindingCode.WEBHOOK_CA_MISSING, name, text)
        elif facts.problem:
            yield find(FindingCode.WEBHOOK_CA_BROKEN, name, facts.problem)
        elif facts.ends is not None and facts.ends <= installation.now:
            text = f"it ended at {format_rfc3339(facts.ends)}"
            yield find(FindingCode.WEBHOOK_CA_EXPIRED, name, text)
        elif facts.vouches is False:
            text = "the certificate in the operator's Secret is of another CA"
            yield find(FindingCode.WEBHOOK_CA_DIFFERS, name, text)


@_check("webhooks are reached", Source.REACH)
def _check_reach(installation: Installation) -> Iterator[Finding]:
    for answer in installation.reach:
        failed = _FAILED.search(answer.error)
        if not answer.is_answered:
            yield find(FindingCode.WEBHOOK_TIMED_OUT, answer.request, answer.error)
        elif failed is not None:
            is_late = any(sign in answer.error for sign in _TIMED_OUT)
            code = FindingCode.WEBHOOK_TIMED_OUT if is_late else FindingCode.WEBHOOK_UNREACHABLE
            yield find(code, f"webhook {failed[1]}", answer.error)
        # Any other refusal, such as by the schema of another release, says nothing of ours.
        elif answer.must_be_refused and not answer.error:
            text = f"no webhook refused to {answer.request}: it was accepted"
            yield find(FindingCode.WEBHOOK_NOT_CALLED, " ".join(answer.paths), text)


@_check("zones and applications of groups", _SETS)
def _check_groups(installation: Installation) -> Iterator[Finding]:
    """Yield groups of one zone, and groups that two applications share.

    Charts may name groups alike, as grafana's of Mimir and Loki do in one namespace
    (grafana/mimir#8406, grafana/loki#13168). Each zone may be a release, or an application, of its
    own: then none of them has several sets of the group.
    """
    for group, members in installation.groups.items():
        if len(members) == 1:
            text = f"its only zone is {members[0].sts.name}"
            yield find(FindingCode.SINGLE_ZONE, f"group {group}", text)
        sets: dict[str, list[str]] = {}
        for member in members:
            labels = (f"app.kubernetes.io/{what}" for what in ("name", "instance"))
            application = " of release ".join(filter(None, map(member.labels.get, labels)))
            sets.setdefault(application or "no application", []).append(member.sts.name)
        if len(sets) > 1 and max(map(len, sets.values())) > 1:
            text = "; ".join(f"{of} has {join_names(members)}" for of, members in sets.items())
            yield find(FindingCode.GROUP_SHARED, f"group {group}", text)


@_check("settings of groups", _SETS)
def _check_settings(installation: Installation) -> Iterator[Finding]:
    """Yield what the planner says of the settings of groups, and reviews of those of sets."""
    for name, members in installation.groups.items():
        yield from _list_findings(_list_reasons(name, [each.sts for each in members], installation))
    is_tracked = installation.are_any_on(_TRACKER_FLAG)
    source = TimesSource.TRACKER if is_tracked else TimesSource.ANNOTATIONS
    for each in installation.sets:
        for key in sorted(_SWITCHES & each.labels.keys()):
            value = each.labels[key]
            if is_odd_brake(value):
                text = f'label {key}: "{value}" is neither "true" nor "false", and counts as true'
                yield find(FindingCode.ODD_VALUE, each.title, text)
        if is_labelled(each.sts.labels, PREPARE_DOWNSCALE):
            target = plan_target(each.sts.annotations, each.sts.service_name)
            if isinstance(target, NoTarget):
                yield find(FindingCode.PREPARE_INCOMPLETE, each.title, target.problem)
        if why := explain_bad_time(each.sts, source):
            text = f"{why}; downscales of its group are refused or held because of it"
            yield find(FindingCode.ODD_VALUE, each.title, text)


def _list_reasons(
    name: str, sets: Iterable[StatefulSet], installation: Installation
) -> Iterator[Reason]:
    """Yield the planner's reasons for a group whose pods it does not see."""
    zones = tuple(Zone(sts=sts) for sts in sets)
    group = Group(name=GroupName(name), zones=zones, now=installation.now, deletions={})
    rollout, scaling = plan_group(group), plan_scaling(ScalingSnapshot(group=group))
    yield from (*rollout.waits, *rollout.problems, *scaling.waits, *scaling.problems)


def _list_findings(reasons: Iterable[Reason]) -> Iterator[Finding]:
    for reason in reasons:
        if code := _OF_REASONS.get(reason.code):
            title = f"StatefulSet {reason.zone}"
            yield find(code, title, reason.text.removeprefix(title).lstrip(": "))


@_check("update strategies under MultiAZRollouts", Source.POLICIES, _SETS)
def _check_policy_strategies(installation: Installation) -> Iterator[Finding]:
    """Yield StatefulSets of policies, of no group, that Kubernetes replaces the pods of."""
    for scope in share_policies(installation).scopes:
        own = [sts for sts in scope.sets if isinstance(sts, StatefulSet) and sts.group is None]
        wrong = [sts for sts in own if sts.strategy != ON_DELETE]
        if wrong and not scope.policy.may_switch_strategy:
            yield from _list_findings(_list_reasons(scope.policy.head.name, wrong, installation))


@_check("spelling and places of keys", _SETS)
def _check_keys(installation: Installation) -> Iterator[Finding]:
    """Yield keys that look like the operator's and are none, or that do nothing where they are."""
    for each in installation.sets:
        labels, annotations = each.labels.keys(), each.annotations.keys()
        for what, keys in (("label", labels), ("annotation", annotations)):
            for key in sorted(keys):
                if nearest := _choose_nearest(key):
                    text = f'{what} "{key}" is not known; did you mean "{nearest}"?'
                    yield find(FindingCode.KEY_UNKNOWN, each.title, text)
        # A group label of the pods alone is common: the set then belongs to no group.
        on_pods = _SWITCHES if each.sts.group is not None else _ONLY_LABELS
        for what, misplaced in (
            ('"{}" is a label, not an annotation', _ONLY_LABELS & annotations - labels),
            ('"{}" is an annotation, not a label', _ONLY_ANNOTATIONS & labels - annotations),
            (
                'label "{}" is on the pod template only, not on the StatefulSet',
                on_pods & each.pod_labels.keys() - labels,
            ),
        ):
            for key in sorted(misplaced):
                yield find(FindingCode.KEY_MISPLACED, each.title, what.format(key))


def _choose_nearest(key: str) -> str:
    """Return the known key that `key` misspells, empty where it is known or foreign."""
    if key in _KNOWN or not key.lower().startswith(_PREFIXES):
        return ""
    # Under the other prefix, or without a prefix, it is the same.
    known_keys = sorted(_KNOWN, key=lambda known: ("/" in known) == ("/" in key))
    short = {known.rpartition("/")[2]: known for known in known_keys}
    near = difflib.get_close_matches(key.rpartition("/")[2].lower(), short, n=1, cutoff=_NEAR)
    return short[near[0]] if near else ""


@_check("kind of MultiAZRollouts", _OPERATORS, Source.POLICIES)
def _check_kind(installation: Installation) -> Iterator[Finding]:
    kind = installation.policy_kind
    if not kind.is_served and installation.are_any_on(POLICIES_FLAG):
        text = "the API server does not know the kind"
        if kind.versions:
            text = f"the API server knows {join_names(kind.versions)} of it,"
            text += f" and not {_POLICY_VERSION}"
        yield find(FindingCode.POLICY_KIND_MISSING, _POLICY, text)


@_check("fields of kinds", _OPERATORS, Source.ZONE_BUDGETS, Source.DEFINITIONS)
def _check_fields(installation: Installation) -> Iterator[Finding]:
    for kind, missing in installation.missing_fields.items():
        text = f"its CustomResourceDefinition lacks {join_names(missing, shown=len(missing))}"
        yield find(FindingCode.KIND_OUTDATED, kind, text)


@_check("MultiAZRollouts are obeyed", _OPERATORS, Source.POLICIES)
def _check_obeyed(installation: Installation) -> Iterator[Finding]:
    """Yield that policies are here, and that no operator looks after them.

    An operator that may not be seen, in another namespace or on a person's machine, shows in what
    it has written into their status.
    """
    policies = [policy.head.name for policy in installation.policies]
    here = installation.namespace
    watching = [operator for operator in installation.acting if operator.watches(here)]
    title, problem = f"Namespace {here}", "seen by no operator that obeys policies"
    if watching:
        title, problem = watching[0].title, "ignored"
    else:
        policies = [name for name in policies if name in installation.unobeyed]
    if policies and not any(operator.is_on(POLICIES_FLAG) for operator in watching):
        text = f"{join_names(policies)} {verb(len(policies), 'is', 'are')} {problem}"
        yield find(FindingCode.POLICIES_NOT_OBEYED, title, text)


@_check("Rollouts are made by one controller", _OPERATORS, _RELEASES)
def _check_releases(installation: Installation) -> Iterator[Finding]:
    """Yield that no operator makes the Rollouts here, or cannot for want of their kinds."""
    acting, releases = installation.acting, installation.releases
    missing, rollouts = releases.absent, releases.rollouts
    if installation.are_any_on(RELEASES_FLAG):
        if missing:
            text = f"the API server does not know {join_names(missing, shown=len(missing))}"
            yield find(FindingCode.RELEASE_KIND_MISSING, "kuberik.com", text)
    elif rollouts and acting and not installation.kuberik:
        text = f"{join_names(rollouts)} {verb(len(rollouts), 'is', 'are')} ignored"
        yield find(FindingCode.RELEASES_NOT_MADE, acting[0].title, text)


@_check("MultiAZRollouts are accepted", Source.POLICIES, _SETS)
def _check_policies_accepted(installation: Installation) -> Iterator[Finding]:
    ownership = share_policies(installation)
    for policy in ownership.refused:
        text = "; ".join(refusal.text for refusal in policy.refusals)
        yield find(FindingCode.POLICY_REFUSED, f"{_POLICY} {policy.head.name}", text)
    for scope in ownership.scopes:
        if not scope.sets:
            title = f"{_POLICY} {scope.policy.head.name}"
            text = "spec.statefulSetSelector selects no StatefulSet of the namespace"
            yield find(FindingCode.POLICY_SELECTS_NOTHING, title, text)


@_check("Rollouts and schedules are accepted", _RELEASES, Source.FLUX)
def _check_releases_accepted(installation: Installation) -> Iterator[Finding]:
    for code, title, text in installation.releases.problems:
        yield find(code, title, text)


@_check("RolloutHealthChecks that are named can be obeyed", Source.GATES, _SETS)
def _check_gates(installation: Installation) -> Iterator[Finding]:
    for name, problem in installation.broken_gates.items():
        yield find(FindingCode.BAD_HEALTH_CHECK, f"StatefulSet {name}", problem)


@_check("zone budgets are valid", Source.ZONE_BUDGETS)
def _check_budgets(installation: Installation) -> Iterator[Finding]:
    for budget in installation.zone_budgets:
        if isinstance(budget, FlawedBudget):
            title = f"{_BUDGET} {budget.name}"
            yield find(FindingCode.ZONE_BUDGET_INVALID, title, budget.problem)


@_check("pods that are to come", Source.POD_TRIALS)
def _check_pods(installation: Installation) -> Iterator[Finding]:
    """Yield StatefulSets whose next pod the API server would refuse; those alike together."""
    alike: dict[tuple[FindingCode, str], list[str]] = {}
    for trial in installation.pod_trials:
        if trial.error and not any(sign in trial.error for sign in _NOT_TRIED):
            alike.setdefault(_judge_refusal(trial.error), []).append(trial.set_name)
    for (code, text), (first, *others) in alike.items():
        more = f"; the same for {join_names(others)}" if others else ""
        yield find(code, f"StatefulSet {first}", f"{text}{more}")


def _judge_refusal(error: str) -> tuple[FindingCode, str]:
    """Return the part of a refusal that does not name the pod."""
    _, security, violations = error.partition(_POD_SECURITY)
    if security:
        cut = "..." if len(violations) > _SHOWN else ""
        return FindingCode.POD_SECURITY_VIOLATED, f"{security}{violations[:_SHOWN]}{cut}"
    return FindingCode.POD_REFUSED, _POD.sub("", error)


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
