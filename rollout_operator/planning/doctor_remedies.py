"""What each finding means and what to do about it, once: `docs/commands.md` shows the same."""

from collections.abc import Mapping
from typing import Final

import msgspec

from rollout_operator.model.diagnosis import Finding, FindingCode
from rollout_operator.model.outcome import Severity


class Advice(msgspec.Struct, frozen=True):
    """What is the same for all findings of a code."""

    severity: Severity
    meaning: str
    remedy: str


def make_finding(code: FindingCode, obj: str, text: str) -> Finding:
    """Return a finding with the severity and the remedy of its code."""
    explained = EXPLANATIONS[code]
    return Finding(
        code=code, severity=explained.severity, object=obj, text=text, remedy=explained.remedy
    )


def render_table() -> str:
    """Return all codes as the table of `docs/commands.md`."""
    rows = [
        f"| `{code}` | {explanation.severity} | {explanation.meaning} | {explanation.remedy} |\n"
        for code, explanation in EXPLANATIONS.items()
    ]
    return "".join(
        ["| code | severity | what it means | what to do |\n| --- | --- | --- | --- |\n", *rows]
    )


_ERROR: Final = Severity.ERROR
_WARN: Final = Severity.WARN

# fmt: off
EXPLANATIONS: Final[Mapping[FindingCode, Advice]] = {
    FindingCode.NAMESPACE_MISSING: Advice(
        _ERROR,
        "there is no such namespace",
        "name the namespace of the operator with `-n`",
    ),
    FindingCode.OPERATOR_MISSING: Advice(
        _ERROR,
        "neither a Deployment that runs an operator nor a process that renews its Lease is here",
        "name the namespace of the operator with `-n`, install the operator into this namespace, or"
        " add the namespace to `WATCH_NAMESPACE` of an operator elsewhere",
    ),
    FindingCode.OPERATOR_NOT_READY: Advice(
        _ERROR,
        "no pod of the operator is ready",
        "look at the pods of the Deployment, their log and `/ready` on port 8001",
    ),
    FindingCode.TWO_OPERATORS: Advice(
        _ERROR,
        "two Deployments run an operator in one namespace, and each may delete pods",
        "keep one and scale the other to 0; to compare two, run ours with `-mode=shadow`",
    ),
    FindingCode.LEASE_HOLDER_UNKNOWN: Advice(
        _WARN,
        "a Deployment here runs an operator, and a process that is no pod of this namespace holds"
        " the Lease",
        "find the process, such as a process on a person's machine, and stop it; after a crash the"
        " Lease changes hands within a minute",
    ),
    FindingCode.OTHER_NAMESPACE_WATCHED: Advice(
        _ERROR,
        "the operator here looks after another namespace",
        "set `-kubernetes.namespace=$(POD_NAMESPACE)`, as the shipped Deployment does",
    ),
    FindingCode.BUNDLE_NAME_EMPTY: Advice(
        _WARN,
        "`-webhooks.ca-bundle-names` has empty entries, mostly of a variable that is not set",
        "name each configuration, or leave the flag out",
    ),
    FindingCode.VARIABLE_OVERRULED: Advice(
        _WARN,
        "a flag beats a variable of the environment that says something else",
        "keep one of the two, and leave the other out",
    ),
    FindingCode.RIGHT_MISSING: Advice(
        _ERROR,
        "the operator's ServiceAccount may not do what the operator needs",
        "apply the shipped Role, ClusterRole and their bindings again, or add the rule",
    ),
    FindingCode.OPTIONAL_RIGHT_MISSING: Advice(
        _WARN,
        "the operator works without that right, and lacks what it is for",
        "apply the shipped Role again, or add the rule; that of grafana/rollout-operator does not"
        " have it",
    ),
    FindingCode.WEBHOOKS_MISSING: Advice(
        _ERROR,
        "the operator serves webhooks, and none is registered for it",
        "apply the component `webhooks`, whose label `grafana.com/namespace` names the namespace,"
        " or let the `namespaceSelector` of the operator's select this one",
    ),
    FindingCode.WEBHOOKS_NOT_SERVED: Advice(
        _ERROR,
        "webhooks are registered, and the operator does not serve them",
        "set `-server-tls.enabled=true`, or delete them with `rollout-operator admin"
        " uninstall-webhooks`",
    ),
    FindingCode.WEBHOOK_OF_OTHERS: Advice(
        _ERROR,
        "the API server calls the operator of another namespace for objects of this namespace",
        "limit the `namespaceSelector` of that webhook to its own namespace",
    ),
    FindingCode.WEBHOOK_SERVICE_MISSING: Advice(
        _ERROR,
        "the Service that the webhook is called through does not exist",
        "apply the operator's Service again, or mend `clientConfig.service`; with the operator"
        " gone, run `rollout-operator admin uninstall-webhooks`",
    ),
    FindingCode.WEBHOOK_PORT_MISSING: Advice(
        _ERROR,
        "the Service has no such port",
        "give it the port 443 with the target `https` (8443)",
    ),
    FindingCode.WEBHOOK_WITHOUT_ENDPOINTS: Advice(
        _ERROR,
        "no ready pod stands behind the Service of the webhook",
        "see why the operator is not ready, and that the Service selects its pods",
    ),
    FindingCode.WEBHOOK_CA_MISSING: Advice(
        _ERROR,
        "the webhook has no `caBundle`, so that the API server trusts no certificate there",
        "give the configuration the labels `grafana.com/inject-rollout-operator-ca: \"true\"` and"
        " `grafana.com/namespace`, and the operator the right to patch it; its log says more",
    ),
    FindingCode.WEBHOOK_CA_BROKEN: Advice(
        _ERROR,
        "the `caBundle` is no certificate",
        "remove it from the manifest, so that the operator writes it",
    ),
    FindingCode.WEBHOOK_CA_EXPIRED: Advice(
        _ERROR,
        "the `caBundle` has expired",
        "see why the operator does not renew it, or put the new CA there yourself",
    ),
    FindingCode.WEBHOOK_CA_DIFFERS: Advice(
        _ERROR,
        "the `caBundle` has not signed the certificate of the operator",
        "see that no manifest sets `caBundle`, and that the operator may patch the configuration",
    ),
    FindingCode.WEBHOOK_IGNORES_FAILURE: Advice(
        _WARN,
        "while the operator does not answer, the API server allows what the webhook would refuse",
        "set `failurePolicy: Fail`, unless that is meant",
    ),
    FindingCode.WEBHOOK_TIMEOUT_SHORT: Advice(
        _WARN,
        "the API server gives up before the operator can have called pods",
        "raise `timeoutSeconds` of the webhook and `-server-tls.request-timeout`, or lower"
        " `-pods.client-timeout`",
    ),
    FindingCode.GUARD_WITHOUT_WEBHOOK: Advice(
        _ERROR,
        "a label or a budget wants protection, and the webhook that gives it is not registered",
        "apply the component `webhooks`, or take the label or the budget away",
    ),
    FindingCode.WEBHOOK_TIMED_OUT: Advice(
        _ERROR,
        "the API server did not reach the webhook in time",
        "let the control plane reach port 8443 of the pods: firewall rule or security group of the"
        " nodes, private cluster, NetworkPolicy; where its network knows no pods (overlay CNI),"
        " run the operator with `hostNetwork: true` and `dnsPolicy: ClusterFirstWithHostNet`",
    ),
    FindingCode.WEBHOOK_UNREACHABLE: Advice(
        _ERROR,
        "the API server called the webhook, and got no answer that it takes",
        "for `connection refused` see that the operator runs and serves the port; for `x509` see"
        " `caBundle` and the name that the certificate is for",
    ),
    FindingCode.WEBHOOK_NOT_CALLED: Advice(
        _ERROR,
        "what the webhook must refuse was accepted: it was not called",
        "see its `rules`, `namespaceSelector` and `matchConditions`, and whether its"
        " `failurePolicy` is `Ignore` and the call fails",
    ),
    FindingCode.SINGLE_ZONE: Advice(
        _WARN,
        "the group has one zone, so that nothing stays up for certain while its pods go",
        "give the other zones the same value of the label `rollout-group`",
    ),
    FindingCode.GROUP_SHARED: Advice(
        _WARN,
        "StatefulSets of several applications are in one group: pods of one wait for those of the"
        " other, and a zone of one counts as another zone of the other",
        "give the sets of one application another value of the label `rollout-group`, or put them"
        " into a namespace of their own",
    ),
    FindingCode.NOT_ON_DELETE: Advice(
        _ERROR,
        "Kubernetes rolls this set itself, so that the operator leaves its whole group or policy"
        " alone",
        "set `updateStrategy: {type: OnDelete}`",
    ),
    FindingCode.ZONE_ORDER: Advice(
        _WARN,
        "zones are rolled in the order of the bytes of their names, where 10 comes before 2",
        "write numbers in names with the same number of digits",
    ),
    FindingCode.ODD_VALUE: Advice(
        _WARN,
        "a label or annotation has a value that is not used as it is written",
        "write a value that docs name; `kubectl label` and `kubectl annotate` need `--overwrite`",
    ),
    FindingCode.KEY_UNKNOWN: Advice(
        _WARN,
        "a label or annotation looks like a key of the operator, and is none",
        "write it as the known key",
    ),
    FindingCode.KEY_MISPLACED: Advice(
        _WARN,
        "a key does nothing where it stands",
        "move it: labels to labels, annotations to annotations, both of the StatefulSet itself",
    ),
    FindingCode.PREPARE_INCOMPLETE: Advice(
        _ERROR,
        "pods are to be prepared, and nothing says where: each downscale is refused",
        "set the annotations `grafana.com/prepare-downscale-http-path` and"
        " `grafana.com/prepare-downscale-http-port`, and `spec.serviceName`",
    ),
    FindingCode.PREPARE_WITHOUT_LABEL: Advice(
        _WARN,
        "annotations say where pods are prepared, and the label that requests it is not there",
        "set the label `grafana.com/prepare-downscale: \"true\"`, or remove the annotations",
    ),
    FindingCode.PREPARE_PATH_UNKNOWN: Advice(
        _ERROR,
        "a pod does not know the path on which it is to be prepared: each downscale is refused, or"
        " never begins",
        "compare path and port of the annotations with the program's documentation, and with its"
        " version: older versions may not have the path",
    ),
    FindingCode.PREPARE_UNANSWERED: Advice(
        _WARN,
        "the API server got no answer from a ready pod where it is to be prepared; the operator"
        " calls it directly, and may fare better",
        "see that the program listens on the port and scheme of the annotations, and that"
        " NetworkPolicies let the operator's pods call it",
    ),
    FindingCode.LEADING_ZONE_UNKNOWN: Advice(
        _ERROR,
        "the zone follows a zone that its group does not have",
        "name a StatefulSet of the same group in `grafana.com/rollout-downscale-leader`",
    ),
    FindingCode.KIND_OUTDATED: Advice(
        _WARN,
        "the CustomResourceDefinition of a kind in use is older than `doctor`: the API server drops"
        " the missing fields, whether people or the operator write them",
        "apply `manifests/crds`, or run `rollout-operator admin apply-crds`: Helm never upgrades"
        " definitions; those of releases are in `manifests/crds/releases`",
    ),
    FindingCode.POLICY_KIND_MISSING: Advice(
        _WARN,
        "the operator is to obey MultiAZRollouts, and the API server does not know them",
        "apply `manifests/crds`; the operator waits for it and needs no restart",
    ),
    FindingCode.POLICIES_NOT_OBEYED: Advice(
        _ERROR,
        "MultiAZRollouts are here, and no operator obeys them",
        "set `-multi-az-rollouts.enabled`, by the component `multi-az-rollouts` or the chart's"
        " `multiAZRollout.enabled`, on an operator of this namespace, or add the namespace to"
        " `WATCH_NAMESPACE` of an operator elsewhere",
    ),
    FindingCode.POLICY_REFUSED: Advice(
        _ERROR,
        "a MultiAZRollout is refused: no pod is touched for it",
        "fix what is named: the field, the selector, or the other MultiAZRollout",
    ),
    FindingCode.POLICY_SELECTS_NOTHING: Advice(
        _WARN,
        "a MultiAZRollout has nothing to roll out",
        "compare `spec.statefulSetSelector` with the labels of the StatefulSets themselves, which"
        " are not those of their pods",
    ),
    FindingCode.RELEASE_KIND_MISSING: Advice(
        _WARN,
        "the operator is to make releases happen, and the API server does not know their kinds",
        "apply `manifests/crds/releases`; the operator waits for them and needs no restart",
    ),
    FindingCode.RELEASES_NOT_MADE: Advice(
        _ERROR,
        "Rollouts of `kuberik.com` are here, and the operator passes them over",
        "set `-releases.enabled`, by the component `releases` or the chart's `releases.enabled`",
    ),
    FindingCode.RELEASES_MADE_TWICE: Advice(
        _ERROR,
        "kuberik's controller runs beside this operator, and each deploys",
        "scale kuberik's Deployment to 0, as in docs/releases-migrate.md",
    ),
    FindingCode.FLUX_KIND_MISSING: Advice(
        _ERROR,
        "Rollouts are here, and Flux lacks what announces versions, or anything to write them to",
        "install image-reflector-controller, source-controller and kustomize-controller of Flux",
    ),
    FindingCode.RELEASE_REFUSED: Advice(
        _ERROR,
        "a Rollout cannot be obeyed as it is written: nothing is deployed for it",
        "mend the field that is named",
    ),
    FindingCode.RELEASE_OBJECT_UNREADABLE: Advice(
        _ERROR,
        "an object that Rollouts depend on cannot be read: the operator passes it over",
        "mend the field that is named",
    ),
    FindingCode.IMAGE_POLICY_MISSING: Advice(
        _ERROR,
        "a Rollout names an image policy that is not there",
        "create it, or correct `spec.releasesImagePolicy`",
    ),
    FindingCode.IMAGE_POLICY_EMPTY: Advice(
        _WARN,
        "an image policy selects no tag, so that no version is announced",
        "look at the conditions of the ImagePolicy and of its ImageRepository",
    ),
    FindingCode.RELEASE_WRITES_NOTHING: Advice(
        _WARN,
        "a Rollout deploys versions, and no object of Flux gets them",
        "give the OCIRepository the annotation `rollout.kuberik.com/rollout`, or the Kustomization"
        " `rollout.kuberik.com/substitute.VARIABLE.from`, with the name of the Rollout",
    ),
    FindingCode.RELEASE_UNCHECKED: Advice(
        _WARN,
        "a Rollout selects HealthChecks, and there is none: its bakes pass by time alone",
        "compare `spec.healthCheckSelector.selector` with the labels of the HealthChecks",
    ),
    FindingCode.ROLLOUT_UNKNOWN: Advice(
        _WARN,
        "a gate, or an annotation of an object of Flux, names a Rollout that is not there",
        "correct the name: it is that of a Rollout in the same namespace",
    ),
    FindingCode.SCHEDULE_INVALID: Advice(
        _ERROR,
        "a schedule cannot be obeyed: its gates stay as they are, and new gates are closed",
        "mend the field that is named",
    ),
    FindingCode.SCHEDULE_SELECTS_NOTHING: Advice(
        _WARN,
        "a schedule keeps no gate",
        "compare `spec.rolloutSelector` with the labels of the Rollouts",
    ),
    FindingCode.NATIVE_BUDGET_REFUSES: Advice(
        _WARN,
        "a PodDisruptionBudget refuses every eviction, also while all pods are ready",
        "leave room for one pod, or use a ZoneAwarePodDisruptionBudget in its place",
    ),
    FindingCode.NATIVE_BUDGET_PROTECTS_NOTHING: Advice(
        _WARN,
        "a PodDisruptionBudget lets all pods of the groups go at once",
        "lower `maxUnavailable`, or raise `minAvailable`, or remove it",
    ),
    FindingCode.NATIVE_BUDGETS_OVERLAP: Advice(
        _ERROR,
        "two PodDisruptionBudgets select one pod: the API server answers its eviction with 500",
        "let one of them select other pods, or remove it",
    ),
    FindingCode.BUDGETS_OF_TWO_KINDS: Advice(
        _WARN,
        "a PodDisruptionBudget and a ZoneAwarePodDisruptionBudget select one pod: both must allow",
        "keep the budget that is meant; `maxUnavailable` of the first counts over all zones",
    ),
    FindingCode.ZONE_BUDGET_INVALID: Advice(
        _ERROR,
        "a budget cannot be obeyed as it is written: the version before it stays in force, or no"
        " pod that it selects may go",
        "mend the field that is named",
    ),
    FindingCode.ZONE_BUDGET_SELECTS_NOTHING: Advice(
        _WARN,
        "a budget protects nothing",
        "compare `selector.matchLabels` with the labels of pods and of StatefulSets: it needs both",
    ),
    FindingCode.ZONE_BUDGETS_OVERLAP: Advice(
        _ERROR,
        "two ZoneAwarePodDisruptionBudgets select one pod: it may not go at all",
        "let one of them select other pods, or remove it",
    ),
    FindingCode.POD_SECURITY_VIOLATED: Advice(
        _ERROR,
        "new pods violate the Pod Security level of the namespace: a pod that is replaced does not"
        " come back",
        "lower the label `pod-security.kubernetes.io/enforce` of the namespace, or mend the"
        " template, before the next rollout",
    ),
    FindingCode.POD_REFUSED: Advice(
        _WARN,
        "the API server refused a dry run that creates a pod of this set",
        "fix what the answer names before the next rollout: the pods that it replaces may not"
        " come back",
    ),
}
# fmt: on
