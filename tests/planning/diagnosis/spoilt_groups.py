"""Installations with one thing wrong about their groups, budgets or pods."""

from typing import Final

from rollout_operator.model.budget import FlawedBudget
from rollout_operator.model.diagnosis import FindingCode, NativeBudget, PodTrial
from rollout_operator.model.names import (
    GROUP_LABEL,
    LEADING_ZONE,
    MAX_UNAVAILABLE,
    NO_DOWNSCALE,
    PREPARE_DOWNSCALE,
    Uid,
)
from rollout_operator.model.objects import LabelSelector, SelectorTerm
from tests.planning.diagnosis.installations import (
    NAMESPACE,
    PREPARED,
    Case,
    answered,
    budget,
    good,
    native,
    ungrouped,
    with_sets,
    zone_set,
)

SPOILT_GROUPS: Final = (
    Case(
        "one zone",
        good(sets=(zone_set("a"),)),
        FindingCode.SINGLE_ZONE,
        "group ingester",
        "its only zone is a",
    ),
    Case(
        "grafana/mimir#8406 two charts that name their groups alike",
        good(
            sets=tuple(
                zone_set(f"{of}-{zone}", labels={"app.kubernetes.io/name": of})
                for of in ("loki", "mimir")
                for zone in ("zone-a", "zone-b")
            ),
        ),
        FindingCode.GROUP_SHARED,
        "group ingester",
        "loki has loki-zone-a and loki-zone-b; mimir has mimir-zone-a and mimir-zone-b",
    ),
    Case(
        "two releases of a chart",
        good(
            sets=tuple(
                zone_set(
                    f"{of}-{zone}",
                    labels={"app.kubernetes.io/name": "mimir", "app.kubernetes.io/instance": of},
                )
                for of in ("dev", "test")
                for zone in ("zone-a", "zone-b")
            ),
        ),
        FindingCode.GROUP_SHARED,
        "group ingester",
        "mimir of release dev has dev-zone-a and dev-zone-b; mimir of release test",
    ),
    Case(
        "RollingUpdate",
        with_sets(zone_set("zone-c", strategy="RollingUpdate")),
        FindingCode.NOT_ON_DELETE,
        "StatefulSet zone-c",
        "RollingUpdate",
    ),
    Case(
        "10 before 2",
        good(sets=(zone_set("zone-2"), zone_set("zone-10"))),
        FindingCode.ZONE_ORDER,
        "group ingester",
        "the order is zone-10 and zone-2",
    ),
    Case(
        "a limit that is none",
        with_sets(zone_set("zone-c", annotations={MAX_UNAVAILABLE: "many"})),
        FindingCode.ODD_VALUE,
        "StatefulSet zone-c",
        MAX_UNAVAILABLE,
    ),
    Case(
        "a switch whose value cannot be read",
        with_sets(zone_set("zone-c", labels={NO_DOWNSCALE: "True"})),
        FindingCode.ODD_VALUE,
        "StatefulSet zone-c",
        '"True" is neither "true" nor "false", and counts as true',
    ),
    Case(
        "a misspelt annotation",
        with_sets(zone_set("zone-c", annotations={"rollout-max-unavailible": "2"})),
        FindingCode.KEY_UNKNOWN,
        "StatefulSet zone-c",
        f'did you mean "{MAX_UNAVAILABLE}"?',
    ),
    Case(
        "a misspelt label",
        with_sets(zone_set("zone-c", labels={"grafana.com/no-downscales": "true"})),
        FindingCode.KEY_UNKNOWN,
        "StatefulSet zone-c",
        f'did you mean "{NO_DOWNSCALE}"?',
    ),
    Case(
        "the wrong prefix",
        with_sets(zone_set("zone-c", annotations={f"grafana.com/{MAX_UNAVAILABLE}": "2"})),
        FindingCode.KEY_UNKNOWN,
        "StatefulSet zone-c",
        f'did you mean "{MAX_UNAVAILABLE}"?',
    ),
    Case(
        "a label among annotations",
        with_sets(zone_set("zone-c", annotations={NO_DOWNSCALE: "true"})),
        FindingCode.KEY_MISPLACED,
        "StatefulSet zone-c",
        "is a label, not an annotation",
    ),
    Case(
        "an annotation among labels",
        with_sets(zone_set("zone-c", labels={MAX_UNAVAILABLE: "2"})),
        FindingCode.KEY_MISPLACED,
        "StatefulSet zone-c",
        "is an annotation, not a label",
    ),
    Case(
        "a group of pods only",
        with_sets(ungrouped(zone_set("zone-c", pod_labels={GROUP_LABEL: "ingester"}))),
        FindingCode.KEY_MISPLACED,
        "StatefulSet zone-c",
        "on the pod template only",
    ),
    Case(
        "pods to be prepared somewhere",
        with_sets(zone_set("zone-c", labels={PREPARE_DOWNSCALE: "true"})),
        FindingCode.PREPARE_INCOMPLETE,
        "StatefulSet zone-c",
        "annotation is not set or empty",
    ),
    Case(
        "a place, and nothing that needs it",
        with_sets(zone_set("zone-c", annotations=PREPARED)),
        FindingCode.PREPARE_WITHOUT_LABEL,
        "StatefulSet zone-c",
        f"without the label {PREPARE_DOWNSCALE}",
    ),
    Case(
        "a path that no pod knows",
        answered(404),
        FindingCode.PREPARE_PATH_UNKNOWN,
        "StatefulSet zone-b",
        "GET /prepare on port 80 of pod zone-b-0: HTTP status 404",
    ),
    Case(
        "a port where nothing listens",
        answered(problem="503 ServiceUnavailable: connection refused", is_lost=True),
        FindingCode.PREPARE_UNANSWERED,
        "StatefulSet zone-b",
        "of pod zone-b-0: 503 ServiceUnavailable: connection refused",
    ),
    Case(
        "a sidecar without its program",
        answered(502),
        FindingCode.PREPARE_UNANSWERED,
        "StatefulSet zone-b",
        "HTTP status 502",
    ),
    Case(
        "follows no set",
        with_sets(zone_set("zone-c", annotations={LEADING_ZONE: "zone-x"})),
        FindingCode.LEADING_ZONE_UNKNOWN,
        "StatefulSet zone-c",
        '"zone-x" is no zone of its group',
    ),
    Case(
        "maxUnavailable 0",
        good(zone_budgets=(), native_budgets=(native("p", max_unavailable="0"),)),
        FindingCode.NATIVE_BUDGET_REFUSES,
        "PodDisruptionBudget p",
        "maxUnavailable is 0, and it selects 4 pods",
    ),
    Case(
        "as many as there are",
        good(zone_budgets=(), native_budgets=(native("p", min_available="4"),)),
        FindingCode.NATIVE_BUDGET_REFUSES,
        "PodDisruptionBudget p",
        "minAvailable is 4, and it selects 4 pods",
    ),
    Case(
        "a share of nothing",
        good(zone_budgets=(), native_budgets=(native("p", min_available="76%"),)),
        FindingCode.NATIVE_BUDGET_REFUSES,
        "PodDisruptionBudget p",
        "minAvailable is 76%",
    ),
    Case(
        "all of them",
        good(zone_budgets=(), native_budgets=(native("p", max_unavailable="4"),)),
        FindingCode.NATIVE_BUDGET_PROTECTS_NOTHING,
        "PodDisruptionBudget p",
        "maxUnavailable is 4, and it selects 4 pods",
    ),
    Case(
        "none of them",
        good(zone_budgets=(), native_budgets=(native("p", min_available="0"),)),
        FindingCode.NATIVE_BUDGET_PROTECTS_NOTHING,
        "PodDisruptionBudget p",
        "minAvailable is 0",
    ),
    Case(
        "two native budgets",
        good(
            zone_budgets=(),
            native_budgets=(
                native("p", max_unavailable="1"),
                NativeBudget(
                    name="q",
                    selector=LabelSelector(
                        terms=(SelectorTerm(key="name", operator="In", values=("zone-a",)),)
                    ),
                    max_unavailable="1",
                ),
            ),
        ),
        FindingCode.NATIVE_BUDGETS_OVERLAP,
        "PodDisruptionBudget p",
        "q selects zone-a-0 and zone-a-1 as well",
    ),
    Case(
        "budgets of both kinds",
        good(native_budgets=(native("p", max_unavailable="1"),)),
        FindingCode.BUDGETS_OF_TWO_KINDS,
        "PodDisruptionBudget p",
        "ZoneAwarePodDisruptionBudget zones selects zone-a-0, zone-a-1",
    ),
    Case(
        "a flawed budget",
        good(
            zone_budgets=(
                FlawedBudget(
                    namespace=NAMESPACE,
                    name="bad",
                    uid=Uid("bad"),
                    resource_version="1",
                    problem="invalid value: regex",
                ),
            )
        ),
        FindingCode.ZONE_BUDGET_INVALID,
        "ZoneAwarePodDisruptionBudget bad",
        "invalid value: regex",
    ),
    Case(
        "a budget of nothing",
        good(zone_budgets=(budget("none", {"app": "store"}),)),
        FindingCode.ZONE_BUDGET_SELECTS_NOTHING,
        "ZoneAwarePodDisruptionBudget none",
        "no StatefulSet and no pod has app=store",
    ),
    Case(
        "two budgets of ours",
        good(zone_budgets=(budget("one", {}), budget("two", {"name": "zone-a"}))),
        FindingCode.ZONE_BUDGETS_OVERLAP,
        "ZoneAwarePodDisruptionBudget one",
        "two selects zone-a-0 and zone-a-1 as well",
    ),
    Case(
        "D3 Pod Security",
        good(
            pod_trials=(PodTrial(set_name="a", error='violates PodSecurity "restricted:latest"'),)
        ),
        FindingCode.POD_SECURITY_VIOLATED,
        "StatefulSet a",
        "restricted",
    ),
    Case(
        "D3 Pod Security, in many zones",
        good(
            pod_trials=tuple(
                PodTrial(set_name=name, error=f'pods "{name}-x" is forbidden: violates PodSecurity')
                for name in "abc"
            )
        ),
        FindingCode.POD_SECURITY_VIOLATED,
        "StatefulSet a",
        "violates PodSecurity; the same for b and c",
    ),
    Case(
        "pods that are refused",
        good(pod_trials=(PodTrial(set_name="a", error="no such service account"),)),
        FindingCode.POD_REFUSED,
        "StatefulSet a",
        "service account",
    ),
)
