"""Whether webhooks are registered as the operator needs them, and the API server reaches them.

What the answers to dry runs say is judged here, of webhooks and of pods that are to come. The API
server has no words for machines here: the sentence alone says which of its steps failed.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from rollout_operator.model.diagnosis.findings import Finding, FindingCode
from rollout_operator.model.diagnosis.installation import (
    EVICTION_PATH,
    NO_DOWNSCALE_PATH,
    PREPARE_DOWNSCALE_PATH,
    HookRegistration,
    Installation,
    ReachAnswer,
)
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import NO_DOWNSCALE, PREPARE_DOWNSCALE
from rollout_operator.model.units import format_duration, format_rfc3339, parse_duration
from rollout_operator.planning.diagnosis.operators import TLS_FLAG, find_value, is_on, list_acting
from rollout_operator.planning.diagnosis.remedies import make_finding
from rollout_operator.planning.downscales.request import is_labelled
from rollout_operator.planning.wording import join_names

_DEFAULT_POD_TIMEOUT: Final = timedelta(seconds=5)
_DEFAULT_REQUEST_TIMEOUT: Final = timedelta(seconds=10)
# The other hooks answer out of memory; a new connection and a busy machine take some of it.
_LEAST: Final = timedelta(seconds=2)

_FAILED: Final = re.compile(r'failed calling webhook "([^"]*)"')
_TIMED_OUT: Final = ("context deadline exceeded", "i/o timeout", "Client.Timeout exceeded")
_POD_SECURITY: Final = "violates PodSecurity"
# A webhook of another owner that has side effects: nothing is learnt of ours.
_NOT_TRIED: Final = "does not support dry run"
# Of the violations, of which the API server names all; answers are cut themselves.
_SHOWN: Final = 120
_POD: Final = re.compile(r'pods "[^"]*" is forbidden: |cannot create pods in namespace [^:]*: ')
# More pods than the quota has room for: those that are replaced have left theirs by then.
_QUOTA: Final = "exceeded quota"


def check_registered(installation: Installation) -> Iterator[Finding]:
    """Yield that webhooks are served and not registered, or the other way round."""
    acting = list_acting(installation)
    serving = [
        operator for operator in acting if is_on(operator.arguments, TLS_FLAG, default=False)
    ]
    own = installation.own_hooks
    if serving and not own:
        text = f"-{TLS_FLAG} is on, and no webhook configuration names this namespace"
        yield make_finding(FindingCode.WEBHOOKS_MISSING, serving[0].title, text)
    if own and acting and not serving:
        for hook in own:
            text = f"-{TLS_FLAG} is not set at {acting[0].title}"
            yield make_finding(FindingCode.WEBHOOKS_NOT_SERVED, _name(hook), text)


def check_guards(installation: Installation) -> Iterator[Finding]:
    """Yield what needs a webhook that is not registered."""
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
    """Yield webhooks of other operators that the API server calls for this namespace."""
    labels = installation.all_labels
    for hook in installation.hooks:
        if not installation.is_own(hook) and hook.selects.takes(labels):
            owner = hook.owner or hook.service_namespace or "(unknown)"
            text = (
                f"webhook {hook.name} of the operator in namespace {owner} selects this namespace"
            )
            yield make_finding(FindingCode.WEBHOOK_OF_OTHERS, _name(hook), text)


def check_services(installation: Installation) -> Iterator[Finding]:
    """Yield webhooks whose Service is not there, lacks the port, or leads nowhere."""
    services = {service.name: service for service in installation.services}
    for hook in installation.own_hooks:
        if not hook.service or hook.service_namespace != installation.namespace:
            continue
        service = services.get(hook.service)
        name, of = _name(hook), f"Service {hook.service}"
        if service is None:
            yield make_finding(FindingCode.WEBHOOK_SERVICE_MISSING, name, f"{of} does not exist")
        elif hook.port not in service.ports:
            text = f"{of} has no port {hook.port}"
            yield make_finding(FindingCode.WEBHOOK_PORT_MISSING, name, text)
        elif service.has_endpoints and not installation.ready_endpoints.get(hook.service):
            text = f"{of} has no ready endpoint"
            yield make_finding(FindingCode.WEBHOOK_WITHOUT_ENDPOINTS, name, text)


def check_bundles(installation: Installation) -> Iterator[Finding]:
    """Yield webhooks that the API server cannot trust."""
    for hook in installation.own_hooks:
        facts, name = hook.bundle, _name(hook)
        if facts is None:
            yield make_finding(
                FindingCode.WEBHOOK_CA_MISSING, name, f"webhook {hook.name} has none"
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
    """Yield webhooks that a failing call switches off."""
    for hook in installation.own_hooks:
        if hook.failure_policy != "Fail":
            text = f"webhook {hook.name} has failurePolicy {hook.failure_policy}"
            yield make_finding(FindingCode.WEBHOOK_IGNORES_FAILURE, _name(hook), text)


def check_timeouts(installation: Installation) -> Iterator[Finding]:
    """Yield webhooks that the API server does not wait long enough for."""
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
            yield make_finding(FindingCode.WEBHOOK_TIMEOUT_SHORT, _name(hook), text)


def _read_span(installation: Installation, flag: str, default: timedelta) -> timedelta:
    """Return the duration that a flag of the operator has; what is none stops it anyway."""
    texts = [find_value(operator.arguments, flag) for operator in list_acting(installation)]
    try:
        return parse_duration(next(filter(None, texts), format_duration(default)))
    except InvalidInput:
        return default


def _name(hook: HookRegistration) -> str:
    return hook.configuration


def check_reach(installation: Installation) -> Iterator[Finding]:
    """Yield webhooks that the API server does not reach, or does not call."""
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
    # Whatever else refused it, such as the schema of another release, says nothing of ours.
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
    """Return what is the same for all pods of a kind: their names come before it."""
    _, security, violations = error.partition(_POD_SECURITY)
    if security:
        cut = "..." if len(violations) > _SHOWN else ""
        return FindingCode.POD_SECURITY_VIOLATED, f"{security}{violations[:_SHOWN]}{cut}"
    return FindingCode.POD_REFUSED, _POD.sub("", error)
