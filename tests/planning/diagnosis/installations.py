"""A good installation, and short ways to spoil it: what the lines of `findings.txt` call."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from rollout_operator.model import names
from rollout_operator.model.budget import Budget, FlawedBudget, PlacedSet, StatusCondition
from rollout_operator.model.diagnosis import (
    ADMISSION_PATHS,
    BUDGET_PATH,
    LEASE_FLAG,
    NO_DOWNSCALE_PATH,
    PREPARE_DOWNSCALE_PATH,
    BundleFacts,
    HookRegistration,
    Installation,
    OperatorDeployment,
    PodTrial,
    PolicyKind,
    ReachAnswer,
    RightAnswer,
    ZoneSet,
)
from rollout_operator.model.lease import Lease
from rollout_operator.model.names import (
    GROUP_LABEL,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
    STATEFULSET_ANNOTATIONS,
    Uid,
)
from rollout_operator.model.objects import LabelSelector, StatefulSet, Unreadable, WatchedHead
from rollout_operator.model.policy import (
    Policy,
    PolicyHead,
    PolicyRefusal,
    PolicyRefusalCode,
    RefusedPolicy,
)
from rollout_operator.model.units import format_rfc3339
from rollout_operator.planning.rights import list_needs, list_rights
from rollout_operator.releases.model.plan import ReleaseObjects
from rollout_operator.releases.model.releases import (
    SCHEDULE,
    RefusedRelease,
    ReleaseRollout,
    ReleaseSchedule,
    ReleaseSpec,
    ScheduleObject,
    ScheduleStatus,
)
from rollout_operator.releases.planning.describe import gather_facts
from rollout_operator.releases.planning.schedules import INVALID

NAMESPACE: Final = "prod"
NOW: Final = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
WORDS: Final = ("-kubernetes.namespace=$(POD_NAMESPACE)", "-server-tls.enabled=true")
OBEY: Final = "-multi-az-rollouts.enabled"
MAKE: Final = "-releases.enabled"
OPERATOR: Final = OperatorDeployment(
    name="rollout-operator", account="rollout-operator", arguments=WORDS, replicas=1, ready=1
)
BUNDLE: Final = BundleFacts(ends=NOW + timedelta(days=100), vouches=True)
KUBERIK: Final = "kuberik-system/rollout-controller"
REFUSED: Final = (
    'cannot patch x: 500 InternalError: Internal error occurred: failed calling webhook "hook":'
    ' failed to call webhook: Post "https://x/admission/y?timeout=10s": '
)


def zone(
    name: str,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    *,
    pod_labels: dict[str, str] | None = None,
    group: str = "ingester",
    **changes: object,
) -> ZoneSet:
    """Return a zone of a group, or of none; `labels` are beside that of the group."""
    all_labels = {**({GROUP_LABEL: group} if group else {}), "name": name, **(labels or {})}
    annotations = annotations or {}
    known = {key: value for key, value in annotations.items() if key in STATEFULSET_ANNOTATIONS}
    plain = StatefulSet(
        namespace=NAMESPACE,
        name=name,
        uid=Uid(name),
        resource_version="1",
        labels=all_labels,
        annotations=known,
        strategy="OnDelete",
        replicas=2,
        service_name=name,
    )
    return ZoneSet(
        sts=replace(plain, **changes),
        labels=all_labels,
        annotations=annotations,
        pod_labels=pod_labels or {"name": name, "app": "ingester"},
        placed=PlacedSet(name=name),
    )


ZONES: Final = (
    zone("zone-a"),
    zone("zone-b", {PREPARE_DOWNSCALE: "true"}, {PREPARE_PATH: "prepare", PREPARE_PORT: "80"}),
)


# Of no group, for policies.
SELECTED: Final = tuple(zone(name, {"set": name}, group="") for name in ("db", "other"))


def hook(path: str, **changes: object) -> HookRegistration:
    """Return a webhook as it is shipped; paths may be short."""
    kind = "Mutating" if path in PREPARE_DOWNSCALE_PATH else "Validating"
    what = path.rpartition("/")[2]
    plain = HookRegistration(
        configuration=f"{kind}WebhookConfiguration {what}-{NAMESPACE}",
        name=f"{what}-{NAMESPACE}.grafana.com",
        owner=NAMESPACE,
        path=f"/admission/{what}",
        service_namespace=NAMESPACE,
        selects=LabelSelector(labels={"kubernetes.io/metadata.name": NAMESPACE}),
        bundle=BUNDLE,
    )
    return replace(plain, **changes)


def budget(name: str) -> Budget:
    return Budget(namespace=NAMESPACE, name=name, uid=Uid(name), resource_version="1", selector={})


def flawed(name: str, problem: str) -> FlawedBudget:
    return FlawedBudget(
        namespace=NAMESPACE, name=name, uid=Uid(name), resource_version="1", problem=problem
    )


def good(*extra: ZoneSet, **changes: object) -> Installation:
    """Return an installation of which nothing is wrong, with more sets and some fields changed."""
    plain = Installation(
        namespace=NAMESPACE,
        now=NOW,
        namespace_labels={},
        operators=(OPERATOR,),
        sets=(*ZONES, *extra),
        hooks=tuple(map(hook, ADMISSION_PATHS)),
        zone_budgets=(budget("zones"),),
        rights=tuple(
            RightAnswer(account="rollout-operator", right=right, is_granted=True)
            for right in list_rights(OPERATOR, NAMESPACE)
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
    )
    return replace(plain, **changes)


def empty(**changes: object) -> Installation:
    """Return a namespace with nothing in it."""
    return replace(Installation(namespace=NAMESPACE, now=NOW, namespace_labels={}), **changes)


def bare(*sets: ZoneSet, **changes: object) -> Installation:
    """Return an installation without webhooks, or what needs them."""
    return good(sets=sets or ZONES[:1] * 2, hooks=(), zone_budgets=(), reach=(), **changes)


def started(*arguments: str, **changes: Any) -> OperatorDeployment:
    return replace(OPERATOR, **{"arguments": (*WORDS[1:], *arguments), **changes})


def operator(
    *arguments: str, installed: Installation | None = None, **changes: Any
) -> Installation:
    """Return an installation whose operator is started so."""
    return replace(installed or good(), operators=(started(*arguments, **changes),))


def elsewhere(**changes: object) -> Installation:
    """Return an installation whose operator is in another namespace, with its webhooks."""
    remote = started(namespace="ops", variables={"WATCH_NAMESPACE": NAMESPACE})
    hooks = tuple(hook(path, owner="ops", service_namespace="ops") for path in ADMISSION_PATHS)
    return good(operators=(replace(remote, **changes),), hooks=hooks)


def without(purpose: str) -> Installation:
    """Return an installation whose operator lacks the rights for a purpose."""
    rights = (replace(each, is_granted=purpose not in each.right.purpose) for each in good().rights)
    return good(rights=tuple(rights))


def hooked(path: str, **changes: object) -> Installation:
    """Return an installation with another webhook of a path."""
    hooks = [each for each in good().hooks if not each.path.endswith(path)]
    return good(hooks=(*hooks, hook(path, **changes)))


def unhooked(path: str, *sets: ZoneSet) -> Installation:
    return good(*sets, hooks=tuple(one for one in good().hooks if not one.path.endswith(path)))


def reached(error: str = "", **changes: object) -> Installation:
    """Return an installation whose webhooks answered a dry run like this."""
    answer = ReachAnswer(request="scale zone-a", paths=(NO_DOWNSCALE_PATH,), error=error)
    return good(reach=(replace(answer, **changes),))


def tried(**errors: str) -> Installation:
    """Return an installation whose sets' pods were refused so."""
    trials = (PodTrial(set_name=name, error=error) for name, error in errors.items())
    return good(pod_trials=tuple(trials))


def held(holder: str, seconds: float | None) -> Lease:
    renewed = "" if seconds is None else format_rfc3339(NOW - timedelta(seconds=seconds))
    return Lease(version="1", holder=holder, renewed=renewed)


def policy(name: str = "db", select: dict[str, str] | None = None, **changes: object) -> Policy:
    head = PolicyHead(namespace=NAMESPACE, name=name, uid=Uid(name))
    selector = LabelSelector(labels={"set": "db"} if select is None else select)
    return replace(Policy(head=head, selector=selector), **changes)


def refused_policy(text: str) -> RefusedPolicy:
    refusal = PolicyRefusal(code=PolicyRefusalCode.INVALID_SPEC, field="spec", text=text)
    return RefusedPolicy(head=policy("bad").head, refusals=(refusal,))


def obeying(*sets: ZoneSet, **changes: object) -> Installation:
    """Return an installation whose operator obeys policies."""
    return operator(OBEY, installed=good(*sets, **changes))


def served(**changes: object) -> PolicyKind:
    return PolicyKind(**changes)  # type: ignore[arg-type]  # as a test wants


def head(name: str, namespace: str = NAMESPACE) -> WatchedHead:
    return WatchedHead(name=name, namespace=namespace, uid=Uid(name), resource_version="1")


ROLLOUT: Final = ReleaseRollout(head=head("app"), spec=ReleaseSpec(policy_name="app"))
_OBJECTS: Final = ReleaseObjects(rollouts=(ROLLOUT,))
RELEASES: Final = gather_facts(_OBJECTS)


def making(kuberik: tuple[str, ...] = (), **changes: Any) -> Installation:
    """Return an installation whose operator makes releases, with one thing changed of them."""
    releases = gather_facts(replace(_OBJECTS, **changes))
    return operator(MAKE, installed=good(releases=releases, kuberik=kuberik))


def unreadable(kind: str, error: str = "spec: no object") -> tuple[Unreadable]:
    uid = Uid("app")
    return (
        Unreadable(
            kind=kind, namespace=NAMESPACE, name="app", uid=uid, resource_version="1", error=error
        ),
    )


def refused_rollout(problem: str) -> tuple[RefusedRelease]:
    return (RefusedRelease(head=head("app"), problem=problem),)


def schedule(problem: str = "", found: str = "") -> tuple[ScheduleObject]:
    """Return a schedule with a problem that its decoder, or only the operator, finds."""
    ready = StatusCondition(type="Ready", status="False", reason=INVALID, message=found)
    status = ScheduleStatus(conditions=(ready,)) if found else ScheduleStatus()
    plan = None if problem else ReleaseSchedule(rules=())
    own = ScheduleObject(
        kind=SCHEDULE,
        head=head("nights"),
        schedule=plan,
        rollouts=LabelSelector(),
        problem=problem,
        status=status,
    )
    return (own,)


def placed(labels: dict[str, str]) -> Installation:
    """Return an installation with a policy over one StatefulSet, which says so of its zone."""
    plain = zone("db", {"set": "db"}, group="")
    one = replace(plain, placed=PlacedSet(name="db", labels=labels))
    return good(one, policies=(policy(),))


def annotated(**annotations: str) -> Installation:
    """Return an installation with a zone whose annotations have the names of `model.names`."""
    known = {getattr(names, name): text for name, text in annotations.items()}
    return good(zone("zone-c", annotations=known))


def find_needs(installed: Installation) -> str:
    """Return the components for which rights are needed."""
    return " ".join(sorted(list_needs(installed))) or "nothing"


def find_watched(*arguments: str, **variables: str) -> str:
    """Return where rights are needed, whether an operator of `ops` watches, and its Lease."""
    one = replace(OPERATOR, arguments=arguments, variables=variables)
    watches = replace(one, namespace="ops").watches(NAMESPACE)
    shown = [" ".join(one.list_watched(NAMESPACE)), "watches prod" if watches else "does not"]
    return "; ".join([*shown, f"Lease {lease}" if (lease := one.find(LEASE_FLAG)) else "no Lease"])
