"""The `eviction` subresource of pods, and the native disruption budgets that refuse it.

Decides whether a pod may go and what is written for it, by the status of the budget; that is kept
up to date elsewhere. The server's frame calls webhooks before, and decides how a pod then goes.
No other write comes between the steps, so that nothing here has to be tried again.
"""

from typing import Final

from msgspec.structs import replace

from rollout_lab.model.fields import (
    child,
    children,
    condition_of,
    is_terminating,
    name_of,
    number,
    text,
    timestamp,
)
from rollout_lab.model.request import ApiAnswer, ApiRefusal, ApiRequest, ApiServer
from rollout_lab.schemas.kinds import BUDGETS
from rollout_lab.schemas.labels import labels_of, matches
from rollout_lab.schemas.refusals import conflict, expect, expect_one_of, not_found
from rollout_operator.kube.api import PODS, JsonObject

_VERSIONS: Final = (None, "", "policy/v1", "policy/v1beta1")
_WOULD_VIOLATE: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_OVER: Final = ("Succeeded", "Failed")
_DISRUPTED: Final[JsonObject] = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}

_USED_UP: Final[JsonObject] = {
    "type": "DisruptionAllowed",
    "status": "False",
    "reason": "InsufficientPods",
    "message": "",
}


def check_eviction(request: ApiRequest) -> None:
    """Check the body of an eviction, before any webhook is called. Raises NotModelled."""
    body = request.body if isinstance(request.body, dict) else {}
    expect_one_of(_VERSIONS, "apiVersion of an eviction", body.get("apiVersion"))
    expect(name_of(body) == request.name, "metadata.name of an eviction", name_of(body))


def evict(api: ApiServer, request: ApiRequest) -> ApiAnswer:
    """Evict a pod, or refuse it. Raises Refusal (404, 409, 429)."""
    pod = api.get(PODS, request.namespace, request.name)
    if pod is None:
        raise not_found(PODS, request.name)
    options = _options(request)
    if _needs_no_budget(pod):
        if text(pod, "status", "phase") not in _OVER and not is_terminating(pod):
            options = _with_version(options, pod)  # lest it becomes ready meanwhile
    else:
        budgets = [
            budget for budget in api.list(BUDGETS, request.namespace) if _guards(budget, pod)
        ]
        expect(len(budgets) <= 1, "an eviction under several budgets", len(budgets))
        if budgets and not _is_unready_and_free(pod, budgets[0]):
            _take(api, request, budgets[0])
        if budgets:
            options = _with_version(options, pod)
    _delete(api, request, options)
    return ApiAnswer(
        status=201,
        body={
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "code": 201,
        },
    )


def _options(request: ApiRequest) -> JsonObject:
    body = request.body if isinstance(request.body, dict) else {}
    options = {**child(body, "deleteOptions"), "kind": "DeleteOptions", "apiVersion": "v1"}
    if request.is_dry_run:
        options["dryRun"] = ["All"]
    return options


def _needs_no_budget(pod: JsonObject) -> bool:
    """Return whether its going disrupts nothing: it has ended, not begun, or is on its way out."""
    return text(pod, "status", "phase") in (*_OVER, "Pending") or is_terminating(pod)


def _with_version(options: JsonObject, pod: JsonObject) -> JsonObject:
    """Return options that hold only for this version, where they name none themselves."""
    known = child(options, "preconditions")
    version = text(pod, "metadata", "resourceVersion")
    return {**options, "preconditions": {"resourceVersion": version, **known}}


def _guards(budget: JsonObject, pod: JsonObject) -> bool:
    selector = child(budget, "spec").get("selector")
    # Without a selector it guards none; with an empty selector, all.
    return isinstance(selector, dict) and matches(selector, labels_of(pod))


def _is_unready_and_free(pod: JsonObject, budget: JsonObject) -> bool:
    """Return whether a pod that is not ready may go without taking from the budget."""
    if condition_of(pod, "Ready").get("status") == "True":
        return False
    if text(budget, "spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    healthy = number(budget, "status", "currentHealthy")
    return healthy >= number(budget, "status", "desiredHealthy") > 0


def _take(api: ApiServer, request: ApiRequest, budget: JsonObject) -> None:
    """Use up one disruption that a budget allows. Raises Refusal where it allows none."""
    status = child(budget, "status")
    is_observed = number(status, "observedGeneration") >= number(budget, "metadata", "generation")
    expect(is_observed, "an eviction under a budget that is not observed", name_of(budget))
    allowed = number(status, "disruptionsAllowed")
    if not allowed:
        raise _exhausted(budget)
    if not request.is_dry_run:
        now = timestamp(api.now())
        going = {**child(status, "disruptedPods"), request.name: now}
        left = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": going}
        if allowed == 1:
            used = {"observedGeneration": status["observedGeneration"], "lastTransitionTime": now}
            conditions = children(status, "conditions")
            left["conditions"] = _with_condition(conditions, {**_USED_UP, **used})
        api.put({**budget, "status": left}, actor="api-server")


def _delete(api: ApiServer, request: ApiRequest, options: JsonObject) -> None:
    """Mark a pod as disrupted and delete it, if it is still what the options say."""
    deletion = replace(request, verb="delete", subresource="", query={}, body=options)
    if not request.is_dry_run:
        pod = api.get(PODS, request.namespace, request.name)
        assert pod is not None, "nothing comes between the steps"
        _check_preconditions(pod, options)
        version = _mark(api, request, pod)
        if child(options, "preconditions").get("resourceVersion"):
            known = {**child(options, "preconditions"), "resourceVersion": version}
            deletion = replace(deletion, body={**options, "preconditions": known})
    _checked(api.call_now(deletion))


def _check_preconditions(pod: JsonObject, options: JsonObject) -> None:
    checks = (("uid", "UID", "deleted and then recreated"),
              ("resourceVersion", "ResourceVersion", "modified"))  # fmt: skip
    for key, word, what in checks:
        wanted, found = text(options, "preconditions", key), text(pod, "metadata", key)
        if wanted and wanted != found:
            why = f"the {word} in the precondition ({wanted}) does not match the {word} in record"
            raise conflict(
                "Pod", name_of(pod), f"{why} ({found}). The object might have been {what}"
            )


def _mark(api: ApiServer, request: ApiRequest, pod: JsonObject) -> str:
    """Write why a pod goes into its status; return its new version."""
    condition = {**_DISRUPTED, "lastProbeTime": None, "lastTransitionTime": timestamp(api.now())}
    before = condition_of(pod, "DisruptionTarget")
    if before.get("status") == "True":
        condition["lastTransitionTime"] = before.get("lastTransitionTime")
    conditions = _with_condition(children(pod, "status", "conditions"), condition)
    body = {**pod, "status": {**child(pod, "status"), "conditions": conditions}}
    write = replace(request, verb="update", subresource="status", query={}, body=body)
    return text(_checked(api.call_now(write)).body, "metadata", "resourceVersion")


def _with_condition(before: list[JsonObject], changed: JsonObject) -> list[JsonObject]:
    known = {condition.get("type"): condition for condition in before}
    return [*{**known, changed["type"]: changed}.values()]


def _checked(answer: ApiAnswer) -> ApiAnswer:
    if answer.is_ok:
        return answer
    raise ApiRefusal(answer.status, answer.reason, answer.message)


def _exhausted(budget: JsonObject) -> ApiRefusal:
    """Return the refusal of a budget that has no disruption left."""
    name, status = name_of(budget), child(budget, "status")
    healthy, wanted = number(status, "currentHealthy"), number(status, "desiredHealthy")
    why = f"The disruption budget {name} does not allow evicting pods currently"
    if healthy <= wanted:
        needs = f"needs {wanted} healthy pods and has {healthy} currently"
        why = f"The disruption budget {name} {needs}"
    causes: list[JsonObject] = [{"reason": "DisruptionBudget", "message": why}]
    return ApiRefusal(429, "TooManyRequests", _WOULD_VIOLATE, causes=causes)
