"""What `rollout-operator doctor` finds: frozen data that the command renders and never words.

Which findings follow from what was read is decided in `planning.diagnosis`; what each code means,
and what to do about it, stands in `planning.diagnosis.remedies` and in `docs/doctor.md`.
"""

from enum import StrEnum, unique

import msgspec

from rollout_operator.model.outcome import Severity


@unique
class FindingCode(StrEnum):
    """What can be wrong with an installation. Scripts compare these: never renamed."""

    # the namespace and its operator
    NAMESPACE_MISSING = "namespace_missing"
    OPERATOR_MISSING = "operator_missing"
    OPERATOR_NOT_READY = "operator_not_ready"
    TWO_OPERATORS = "two_operators"
    LEASE_HOLDER_UNKNOWN = "lease_holder_unknown"
    OTHER_NAMESPACE_WATCHED = "other_namespace_watched"
    BUNDLE_NAME_EMPTY = "bundle_name_empty"
    VARIABLE_OVERRULED = "variable_overruled"
    RIGHT_MISSING = "right_missing"
    OPTIONAL_RIGHT_MISSING = "optional_right_missing"
    # webhooks as they are registered
    WEBHOOKS_MISSING = "webhooks_missing"
    WEBHOOKS_NOT_SERVED = "webhooks_not_served"
    WEBHOOK_OF_OTHERS = "webhook_of_others"
    WEBHOOK_SERVICE_MISSING = "webhook_service_missing"
    WEBHOOK_PORT_MISSING = "webhook_port_missing"
    WEBHOOK_WITHOUT_ENDPOINTS = "webhook_without_endpoints"
    WEBHOOK_CA_MISSING = "webhook_ca_missing"
    WEBHOOK_CA_BROKEN = "webhook_ca_broken"
    WEBHOOK_CA_EXPIRED = "webhook_ca_expired"
    WEBHOOK_CA_DIFFERS = "webhook_ca_differs"
    WEBHOOK_IGNORES_FAILURE = "webhook_ignores_failure"
    WEBHOOK_TIMEOUT_SHORT = "webhook_timeout_short"
    GUARD_WITHOUT_WEBHOOK = "guard_without_webhook"
    # webhooks as the API server reaches them
    WEBHOOK_TIMED_OUT = "webhook_timed_out"
    WEBHOOK_UNREACHABLE = "webhook_unreachable"
    WEBHOOK_NOT_CALLED = "webhook_not_called"
    # groups
    SINGLE_ZONE = "single_zone"
    GROUP_SHARED = "group_shared"
    NOT_ON_DELETE = "not_on_delete"
    ZONE_ORDER = "zone_order"
    ODD_VALUE = "odd_value"
    KEY_UNKNOWN = "key_unknown"
    KEY_MISPLACED = "key_misplaced"
    PREPARE_INCOMPLETE = "prepare_incomplete"
    PREPARE_WITHOUT_LABEL = "prepare_without_label"
    PREPARE_PATH_UNKNOWN = "prepare_path_unknown"
    PREPARE_UNANSWERED = "prepare_unanswered"
    LEADING_ZONE_UNKNOWN = "leading_zone_unknown"
    # MultiAZRollouts
    POLICY_KIND_MISSING = "policy_kind_missing"
    POLICIES_NOT_OBEYED = "policies_not_obeyed"
    POLICY_REFUSED = "policy_refused"
    # releases
    RELEASE_KIND_MISSING = "release_kind_missing"
    RELEASES_NOT_MADE = "releases_not_made"
    RELEASES_MADE_TWICE = "releases_made_twice"
    FLUX_KIND_MISSING = "flux_kind_missing"
    RELEASE_REFUSED = "release_refused"
    RELEASE_OBJECT_UNREADABLE = "release_object_unreadable"
    IMAGE_POLICY_MISSING = "image_policy_missing"
    IMAGE_POLICY_EMPTY = "image_policy_empty"
    RELEASE_WRITES_NOTHING = "release_writes_nothing"
    RELEASE_UNCHECKED = "release_unchecked"
    ROLLOUT_UNKNOWN = "rollout_unknown"
    SCHEDULE_INVALID = "schedule_invalid"
    SCHEDULE_SELECTS_NOTHING = "schedule_selects_nothing"
    # budgets
    NATIVE_BUDGET_REFUSES = "native_budget_refuses"
    NATIVE_BUDGET_PROTECTS_NOTHING = "native_budget_protects_nothing"
    NATIVE_BUDGETS_OVERLAP = "native_budgets_overlap"
    BUDGETS_OF_TWO_KINDS = "budgets_of_two_kinds"
    ZONE_BUDGET_INVALID = "zone_budget_invalid"
    ZONE_BUDGET_SELECTS_NOTHING = "zone_budget_selects_nothing"
    ZONE_BUDGETS_OVERLAP = "zone_budgets_overlap"
    # pods that are to come
    POD_SECURITY_VIOLATED = "pod_security_violated"
    POD_REFUSED = "pod_refused"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong. The text is lower case and without a full stop."""

    code: FindingCode
    severity: Severity
    """`ERROR`: something does not work, or will not. `WARN`: it may be meant."""
    object: str
    """Kind and name."""
    text: str
    remedy: str


class SkippedCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A check for which something could not be read."""

    check: str
    why: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """All that one examination of an installation found."""

    namespace: str
    findings: tuple[Finding, ...] = ()
    skipped: tuple[SkippedCheck, ...] = ()
    passed: int = 0
    """How many checks were made and found nothing."""

    def count(self, severity: Severity) -> int:
        """Return how many findings have this severity."""
        return sum(finding.severity is severity for finding in self.findings)

    def has(self, code: FindingCode) -> bool:
        """Return whether there is such a finding."""
        return any(finding.code is code for finding in self.findings)
