"""Installations with one thing wrong about the operator, its rights or its webhooks."""

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from rollout_operator.model.diagnosis import (
    ADMISSION_PATHS,
    BUDGET_PATH,
    EVICTION_PATH,
    NO_DOWNSCALE_PATH,
    PREPARE_DOWNSCALE_PATH,
    BundleFacts,
    CallableService,
    FindingCode,
    HeldLease,
    Installation,
)
from rollout_operator.model.names import NO_DOWNSCALE
from rollout_operator.model.objects import LabelSelector
from tests.planning.diagnosis.installations import (
    GOOD_BUNDLE,
    NAMESPACE,
    NOW,
    OPERATOR,
    WORDS,
    Case,
    good,
    hook,
    reach,
    zone_set,
)

FAILED: Final = (
    'cannot patch x: 500 InternalError: Internal error occurred: failed calling webhook "{hook}":'
    ' failed to call webhook: Post "https://x/admission/y?timeout=10s": {why}'
)


def _without_right(purpose: str) -> Installation:
    rights = [replace(one, is_granted=purpose not in one.right.purpose) for one in good().rights]
    return good(rights=tuple(rights))


def _hooks(path: str, **changes: object) -> Installation:
    hooks = [hook(one, **(changes if one == path else {})) for one in ADMISSION_PATHS]
    return good(hooks=tuple(hooks))


def _operator(*arguments: str, **changes: object) -> Installation:
    return good(operators=(replace(OPERATOR, arguments=(*WORDS, *arguments), **changes),))


SPOILT_OPERATORS: Final = (
    Case(
        "no such namespace",
        Installation(namespace=NAMESPACE, now=NOW),
        FindingCode.NAMESPACE_MISSING,
        "Namespace prod",
        "does not exist",
    ),
    Case(
        "no operator",
        good(operators=(), rights=(), hooks=(), zone_budgets=(), sets=good().sets[:1] * 2),
        FindingCode.OPERATOR_MISSING,
        "Namespace prod",
        "nothing rolls out ingester",
    ),
    Case(
        "nothing at all, as in the wrong namespace",
        Installation(namespace=NAMESPACE, now=NOW, namespace_labels={}),
        FindingCode.OPERATOR_MISSING,
        "Namespace prod",
        "there is none",
    ),
    Case(
        "not ready",
        _operator(ready=0, replicas=2),
        FindingCode.OPERATOR_NOT_READY,
        "Deployment rollout-operator",
        "0 of 2 pods ready",
    ),
    Case(
        "D21 two operators",
        good(operators=(OPERATOR, replace(OPERATOR, name="grafana"))),
        FindingCode.TWO_OPERATORS,
        "Namespace prod",
        "grafana and rollout-operator",
    ),
    Case(
        "a Lease held from elsewhere",
        good(lease=HeldLease(name="rollout-operator", holder="laptop_1")),
        FindingCode.LEASE_HOLDER_UNKNOWN,
        "Lease rollout-operator",
        "laptop_1",
    ),
    Case(
        "another namespace",
        _operator("--kubernetes.namespace", "other"),
        FindingCode.OTHER_NAMESPACE_WATCHED,
        "Deployment rollout-operator",
        "other",
    ),
    Case(
        "an empty name",
        _operator("-webhooks.ca-bundle-names=a,,b"),
        FindingCode.BUNDLE_NAME_EMPTY,
        "Deployment rollout-operator",
        "a,,b",
    ),
    Case(
        "D20 a right in the namespace",
        _without_right("no pod is replaced"),
        FindingCode.RIGHT_MISSING,
        "ServiceAccount rollout-operator",
        "may not get and delete pods: no pod is replaced",
    ),
    Case(
        "a right that is not needed",
        _without_right("describe"),
        FindingCode.OPTIONAL_RIGHT_MISSING,
        "ServiceAccount rollout-operator",
        'create and patch events in API group "events.k8s.io"',
    ),
    Case(
        "a right in the cluster",
        _without_right("does not reach"),
        FindingCode.RIGHT_MISSING,
        "ServiceAccount rollout-operator",
        "list, watch and patch mutatingwebhookconfigurations in API group",
    ),
    Case(
        "no webhooks",
        good(hooks=(), zone_budgets=(), sets=(zone_set("a"), zone_set("b"))),
        FindingCode.WEBHOOKS_MISSING,
        "Deployment rollout-operator",
        "no webhook configuration names this namespace",
    ),
    Case(
        "webhooks without a server",
        _operator("-server-tls.enabled=false"),
        FindingCode.WEBHOOKS_NOT_SERVED,
        f"ValidatingWebhookConfiguration no-downscale-{NAMESPACE}",
        "-server-tls.enabled is not set",
    ),
    Case(
        "webhooks of another operator",
        good(
            hooks=(
                *good().hooks,
                hook(
                    EVICTION_PATH, owner="other", service_namespace="other", selects=LabelSelector()
                ),
            )
        ),
        FindingCode.WEBHOOK_OF_OTHERS,
        f"ValidatingWebhookConfiguration pod-eviction-{NAMESPACE}",
        "namespace other",
    ),
    Case(
        "no Service",
        good(services=()),
        FindingCode.WEBHOOK_SERVICE_MISSING,
        f"ValidatingWebhookConfiguration no-downscale-{NAMESPACE}",
        "Service rollout-operator does not exist",
    ),
    Case(
        "no port",
        good(services=(CallableService(name="rollout-operator", ports=(8001,)),)),
        FindingCode.WEBHOOK_PORT_MISSING,
        f"ValidatingWebhookConfiguration no-downscale-{NAMESPACE}",
        "no port 443",
    ),
    Case(
        "no endpoints",
        good(ready_endpoints={"rollout-operator": 0}),
        FindingCode.WEBHOOK_WITHOUT_ENDPOINTS,
        f"ValidatingWebhookConfiguration no-downscale-{NAMESPACE}",
        "no ready endpoint",
    ),
    Case(
        "no CA",
        _hooks(BUDGET_PATH, bundle=None),
        FindingCode.WEBHOOK_CA_MISSING,
        f"ValidatingWebhookConfiguration zpdb-validation-{NAMESPACE}",
        "has no caBundle",
    ),
    Case(
        "a CA that is none",
        _hooks(BUDGET_PATH, bundle=BundleFacts(problem="caBundle: not base64")),
        FindingCode.WEBHOOK_CA_BROKEN,
        f"ValidatingWebhookConfiguration zpdb-validation-{NAMESPACE}",
        "not base64",
    ),
    Case(
        "an old CA",
        _hooks(BUDGET_PATH, bundle=replace(GOOD_BUNDLE, ends=NOW)),
        FindingCode.WEBHOOK_CA_EXPIRED,
        f"ValidatingWebhookConfiguration zpdb-validation-{NAMESPACE}",
        "2026-01-01T12:00:00Z",
    ),
    Case(
        "another CA",
        _hooks(BUDGET_PATH, bundle=replace(GOOD_BUNDLE, vouches=False)),
        FindingCode.WEBHOOK_CA_DIFFERS,
        f"ValidatingWebhookConfiguration zpdb-validation-{NAMESPACE}",
        "of another CA",
    ),
    Case(
        "policy Ignore",
        _hooks(EVICTION_PATH, failure_policy="Ignore"),
        FindingCode.WEBHOOK_IGNORES_FAILURE,
        f"ValidatingWebhookConfiguration pod-eviction-{NAMESPACE}",
        "Ignore",
    ),
    Case(
        "little time for pods",
        _hooks(PREPARE_DOWNSCALE_PATH, timeout=timedelta(seconds=5)),
        FindingCode.WEBHOOK_TIMEOUT_SHORT,
        f"MutatingWebhookConfiguration prepare-downscale-{NAMESPACE}",
        "timeoutSeconds 5, -server-tls.request-timeout 10s: less than 6s",
    ),
    Case(
        "pods that may take longer than a request",
        _operator("-pods.client-timeout=20s"),
        FindingCode.WEBHOOK_TIMEOUT_SHORT,
        f"MutatingWebhookConfiguration prepare-downscale-{NAMESPACE}",
        "less than 21s",
    ),
    Case(
        "little time for any",
        _hooks(EVICTION_PATH, timeout=timedelta(seconds=1)),
        FindingCode.WEBHOOK_TIMEOUT_SHORT,
        f"ValidatingWebhookConfiguration pod-eviction-{NAMESPACE}",
        "timeoutSeconds 1, -server-tls.request-timeout 10s: less than 2s",
    ),
    Case(
        "a label without its webhook",
        good(
            hooks=tuple(hook(path) for path in ADMISSION_PATHS if path != NO_DOWNSCALE_PATH),
            sets=(zone_set("a"), zone_set("b", labels={NO_DOWNSCALE: "true"})),
        ),
        FindingCode.GUARD_WITHOUT_WEBHOOK,
        "StatefulSet b",
        NO_DOWNSCALE_PATH,
    ),
    Case(
        "a budget without its webhook",
        good(hooks=tuple(hook(path) for path in ADMISSION_PATHS if path != EVICTION_PATH)),
        FindingCode.GUARD_WITHOUT_WEBHOOK,
        "ZoneAwarePodDisruptionBudget zones",
        EVICTION_PATH,
    ),
    Case(
        "DEP-88 a time-out",
        reach(FAILED.format(hook="no-downscale", why="context deadline exceeded")),
        FindingCode.WEBHOOK_TIMED_OUT,
        "webhook no-downscale",
        "deadline",
    ),
    Case(
        "DEP-88 no answer at all",
        reach("no answer", is_answered=False),
        FindingCode.WEBHOOK_TIMED_OUT,
        "scale zone-a",
        "no answer",
    ),
    Case(
        "no process listens",
        reach(FAILED.format(hook="no-downscale", why="dial tcp: connection refused")),
        FindingCode.WEBHOOK_UNREACHABLE,
        "webhook no-downscale",
        "refused",
    ),
    Case(
        "accepted although it must not be",
        reach("", must_be_refused=True),
        FindingCode.WEBHOOK_NOT_CALLED,
        NO_DOWNSCALE_PATH,
        "no webhook refused to scale zone-a: it was accepted",
    ),
)
