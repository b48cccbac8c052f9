"""A good installation, and short ways to spoil it."""

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.budget import Budget
from rollout_operator.model.diagnosis import (
    ADMISSION_PATHS,
    BUDGET_PATH,
    NO_DOWNSCALE_PATH,
    PREPARE_DOWNSCALE_PATH,
    BundleFacts,
    CallableService,
    FindingCode,
    HeldLease,
    HookRegistration,
    Installation,
    LabelledPod,
    NativeBudget,
    OperatorDeployment,
    PathAnswer,
    PathQuestion,
    PodTrial,
    ReachAnswer,
    RightAnswer,
    ZoneSet,
)
from rollout_operator.model.names import (
    GROUP_LABEL,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
    STATEFULSET_ANNOTATIONS,
    Uid,
)
from rollout_operator.model.objects import LabelSelector, StatefulSet, Target
from rollout_operator.planning.doctor_install import list_rights

NAMESPACE: Final = "prod"
NOW: Final = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
WORDS: Final = ("-kubernetes.namespace=$(POD_NAMESPACE)", "-server-tls.enabled=true")
PREPARED: Final = {PREPARE_PATH: "prepare", PREPARE_PORT: "80"}
OPERATOR: Final = OperatorDeployment(
    name="rollout-operator", account="rollout-operator", arguments=WORDS, replicas=1, ready=1
)
INGESTERS: Final = LabelSelector(labels={"app": "ingester"})
GOOD_BUNDLE: Final = BundleFacts(ends=NOW + timedelta(days=100), vouches=True)


def zone_set(
    name: str,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    pod_labels: dict[str, str] | None = None,
    **changes: object,
) -> ZoneSet:
    """Return a zone of the group `ingester`; `labels` are beside that of the group."""
    all_labels = {GROUP_LABEL: "ingester", "name": name, **(labels or {})}
    annotations = annotations or {}
    fields: dict[str, object] = {
        "labels": all_labels,
        "annotations": {
            key: value for key, value in annotations.items() if key in STATEFULSET_ANNOTATIONS
        },
        "strategy": "OnDelete",
        "replicas": 2,
        "service_name": name,
        **changes,
    }
    plain = StatefulSet(namespace=NAMESPACE, name=name, uid=Uid(name), resource_version="1")
    return ZoneSet(
        sts=replace(plain, **fields),
        labels=all_labels,
        annotations=annotations,
        pod_labels=pod_labels or {"name": name, "app": "ingester"},
    )


def ungrouped(one: ZoneSet) -> ZoneSet:
    """Return a set without its group label."""
    labels = {key: value for key, value in one.labels.items() if key != GROUP_LABEL}
    return replace(one, labels=labels, sts=replace(one.sts, labels=labels))


def hook(path: str, **changes: object) -> HookRegistration:
    """Return a webhook as it is shipped."""
    kind = "Mutating" if path == PREPARE_DOWNSCALE_PATH else "Validating"
    what = path.rpartition("/")[2]
    plain = HookRegistration(
        configuration=f"{kind}WebhookConfiguration {what}-{NAMESPACE}",
        name=f"{what}-{NAMESPACE}.grafana.com",
        owner=NAMESPACE,
        path=path,
        service_namespace=NAMESPACE,
        service="rollout-operator",
        selects=LabelSelector(labels={"kubernetes.io/metadata.name": NAMESPACE}),
        bundle=GOOD_BUNDLE,
    )
    return replace(plain, **changes)


def budget(name: str, selector: dict[str, str]) -> Budget:
    """Return a budget of ours."""
    return Budget(
        namespace=NAMESPACE, name=name, uid=Uid(name), resource_version="1", selector=selector
    )


def good(**changes: object) -> Installation:
    """Return an installation of which nothing is wrong, with some fields changed."""
    zones = (
        zone_set("zone-a"),
        zone_set("zone-b", labels={PREPARE_DOWNSCALE: "true"}, annotations=PREPARED),
    )
    plain = Installation(
        namespace=NAMESPACE,
        now=NOW,
        namespace_labels={},
        operators=(OPERATOR,),
        sets=zones,
        pods=(
            LabelledPod(name="rollout-operator-1", labels={"name": "rollout-operator"}),
            *(
                LabelledPod(name=f"{one.sts.name}-{ordinal}", labels=one.pod_labels, is_ready=True)
                for one in zones
                for ordinal in range(2)
            ),
        ),
        services=(CallableService(name="rollout-operator", ports=(443, 8001)),),
        ready_endpoints={"rollout-operator": 1},
        hooks=tuple(hook(path) for path in ADMISSION_PATHS),
        lease=HeldLease(name="rollout-operator", holder="rollout-operator-1_abc"),
        zone_budgets=(budget("zones", {}),),
        rights=tuple(
            RightAnswer(account="rollout-operator", right=right, is_granted=True)
            for right in list_rights(WORDS, NAMESPACE)
        ),
        reach=(
            ReachAnswer(
                request="create a bad budget",
                paths=(BUDGET_PATH,),
                must_be_refused=True,
                error='admission webhook "zpdb" denied the request: no',
            ),
        ),
        pod_trials=(PodTrial(set_name="zone-a"),),
        path_answers=(path_answer(200),),
    )
    return replace(plain, **changes)


class Case(msgspec.Struct, frozen=True):
    """An installation with one thing wrong, and what is said of it."""

    name: str
    installation: Installation
    code: FindingCode
    object: str
    text: str
    """A part of the finding's."""


def with_sets(*sets: ZoneSet) -> Installation:
    """Return a good installation with more StatefulSets."""
    return good(sets=(*good().sets, *sets))


def reach(error: str, **changes: object) -> Installation:
    """Return a good installation whose webhooks answered a dry run like this."""
    answer = ReachAnswer(request="scale zone-a", paths=(NO_DOWNSCALE_PATH,), error=error)
    return good(reach=(replace(answer, **changes),))


def path_answer(
    status: int = 0, problem: str = "", *, is_lost: bool = False, pod: str = "zone-b-0"
) -> PathAnswer:
    """Return what came of a call to the first pod of zone-b where it is to be prepared."""
    target = Target(port=80, path="prepare", service="zone-b")
    question = PathQuestion(set_name="zone-b", target=target, pod=pod)
    return PathAnswer(question=question, status=status, problem=problem, is_lost=is_lost)


def answered(status: int = 0, problem: str = "", *, is_lost: bool = False) -> Installation:
    """Return a good installation of which a pod answered like this."""
    return good(path_answers=(path_answer(status, problem, is_lost=is_lost),))


def native(name: str, **changes: str) -> NativeBudget:
    """Return a PodDisruptionBudget of all pods of the group."""
    return NativeBudget(name=name, selector=INGESTERS, **changes)
