"""Checks of the operators of a namespace: Deployments, flags, variables, rights, webhooks.

Operators are ours or grafana's, of any version: unknown flags are ignored, and a value that comes
from elsewhere says nothing. The rights are those of the shipped Roles in `manifests/base`, and of
the components whose flags are on; a test compares. Dry runs tell whether the API server reaches the
webhooks and would accept the pods: only its sentence says which step failed.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from rollout_operator.model.diagnosis import (
    EVICTION_PATH,
    NO_DOWNSCALE_PATH,
    PREPARE_DOWNSCALE_PATH,
    Finding,
    FindingCode,
    Installation,
    OperatorDeployment,
    ReachAnswer,
    Right,
    RightAnswer,
    Source,
)
from rollout_operator.model.names import NO_DOWNSCALE, PREPARE_DOWNSCALE, InvalidInput
from rollout_operator.model.units import format_duration, format_rfc3339, parse_duration
from rollout_operator.planning.doctor_remedies import make_finding
from rollout_operator.planning.requests import is_labelled
from rollout_operator.planning.wording import count, join_names

SECRET_FLAG: Final = "server-tls.self-signed-cert.secret-name"  # noqa: S105 (the name of a flag)
DEFAULT_SECRET: Final = "rollout-operator-self-signed-certificate"  # noqa: S105 (a name)
LEASE_FLAG: Final = "leader-election.lease-name"
DEFAULT_LEASE: Final = "rollout-operator"
_TLS_FLAG: Final = "server-tls.enabled"
SELF_SIGNED_FLAG: Final = "server-tls.self-signed-cert.enabled"

POLICIES_FLAG: Final = "multi-az-rollouts.enabled"
RELEASES_FLAG: Final = "releases.enabled"
_METADATA_FLAG: Final = "releases.metadata"
_NAMES_FLAG: Final = "webhooks.ca-bundle-names"

_NAMESPACE_FLAGS: Final = ("kubernetes.namespace", "kubernetes-namespace")
_LEVEL_FLAG: Final = "log.level"
_WATCHED: Final = "WATCH_NAMESPACE"
_LEVEL: Final = "LOG_LEVEL"
_NAME: Final = "OPERATOR_NAME"
_PORT: Final = "METRICS_PORT"
# A value that refers to a variable or an object: it is not known here.
_ELSEWHERE: Final = "$("
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})

_DEFAULT_POD_TIMEOUT: Final = timedelta(seconds=5)
_DEFAULT_REQUEST_TIMEOUT: Final = timedelta(seconds=10)
# The other hooks answer from memory; a new connection and a busy machine take time.
_LEAST: Final = timedelta(seconds=2)

_FAILED: Final = re.compile(r'failed calling webhook "([^"]*)"')
_TIMED_OUT: Final = ("context deadline exceeded", "i/o timeout", "Client.Timeout exceeded")
_POD_SECURITY: Final = "violates PodSecurity"
# Another owner's webhook has side effects: the dry run says nothing of ours.
_NOT_TRIED: Final = "does not support dry run"
# The API server names all violations.
_SHOWN: Final = 120
_POD: Final = re.compile(r'pods "[^"]*" is forbidden: |cannot create pods in namespace [^:]*: ')
# A pod that is replaced has freed its share of the quota by then.
_QUOTA: Final = "exceeded quota"

# As the shipped Deployment writes it, also within other values.
_OWN_NAMESPACE: Final = "$(POD_NAMESPACE)"

_ZONES: Final = "rollout-operator.grafana.com"
_POLICY_GROUP: Final = "rollout.grafana.com"
_KUBERIK: Final = "kuberik.com"
_ADMISSION: Final = "admissionregistration.k8s.io"
_DEFAULT_TRACKER: Final = "rollout-operator-zone-tracker"


def find_value(arguments: Sequence[str], flag: str) -> str | None:
    """Return the value that a flag was given last, None where it was not given.

    A flag that stands alone is `true`.
    """
    last: str | None = None
    for name, value in _list_flags(arguments):
        if name == flag:
            last = value
    return last


def is_on(arguments: Sequence[str], flag: str, *, default: bool) -> bool:
    value = find_value(arguments, flag)
    return default if value is None else value in _TRUE


def _list_flags(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    for place, word in enumerate(arguments):
        if not word.startswith("-"):
            continue
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        following = arguments[place + 1] if place + 1 < len(arguments) else "-"
        if not equals:
            value = "true" if following.startswith("-") else following
        yield name, value


def list_acting(installation: Installation) -> tuple[OperatorDeployment, ...]:
    """Return the Deployments whose operators may act: shadows and those without replicas do not."""
    return tuple(
        operator
        for operator in installation.operators
        if operator.replicas > 0 and find_value(operator.arguments, "mode") != "shadow"
    )


def check_namespace(installation: Installation) -> Iterator[Finding]:
    if installation.namespace_labels is None:
        name = installation.namespace
        yield make_finding(FindingCode.NAMESPACE_MISSING, f"Namespace {name}", "it does not exist")


def check_operator(installation: Installation) -> Iterator[Finding]:
    """Yield that there is no operator, or that it is not ready.

    A process that renews the Lease acts, though it runs in no Deployment that is seen.
    """
    if installation.namespace_labels is None and Source.NAMESPACE not in installation.unread:
        return
    acting = list_acting(installation)
    groups = {f"{member.sts.group}" for member in installation.members}
    # Releases may be those of another controller, and policies have a finding of their own.
    others = (*installation.operators, *installation.policies, *installation.releases.rollouts)
    if not (acting if groups else others) and not installation.has_live_lease:
        text = f"nothing rolls out {join_names(sorted(groups))}" if groups else "there is none"
        where = f"Namespace {installation.namespace}"
        yield make_finding(FindingCode.OPERATOR_MISSING, where, text)
    for operator in acting:
        if not operator.ready:
            text = f"0 of {count(operator.replicas, 'pod')} ready"
            yield make_finding(FindingCode.OPERATOR_NOT_READY, operator.title, text)


def check_count(installation: Installation) -> Iterator[Finding]:
    names = sorted(operator.name for operator in list_acting(installation))
    if len(names) > 1:
        text = f"{join_names(names, shown=len(names))} run an operator of this namespace"
        yield make_finding(FindingCode.TWO_OPERATORS, f"Namespace {installation.namespace}", text)


def check_lease(installation: Installation) -> Iterator[Finding]:
    """Yield that a process elsewhere holds the Lease of the operator that a Deployment here runs.

    Where no Deployment runs one, a process elsewhere may be all that there is to be.
    """
    lease = installation.lease
    if lease is None or not lease.holder or not list_acting(installation):
        return
    # The name of the pod, and what distinguishes its processes.
    pod = lease.holder.rpartition("_")[0]
    if pod not in {pod.name for pod in installation.pods}:
        text = f"its holder {lease.holder} is no pod of the namespace"
        yield make_finding(FindingCode.LEASE_HOLDER_UNKNOWN, f"Lease {lease.name}", text)


def check_arguments(installation: Installation) -> Iterator[Finding]:
    for operator in list_acting(installation):
        watched = _find_flag(operator, _NAMESPACE_FLAGS)
        if watched and _ELSEWHERE not in watched and watched != installation.namespace:
            text = f"-kubernetes.namespace={watched}"
            yield make_finding(FindingCode.OTHER_NAMESPACE_WATCHED, operator.title, text)
        names = find_value(operator.arguments, _NAMES_FLAG)
        if names and not all(part.strip() for part in names.split(",")):
            text = f"-{_NAMES_FLAG}={names}"
            yield make_finding(FindingCode.BUNDLE_NAME_EMPTY, operator.title, text)


def list_arguments(operator: OperatorDeployment) -> tuple[str, ...]:
    """Return the arguments of an operator, after what its environment stands in for."""
    if not any(_list_given(operator)):
        return operator.arguments
    name = _get(operator, _NAME) or DEFAULT_LEASE
    return (f"-{POLICIES_FLAG}=true", f"-{LEASE_FLAG}={name}", *operator.arguments)


def list_watched(operator: OperatorDeployment, own: str) -> tuple[str, ...]:
    """Return the namespaces that an operator watches; its own where that is not known."""
    text = "" if _find_flag(operator, _NAMESPACE_FLAGS) else _get(operator, _WATCHED)
    return tuple(dict.fromkeys(name for name in map(str.strip, text.split(",")) if name)) or (own,)


def watches(operator: OperatorDeployment, namespace: str) -> bool:
    """Return whether the variable of an operator elsewhere names this namespace."""
    text = operator.variables.get(_WATCHED)
    if text is None or _ELSEWHERE in text or _find_flag(operator, _NAMESPACE_FLAGS):
        return False
    return not text.strip() or namespace in list_watched(operator, "")


def check_overruled(installation: Installation) -> Iterator[Finding]:
    """Yield variables that a flag with another value overrules."""
    for deployment in list_acting(installation):
        for variable, flags in (
            (_WATCHED, _NAMESPACE_FLAGS),
            (_LEVEL, (_LEVEL_FLAG,)),
            (_NAME, (LEASE_FLAG,)),
        ):
            text, value = _get(deployment, variable), _find_flag(deployment, flags)
            if text and value and _ELSEWHERE not in value and value.lower() != text.lower():
                said = f"-{flags[0]}={value} counts, and not {variable}={text}"
                yield make_finding(FindingCode.VARIABLE_OVERRULED, deployment.title, said)
        if any(_list_given(deployment)) and not is_on(
            deployment.arguments, POLICIES_FLAG, default=True
        ):
            said = f"-{POLICIES_FLAG}=false counts, and not {', '.join(_list_given(deployment))}"
            yield make_finding(FindingCode.VARIABLE_OVERRULED, deployment.title, said)


def _list_given(operator: OperatorDeployment) -> Iterator[str]:
    """Yield the variables that are set; that of namespaces counts even where it is empty."""
    for name in (_WATCHED, _LEVEL, _NAME, _PORT):
        text = operator.variables.get(name)
        if text is not None and (text.strip() or name == _WATCHED):
            yield name


def _get(operator: OperatorDeployment, name: str) -> str:
    text = operator.variables.get(name, "").strip()
    return "" if _ELSEWHERE in text else text


def _find_flag(operator: OperatorDeployment, flags: Sequence[str]) -> str | None:
    values = (find_value(operator.arguments, flag) for flag in flags)
    return next((value for value in values if value is not None), None)


def check_registered(installation: Installation) -> Iterator[Finding]:
    acting = list_acting(installation)
    serving = [
        operator for operator in acting if is_on(operator.arguments, _TLS_FLAG, default=False)
    ]
    own = installation.own_hooks
    if serving and not own:
        text = f"-{_TLS_FLAG} is on, and no webhook configuration names this namespace"
        yield make_finding(FindingCode.WEBHOOKS_MISSING, serving[0].title, text)
    if own and acting and not serving:
        for hook in own:
            text = f"-{_TLS_FLAG} is not set at {acting[0].title}"
            yield make_finding(FindingCode.WEBHOOKS_NOT_SERVED, hook.configuration, text)


def check_guards(installation: Installation) -> Iterator[Finding]:
    registered = {hook.path for hook in installation.own_hooks}
    for key, path in (
        (NO_DOWNSCALE, NO_DOWNSCALE_PATH),
        (PREPARE_DOWNSCALE, PREPARE_DOWNSCALE_PATH),
    ):
        for sts in installation.sets:
            if is_labelled(sts.sts.labels, key) and path not in registered:
                text = f'label {key}: "true", and no webhook calls {path}'
                yield make_finding(
                    FindingCode.GUARD_WITHOUT_WEBHOOK, f"StatefulSet {sts.sts.name}", text
                )
    if EVICTION_PATH not in registered:
        for budget in installation.zone_budgets:
            text = f"no webhook calls {EVICTION_PATH}: only rollouts obey it"
            name = f"ZoneAwarePodDisruptionBudget {budget.name}"
            yield make_finding(FindingCode.GUARD_WITHOUT_WEBHOOK, name, text)


def check_others(installation: Installation) -> Iterator[Finding]:
    labels = installation.all_labels
    for hook in installation.hooks:
        if not installation.is_own(hook) and hook.selects.takes(labels):
            owner = hook.owner or hook.service_namespace or "(unknown)"
            text = (
                f"webhook {hook.name} of the operator in namespace {owner} selects this namespace"
            )
            yield make_finding(FindingCode.WEBHOOK_OF_OTHERS, hook.configuration, text)


def check_services(installation: Installation) -> Iterator[Finding]:
    services = {service.name: service for service in installation.services}
    for hook in installation.own_hooks:
        if not hook.service or hook.service_namespace != installation.namespace:
            continue
        service = services.get(hook.service)
        name, of = hook.configuration, f"Service {hook.service}"
        if service is None:
            yield make_finding(FindingCode.WEBHOOK_SERVICE_MISSING, name, f"{of} does not exist")
        elif hook.port not in service.ports:
            text = f"{of} has no port {hook.port}"
            yield make_finding(FindingCode.WEBHOOK_PORT_MISSING, name, text)
        elif service.has_endpoints and not installation.ready_endpoints.get(hook.service):
            text = f"{of} has no ready endpoint"
            yield make_finding(FindingCode.WEBHOOK_WITHOUT_ENDPOINTS, name, text)


def check_bundles(installation: Installation) -> Iterator[Finding]:
    for hook in installation.own_hooks:
        facts, name = hook.bundle, hook.configuration
        if facts is None:
            yield make_finding(
                FindingCode.WEBHOOK_CA_MISSING, name, f"webhook {hook.name} has no caBundle"
            )
        elif facts.problem:
            yield make_finding(FindingCode.WEBHOOK_CA_BROKEN, name, facts.problem)
        elif facts.ends is not None and facts.ends <= installation.now:
            text = f"it ended at {format_rfc3339(facts.ends)}"
            yield make_finding(FindingCode.WEBHOOK_CA_EXPIRED, name, text)
        elif facts.vouches is False:
            text = "the certificate in the operator's Secret is of another CA"
            yield make_finding(FindingCode.WEBHOOK_CA_DIFFERS, name, text)


def check_policies(installation: Installation) -> Iterator[Finding]:
    for hook in installation.own_hooks:
        if hook.failure_policy != "Fail":
            text = f"webhook {hook.name} has failurePolicy {hook.failure_policy}"
            yield make_finding(FindingCode.WEBHOOK_IGNORES_FAILURE, hook.configuration, text)


def check_timeouts(installation: Installation) -> Iterator[Finding]:
    served = _read_span(installation, "server-tls.request-timeout", _DEFAULT_REQUEST_TIMEOUT)
    for hook in installation.own_hooks:
        least = _LEAST
        if hook.path == PREPARE_DOWNSCALE_PATH:
            # A pod that answers at its last moment is answered for as well.
            timeout = _read_span(installation, "pods.client-timeout", _DEFAULT_POD_TIMEOUT)
            least = timeout + timedelta(seconds=1)
        if min(hook.timeout, served) < least:
            seconds = f"{hook.timeout.total_seconds():.0f}"
            text = (
                f"timeoutSeconds {seconds}, -server-tls.request-timeout {format_duration(served)}:"
                f" less than {format_duration(least)}"
            )
            yield make_finding(FindingCode.WEBHOOK_TIMEOUT_SHORT, hook.configuration, text)


def _read_span(installation: Installation, flag: str, default: timedelta) -> timedelta:
    """Return the value of a duration flag; an invalid one stops the operator anyway."""
    texts = [find_value(operator.arguments, flag) for operator in list_acting(installation)]
    try:
        return parse_duration(next(filter(None, texts), format_duration(default)))
    except InvalidInput:
        return default


def check_reach(installation: Installation) -> Iterator[Finding]:
    for answer in installation.reach:
        yield from _judge(answer)


def _judge(answer: ReachAnswer) -> Iterator[Finding]:
    if not answer.is_answered:
        yield make_finding(FindingCode.WEBHOOK_TIMED_OUT, answer.request, answer.error)
        return
    failed = _FAILED.search(answer.error)
    if failed is not None:
        is_late = any(arguments in answer.error for arguments in _TIMED_OUT)
        code = FindingCode.WEBHOOK_TIMED_OUT if is_late else FindingCode.WEBHOOK_UNREACHABLE
        yield make_finding(code, f"webhook {failed[1]}", answer.error)
    # Any other refusal, such as by the schema of another release, says nothing of ours.
    elif answer.must_be_refused and not answer.error:
        text = f"no webhook refused to {answer.request}: it was accepted"
        yield make_finding(FindingCode.WEBHOOK_NOT_CALLED, " ".join(answer.paths), text)


def check_pods(installation: Installation) -> Iterator[Finding]:
    """Yield StatefulSets whose next pod the API server would refuse; those alike together."""
    alike: dict[tuple[FindingCode, str], list[str]] = {}
    for trial in installation.pod_trials:
        if trial.error and not any(arguments in trial.error for arguments in (_QUOTA, _NOT_TRIED)):
            alike.setdefault(_judge_refusal(trial.error), []).append(trial.set_name)
    for (code, text), (first, *others) in alike.items():
        more = f"; the same for {join_names(others)}" if others else ""
        yield make_finding(code, f"StatefulSet {first}", f"{text}{more}")


def _judge_refusal(error: str) -> tuple[FindingCode, str]:
    """Return the part of a refusal that does not name the pod."""
    _, security, violations = error.partition(_POD_SECURITY)
    if security:
        cut = "..." if len(violations) > _SHOWN else ""
        return FindingCode.POD_SECURITY_VIOLATED, f"{security}{violations[:_SHOWN]}{cut}"
    return FindingCode.POD_REFUSED, _POD.sub("", error)


class RightNeeds(NamedTuple):
    """For what no flag says whether a right is needed."""

    nodes: bool = False
    """Whether zones of MultiAZRollouts follow from nothing but nodes."""
    secrets: bool = False
    """Whether an image repository names a Secret."""
    cluster: bool = False
    """Whether a schedule is of the cluster, or HealthChecks of other namespaces are selected."""
    inventory: bool = False
    """Whether a HealthCheck looks at a Kustomization."""


_NO_NEEDS: Final = RightNeeds()


def list_rights(
    arguments: Sequence[str], namespace: str, needs: RightNeeds = _NO_NEEDS
) -> tuple[Right, ...]:
    """Return what an operator with these arguments has to be allowed to do."""
    arguments = [word.replace(_OWN_NAMESPACE, namespace) for word in arguments]
    rights = [*_BASE, *_REPORTS]
    if is_on(arguments, "leader-election.enabled", default=True):
        rights += _lease_rights(find_value(arguments, LEASE_FLAG) or DEFAULT_LEASE)
    if is_on(arguments, _TLS_FLAG, default=False):
        rights += _list_webhook_rights(arguments)
    if is_on(arguments, "use-zone-tracker", default=False):
        name = find_value(arguments, "zone-tracker.config-map-name") or _DEFAULT_TRACKER
        purpose = "times of downscales are not recorded, and downscales are refused"
        rights += [
            Right(verb="create", group="", resource="configmaps", purpose=purpose),
            *_of("get patch", "", "configmaps", purpose, name),
        ]
    if is_on(arguments, POLICIES_FLAG, default=False):
        rights += [*_POLICIES, *(_NODES if needs.nodes else ())]
    else:
        rights += _UNOBEYED
    if is_on(arguments, RELEASES_FLAG, default=False):
        reads_secrets = needs.secrets and find_value(arguments, _METADATA_FLAG) != "none"
        rights += [
            *_RELEASES,
            *(_PULL_SECRETS if reads_secrets else ()),
            *(_WIDE_RELEASES if needs.cluster else ()),
            *(_INVENTORY if needs.inventory else ()),
        ]
    return tuple(rights)


def check_rights(installation: Installation) -> Iterator[Finding]:
    yield from _list_missing(right for right in installation.rights if right.right.is_namespaced)


def check_cluster_rights(installation: Installation) -> Iterator[Finding]:
    yield from _list_missing(
        right for right in installation.rights if not right.right.is_namespaced
    )


def _list_missing(answers: Iterable[RightAnswer]) -> Iterator[Finding]:
    missing: dict[tuple[str, str, str, bool], dict[str, list[str]]] = {}
    for answer in answers:
        right = answer.right
        if not answer.is_granted:
            key = answer.account, answer.namespace, right.purpose, right.is_optional
            verbs = missing.setdefault(key, {}).setdefault(_render_object(right), [])
            verbs.append(right.verb)
    for (account, namespace, purpose, is_optional), objects in missing.items():
        code = FindingCode.OPTIONAL_RIGHT_MISSING if is_optional else FindingCode.RIGHT_MISSING
        rights = "; ".join(f"{join_names(verbs)} {what}" for what, verbs in objects.items())
        where = f" in namespace {namespace}" if namespace else ""
        yield make_finding(
            code, f"ServiceAccount {account}", f"it may not {rights}{where}: {purpose}"
        )


def _render_object(right: Right) -> str:
    """Return the object of a right, as a rule of a Role names it."""
    resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
    named = f' "{right.name}"' if right.name else ""
    group = f' in API group "{right.group}"' if right.group else ""
    return f"{resource}{named}{group}"


def _of(verbs: str, group: str, resource: str, purpose: str, name: str = "") -> list[Right]:
    resource, _, subresource = resource.partition("/")
    return [
        Right(
            verb=verb,
            group=group,
            resource=resource,
            subresource=subresource,
            name=name,
            purpose=purpose,
            is_namespaced=group != _ADMISSION and resource != "nodes",
        )
        for verb in verbs.split()
    ]


def _optional(rights: Iterable[Right]) -> list[Right]:
    return [replace(right, is_optional=True) for right in rights]


_FROM_MEMORY: Final = (
    "evictions are granted from memory: only one operator may run, and it refuses them for its"
    " first twelve seconds"
)
_BASE: Final = (
    *_of("list watch", "", "pods", "the operator does not become ready"),
    *_of("get delete", "", "pods", "no pod is replaced"),
    *_optional(_of("patch", "", "pods", _FROM_MEMORY)),
    *_of("list watch", "apps", "statefulsets", "the operator does not become ready"),
    *_of("get", "apps", "statefulsets", "finished rollouts are not recorded"),
    *_of("update", "apps", "statefulsets/status", "finished rollouts are not recorded"),
    *_of("list watch", _ZONES, "zoneawarepoddisruptionbudgets", "budgets are not known"),
)


_REPORTS: Final = _optional(
    [
        *_of(
            "create patch",
            "events.k8s.io",
            "events",
            "`kubectl describe` does not show what is done",
        ),
        *_of(
            "patch",
            _ZONES,
            "zoneawarepoddisruptionbudgets/status",
            "`kubectl get zpdb` does not show how many pods may go",
        ),
    ]
)


_POLICIES: Final = (
    *_of("list watch get", _POLICY_GROUP, "multiazrollouts", "no MultiAZRollout is obeyed"),
    *_of(
        "patch",
        _POLICY_GROUP,
        "multiazrollouts/status",
        "no batch of a MultiAZRollout is recorded, and none begins",
    ),
    *_optional(
        _of("patch", "apps", "statefulsets", "`manageUpdateStrategy` does not set `OnDelete`")
    ),
)
_UNOBEYED: Final = _optional(
    _of("list", _POLICY_GROUP, "multiazrollouts", "MultiAZRollouts are ignored without a warning")
)
_NODES: Final = tuple(
    _optional(_of("list watch", "", "nodes", "zones that only nodes know are taken from names"))
)


_NO_RELEASE: Final = "no Rollout is made to happen"
_NO_SCHEDULE: Final = "schedules of releases keep no gates"
_NO_HEALTH: Final = "HealthChecks are not evaluated, and bakes wait for them"
_NO_VERSION: Final = "no version is announced"
_NO_TAG: Final = "no version is deployed"
_RELEASES: Final = (
    *_of("list watch get patch", _KUBERIK, "rollouts", _NO_RELEASE),
    *_of("patch", _KUBERIK, "rollouts/status", _NO_RELEASE),
    *_of("list watch", _KUBERIK, "rolloutgates", _NO_RELEASE),
    *_of("create patch delete", _KUBERIK, "rolloutgates", _NO_SCHEDULE),
    *_of("list watch get", _KUBERIK, "rolloutschedules", _NO_SCHEDULE),
    *_of("patch", _KUBERIK, "rolloutschedules/status", _NO_SCHEDULE),
    *_of("update", _KUBERIK, "rolloutschedules/finalizers", _NO_SCHEDULE),
    *_of("list watch get", _KUBERIK, "healthchecks", _NO_HEALTH),
    *_of("patch", _KUBERIK, "healthchecks/status", _NO_HEALTH),
    *_of("list watch", "image.toolkit.fluxcd.io", "imagepolicies", _NO_VERSION),
    *_of("list watch", "image.toolkit.fluxcd.io", "imagerepositories", _NO_VERSION),
    *_of("list watch get patch", "source.toolkit.fluxcd.io", "ocirepositories", _NO_TAG),
    *_of("list watch get patch", "kustomize.toolkit.fluxcd.io", "kustomizations", _NO_TAG),
)
_PULL_SECRETS: Final = tuple(
    _optional(_of("get", "", "secrets", "registries are called without their pull secret"))
)
_NO_CLUSTER: Final = "schedules of the cluster, and HealthChecks of other namespaces, do not count"
_WIDE_RELEASES: Final = tuple(
    replace(right, is_namespaced=False)
    for right in (
        *_of("list watch get", _KUBERIK, "clusterrolloutschedules", _NO_CLUSTER),
        *_of("patch", _KUBERIK, "clusterrolloutschedules/status", _NO_CLUSTER),
        *_of("update", _KUBERIK, "clusterrolloutschedules/finalizers", _NO_CLUSTER),
        *_of("list watch", _KUBERIK, "rollouts", _NO_CLUSTER),
        *_of("list watch create patch delete", _KUBERIK, "rolloutgates", _NO_CLUSTER),
        *_of("list watch get", _KUBERIK, "healthchecks", _NO_CLUSTER),
        *_of("patch", _KUBERIK, "healthchecks/status", _NO_CLUSTER),
        *_of("list watch", "", "namespaces", _NO_CLUSTER),
        *_optional(
            _of("create patch", "events.k8s.io", "events", "`kubectl describe` shows no Events")
        ),
    )
)


_UNKNOWN: Final = "bakes wait for such objects where a Kustomization applies them in any namespace"
_INVENTORY: Final = tuple(
    replace(right, is_namespaced=False, is_optional=True)
    for group, kinds in (
        ("", "persistentvolumeclaims pods services"),
        ("apps", "daemonsets deployments replicasets statefulsets"),
        ("batch", "jobs"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("kustomize.toolkit.fluxcd.io", "kustomizations"),
    )
    for kind in kinds.split()
    for right in _of("get", group, kind, _UNKNOWN)
)


def _lease_rights(name: str) -> list[Right]:
    purpose = "one operator acts without an election, and a second operator would act beside it"
    lease = _of("get patch", "coordination.k8s.io", "leases", purpose, name)
    lease += _of("create", "coordination.k8s.io", "leases", purpose)
    return [replace(right, is_of_process=True) for right in _optional(lease)]


def _list_webhook_rights(arguments: Sequence[str]) -> list[Right]:
    rights = _of("patch", "apps", "statefulsets", "the time of a downscale is not recorded")
    if is_on(arguments, SELF_SIGNED_FLAG, default=True):
        secret = find_value(arguments, SECRET_FLAG) or DEFAULT_SECRET
        certificate = _of("get update", "", "secrets", "there is no certificate to serve", secret)
        rights += [replace(right, is_of_process=True) for right in certificate]
    writes_bundles = is_on(arguments, "webhooks.update-ca-bundle", default=True)
    verbs = "list watch patch" if writes_bundles else "list watch"
    purpose = "the CA does not reach the webhook configurations"
    # Where the flag names them, so may the ClusterRole; each is looked for among both kinds.
    names = (find_value(arguments, _NAMES_FLAG) or "").split(",")
    for kind in ("validating", "mutating"):
        for name in names:
            rights += _of(verbs, _ADMISSION, f"{kind}webhookconfigurations", purpose, name.strip())
    return rights
