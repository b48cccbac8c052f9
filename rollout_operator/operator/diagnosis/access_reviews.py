"""Ask the API server what the operator's ServiceAccount may do, for `rollout-operator doctor`.

As an administrator one asks about any account, as one of the namespace about what belongs to it,
and the account itself about itself: whatever is permitted first is done.
"""

from typing import Final

from rollout_operator.kube.api import (
    ACCESS_REVIEWS,
    LOCAL_ACCESS_REVIEWS,
    SELF_ACCESS_REVIEWS,
    SELF_REVIEWS,
    JsonObject,
    Resource,
    Writer,
)
from rollout_operator.model.decode.registrations import decode_allowed, decode_username
from rollout_operator.model.diagnosis.installation import Installation, Right, RightAnswer
from rollout_operator.model.errors import ApiError, Denied
from rollout_operator.planning.diagnosis.operators import list_acting
from rollout_operator.planning.diagnosis.rights import list_rights

_ACCOUNTS: Final = "system:serviceaccount"
# How manifests and charts call the account, mostly with the name of a release before it.
_PROGRAM: Final = "rollout-operator"


async def ask_rights(
    client: Writer, installation: Installation, *, is_namespaced: bool
) -> tuple[RightAnswer, ...]:
    """Return which rights an operator has of those that it needs; of several that of the first.

    Either those in the namespace or those in the cluster. Raises OperatorError.
    """
    namespace = installation.namespace
    caller = await _fetch_caller(client)
    prefix = f"{_ACCOUNTS}:{namespace}:"
    accounts = [(one.account, one.words) for one in list_acting(installation)]
    if not accounts and caller.startswith(prefix) and caller.endswith(_PROGRAM):
        # The operator's own account may read no Deployments: flags are not known then.
        accounts = [(caller.removeprefix(prefix), ())]
    answers: list[RightAnswer] = []
    for account, words in accounts[:1]:
        is_self = caller == f"{prefix}{account}"
        for right in list_rights(words, namespace):
            if right.is_namespaced is is_namespaced:
                granted = await _ask(client, namespace, account, right, is_self=is_self)
                answers.append(RightAnswer(account=account, right=right, is_granted=granted))
    return tuple(answers)


async def _fetch_caller(client: Writer) -> str:
    """Return the name by which the API server knows the caller, empty where it does not tell."""
    try:
        return decode_username(await client.create(SELF_REVIEWS, "", _body(SELF_REVIEWS)))
    except ApiError:  # before 1.28
        return ""


async def _ask(
    client: Writer, namespace: str, account: str, right: Right, *, is_self: bool
) -> bool:
    attributes = _render_attributes(namespace, right)
    if is_self:
        return await _review(client, SELF_ACCESS_REVIEWS, "", {"resourceAttributes": attributes})
    spec: JsonObject = {
        "user": f"{_ACCOUNTS}:{namespace}:{account}",
        "groups": [f"{_ACCOUNTS}s", f"{_ACCOUNTS}s:{namespace}", "system:authenticated"],
        "resourceAttributes": attributes,
    }
    try:
        return await _review(client, ACCESS_REVIEWS, "", spec)
    except Denied:
        if not right.is_namespaced:
            raise
    return await _review(client, LOCAL_ACCESS_REVIEWS, namespace, spec)


async def _review(client: Writer, kind: Resource, namespace: str, spec: JsonObject) -> bool:
    body = {**_body(kind), "spec": spec}
    if namespace:
        body["metadata"] = {"namespace": namespace}
    return decode_allowed(kind.kind, await client.create(kind, namespace, body))


def _body(kind: Resource) -> JsonObject:
    return {"apiVersion": f"{kind.group}/{kind.version}", "kind": kind.kind}


def _render_attributes(namespace: str, right: Right) -> JsonObject:
    return {
        "namespace": namespace if right.is_namespaced else "",
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "name": right.name,
    }
