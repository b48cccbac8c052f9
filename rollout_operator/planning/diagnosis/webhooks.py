"""Whether webhooks are registered as the operator needs them: Service, CA, policy, time.

Whether the API server reaches them is judged in `reachability`, by what it answers.
"""

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
)
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import NO_DOWNSCALE, PREPARE_DOWNSCALE
from rollout_operator.model.units import format_duration, format_rfc3339, parse_duration
from rollout_operator.planning.diagnosis.arguments import find_value, is_on
from rollout_operator.planning.diagnosis.operators import list_acting
from rollout_operator.planning.diagnosis.remedies import find
from rollout_operator.planning.diagnosis.rights import TLS_FLAG
from rollout_operator.planning.downscales.request import is_labelled

_DEFAULT_POD_TIMEOUT: Final = timedelta(seconds=5)
_DEFAULT_REQUEST_TIMEOUT: Final = timedelta(seconds=10)
# The other hooks answer out of memory; a new connection and a busy machine take some of it.
_LEAST: Final = timedelta(seconds=2)


def check_registered(installation: Installation) -> Iterator[Finding]:
    """Yield that webhooks are served and not registered, or the other way round."""
    acting = list_acting(installation)
    serving = [
        operator for operator in acting if is_on(operator.arguments, TLS_FLAG, default=False)
    ]
    own = installation.own_hooks
    if serving and not own:
        text = f"-{TLS_FLAG} is on, and no webhook configuration names this namespace"
        yield find(FindingCode.WEBHOOKS_MISSING, serving[0].title, text)
    if own and acting and not serving:
        for hook in own:
            text = f"-{TLS_FLAG} is not set at {acting[0].title}"
            yield find(FindingCode.WEBHOOKS_NOT_SERVED, _name(hook), text)


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
                yield find(FindingCode.GUARD_WITHOUT_WEBHOOK, f"StatefulSet {sts.sts.name}", text)
    if EVICTION_PATH not in registered:
        for budget in installation.zone_budgets:
            text = f"no webhook calls {EVICTION_PATH}: only rollouts obey it"
            name = f"ZoneAwarePodDisruptionBudget {budget.name}"
            yield find(FindingCode.GUARD_WITHOUT_WEBHOOK, name, text)


def check_others(installation: Installation) -> Iterator[Finding]:
    """Yield webhooks of other operators that the API server calls for this namespace."""
    labels = installation.all_labels
    for hook in installation.hooks:
        if not installation.is_own(hook) and hook.selects.takes(labels):
            owner = hook.owner or hook.service_namespace or "(unknown)"
            text = (
                f"webhook {hook.name} of the operator in namespace {owner} selects this namespace"
            )
            yield find(FindingCode.WEBHOOK_OF_OTHERS, _name(hook), text)


def check_services(installation: Installation) -> Iterator[Finding]:
    """Yield webhooks whose Service is not there, lacks the port, or leads nowhere."""
    services = {service.name: service for service in installation.services}
    for hook in installation.own_hooks:
        if not hook.service or hook.service_namespace != installation.namespace:
            continue
        service = services.get(hook.service)
        name, of = _name(hook), f"Service {hook.service}"
        if service is None:
            yield find(FindingCode.WEBHOOK_SERVICE_MISSING, name, f"{of} does not exist")
        elif hook.port not in service.ports:
            text = f"{of} has no port {hook.port}"
            yield find(FindingCode.WEBHOOK_PORT_MISSING, name, text)
        elif service.has_endpoints and not installation.ready_endpoints.get(hook.service):
            text = f"{of} has no ready endpoint"
            yield find(FindingCode.WEBHOOK_WITHOUT_ENDPOINTS, name, text)


def check_bundles(installation: Installation) -> Iterator[Finding]:
    """Yield webhooks that the API server cannot trust."""
    for hook in installation.own_hooks:
        facts, name = hook.bundle, _name(hook)
        if facts is None:
            yield find(FindingCode.WEBHOOK_CA_MISSING, name, f"webhook {hook.name} has none")
        elif facts.problem:
            yield find(FindingCode.WEBHOOK_CA_BROKEN, name, facts.problem)
        elif facts.ends is not None and facts.ends <= installation.now:
            text = f"it ended at {format_rfc3339(facts.ends)}"
            yield find(FindingCode.WEBHOOK_CA_EXPIRED, name, text)
        elif facts.vouches is False:
            text = "the certificate in the operator's Secret is of another CA"
            yield find(FindingCode.WEBHOOK_CA_DIFFERS, name, text)


def check_policies(installation: Installation) -> Iterator[Finding]:
    """Yield webhooks that a failing call switches off."""
    for hook in installation.own_hooks:
        if hook.failure_policy != "Fail":
            text = f"webhook {hook.name} has failurePolicy {hook.failure_policy}"
            yield find(FindingCode.WEBHOOK_IGNORES_FAILURE, _name(hook), text)


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
            yield find(FindingCode.WEBHOOK_TIMEOUT_SHORT, _name(hook), text)


def _read_span(installation: Installation, flag: str, default: timedelta) -> timedelta:
    """Return the duration that a flag of the operator has; what is none stops it anyway."""
    texts = [find_value(operator.arguments, flag) for operator in list_acting(installation)]
    try:
        return parse_duration(next(filter(None, texts), format_duration(default)))
    except InvalidInput:
        return default


def _name(hook: HookRegistration) -> str:
    return hook.configuration
