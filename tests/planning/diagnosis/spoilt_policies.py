"""Installations with one thing wrong about MultiAZRollouts, or about what the environment says."""

from typing import Final

from msgspec.structs import replace

from rollout_operator.model.diagnosis import ADMISSION_PATHS, FindingCode, Installation, PolicyKind
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import LabelSelector
from rollout_operator.model.policy import (
    Policy,
    PolicyHead,
    PolicyRefusal,
    PolicyRefusalCode,
    RefusedPolicy,
)
from tests.planning.diagnosis.installations import (
    NAMESPACE,
    OPERATOR,
    WORDS,
    Case,
    good,
    hook,
    ungrouped,
    with_sets,
    zone_set,
)

ON: Final = "-multi-az-rollouts.enabled"
ALL: Final = LabelSelector(labels={"set": "db"})


def policy(name: str = "db", selector: LabelSelector = ALL) -> Policy:
    head = PolicyHead(namespace=NAMESPACE, name=name, uid=Uid(name))
    return Policy(head=head, selector=selector)


def operator(*arguments: str, **variables: str) -> Installation:
    """Return an installation whose operator is started so."""
    return good(
        operators=(replace(OPERATOR, arguments=(*WORDS[1:], *arguments), variables=variables),),
    )


def obeying(**changes: object) -> Installation:
    """Return an installation whose operator obeys policies."""
    return replace(operator(ON), **changes)


def elsewhere(**changes: object) -> Installation:
    """Return an installation whose operator is in another namespace, with its webhooks."""
    remote = replace(OPERATOR, namespace="ops", variables={"WATCH_NAMESPACE": NAMESPACE})
    hooks = tuple(hook(path, owner="ops", service_namespace="ops") for path in ADMISSION_PATHS)
    return good(operators=(replace(remote, arguments=WORDS[1:]),), hooks=hooks, **changes)


_REFUSED: Final = RefusedPolicy(
    head=policy("bad").head,
    refusals=(
        PolicyRefusal(
            code=PolicyRefusalCode.INVALID_SPEC, field="spec.azOrder[1]", text="named twice: a"
        ),
    ),
)
_OTHER: Final = policy("other", LabelSelector(labels={"x": "y"}))


def selected(**changes: object) -> Installation:
    """Return an installation with a StatefulSet for each of the policies `db` and `other`."""
    sets = (
        ungrouped(zone_set(name, labels=dict(labels)))
        for name, labels in (("db", ALL.labels), ("other", _OTHER.selector.labels))
    )
    return replace(with_sets(*sets), **changes)


_NOBODY: Final = LabelSelector(labels={"no": "body"})
_DELETED: Final = ungrouped(zone_set("db", labels=dict(ALL.labels), is_terminating=True))
_ROLLING: Final = ungrouped(zone_set("db", labels={"set": "db"}, strategy="RollingUpdate"))

SPOILT_POLICIES: Final = (
    Case(
        "policies without their kind",
        obeying(policy_kind=PolicyKind(is_served=False)),
        FindingCode.POLICY_KIND_MISSING,
        "MultiAZRollout",
        "does not know the kind",
    ),
    Case(
        "another version of the kind",
        replace(
            operator(WATCH_NAMESPACE=NAMESPACE),
            policy_kind=PolicyKind(is_served=False, versions=("v1beta1",)),
        ),
        FindingCode.POLICY_KIND_MISSING,
        "MultiAZRollout",
        "v1beta1 of it, and not v1alpha1",
    ),
    Case(
        "a definition that is older than the operator",
        obeying(missing_fields={"MultiAZRollout": ("spec.paused", "status.phase")}),
        FindingCode.KIND_OUTDATED,
        "MultiAZRollout",
        "lacks spec.paused and status.phase",
    ),
    Case(
        "policies that no operator obeys",
        selected(policies=(policy(), _OTHER)),
        FindingCode.POLICIES_NOT_OBEYED,
        "Deployment rollout-operator",
        "db and other are ignored",
    ),
    Case(
        "policies of a namespace that no operator watches",
        selected(
            operators=operator(ON, WATCH_NAMESPACE="default").operators,
            policies=(policy(), _OTHER),
            unobeyed=frozenset({"db"}),
        ),
        FindingCode.POLICIES_NOT_OBEYED,
        "Namespace prod",
        "db is seen by no operator that obeys policies",
    ),
    Case(
        "MT-27 a policy with a bad field",
        obeying(policies=(_REFUSED,)),
        FindingCode.POLICY_REFUSED,
        "MultiAZRollout bad",
        "named twice: a",
    ),
    Case(
        "MT-62 two policies",
        replace(
            with_sets(ungrouped(zone_set("db", labels={"set": "db"}))),
            operators=obeying().operators,
            policies=(policy("older"), policy("younger")),
        ),
        FindingCode.POLICY_REFUSED,
        "MultiAZRollout younger",
        "of the older MultiAZRollout prod/older are selected: db",
    ),
    Case(
        "MT-64 half a group",
        obeying(policies=(policy("half", LabelSelector(labels={"name": "zone-a"})),)),
        FindingCode.POLICY_REFUSED,
        "MultiAZRollout half",
        'of the rollout group "ingester", zone-a would be selected, and zone-b would not',
    ),
    *(
        Case(
            f"a policy that selects nothing: {what}",
            obeying(policies=(policy("lost", selector),), sets=(*good().sets, *sets)),
            FindingCode.POLICY_SELECTS_NOTHING,
            "MultiAZRollout lost",
            "spec.statefulSetSelector selects no StatefulSet of the namespace",
        )
        for what, selector, sets in (
            ("a label that none has", ALL, ()),
            ("a label of pods", LabelSelector(labels={"app": "ingester"}), ()),
            ("another value", ALL, (ungrouped(zone_set("db", labels={"set": "DB"})),)),
            ("no StatefulSet but one that is deleted", ALL, (_DELETED,)),
        )
    ),
    Case(
        "a policy that selects nothing beside one that does",
        selected(operators=obeying().operators, policies=(policy(), policy("lost", _NOBODY))),
        FindingCode.POLICY_SELECTS_NOTHING,
        "MultiAZRollout lost",
        "selects no StatefulSet",
    ),
    Case(
        "MT-65 RollingUpdate under a policy",
        replace(with_sets(_ROLLING), operators=obeying().operators, policies=(policy(),)),
        FindingCode.NOT_ON_DELETE,
        "StatefulSet db",
        "RollingUpdate",
    ),
    Case(
        "a flag and a variable name other namespaces",
        operator(f"-kubernetes.namespace={NAMESPACE}", WATCH_NAMESPACE="a,b"),
        FindingCode.VARIABLE_OVERRULED,
        "Deployment rollout-operator",
        "-kubernetes.namespace=prod counts, and not WATCH_NAMESPACE=a,b",
    ),
    Case(
        "webhooks of an operator elsewhere that does not watch the namespace",
        replace(elsewhere(), operators=good().operators, hooks=(*good().hooks, *elsewhere().hooks)),
        FindingCode.WEBHOOK_OF_OTHERS,
        f"ValidatingWebhookConfiguration no-downscale-{NAMESPACE}",
        "in namespace ops selects this namespace",
    ),
    Case(
        "an operator elsewhere that is not ready",
        replace(elsewhere(), operators=(replace(elsewhere().operators[0], ready=0),)),
        FindingCode.OPERATOR_NOT_READY,
        "Deployment ops/rollout-operator",
        "0 of 1 pod ready",
    ),
    Case(
        "a flag reverts what variables request",
        operator(f"{ON}=false", WATCH_NAMESPACE=""),
        FindingCode.VARIABLE_OVERRULED,
        "Deployment rollout-operator",
        "-multi-az-rollouts.enabled=false counts, and not WATCH_NAMESPACE",
    ),
)
SOUND_POLICIES: Final = {
    "the kind is missing, and nothing needs it": good(policy_kind=PolicyKind(is_served=False)),
    "a policy that the flag obeys": selected(
        operators=obeying().operators, policies=(policy(), _OTHER)
    ),
    "a policy that variables obey": selected(
        operators=operator(LOG_LEVEL="info").operators, policies=(policy(),)
    ),
    "a variable from elsewhere": operator("-log.level=warn", LOG_LEVEL="$(LOG_LEVEL)"),
    "flag and variable agree": operator("-log.level=warn", LOG_LEVEL="WARN"),
    "variables that are empty": operator(f"{ON}=false", LOG_LEVEL="", OPERATOR_NAME=" "),
    "MAZ-60 an operator elsewhere watches the namespace": elsewhere(),
    "a policy that switches strategies": replace(
        with_sets(_ROLLING),
        operators=obeying().operators,
        policies=(replace(policy(), may_switch_strategy=True),),
    ),
}
