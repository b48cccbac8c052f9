"""Read what the operator's ServiceAccount may do, for `rollout-operator doctor`.

An administrator may read the rights of any account, a user of the namespace those that belong to
it, and the account its own: the first way that is allowed is taken.
"""

from dataclasses import dataclass, field
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
from rollout_operator.planning.diagnosis.operators import list_acting, list_arguments, list_watched
from rollout_operator.planning.diagnosis.policies import reads_nodes
from rollout_operator.planning.diagnosis.releases import (
    reads_cluster,
    reads_inventory,
    reads_secrets,
)
from rollout_operator.planning.diagnosis.rights import RightNeeds, list_rights

# Of an operator that watches dozens, those that are checked say enough.
MOST_NAMESPACES: Final = 8
_ACCOUNTS: Final = "system:serviceaccount"
# How manifests and charts call the account, mostly with the name of a release before it.
_PROGRAM: Final = "rollout-operator"


async def fetch_rights(
    client: Writer, installation: Installation, *, is_namespaced: bool
) -> tuple[RightAnswer, ...]:
    """Return which of its needed rights an operator has; of several operators, the first.

    Either the rights in the namespace or those in the cluster. Raises OperatorError.
    """
    namespace = installation.namespace
    caller = await _fetch_caller(client)
    prefix = f"{_ACCOUNTS}:{namespace}:"
    accounts = [
        (
            operator.namespace or namespace,
            operator.account,
            list_arguments(operator),
            (namespace,) if operator.namespace else list_watched(operator, namespace),
        )
        for operator in list_acting(installation)
    ]
    if not accounts and caller.startswith(prefix) and caller.endswith(_PROGRAM):
        # The operator's own account may read no Deployments: flags are not known then.
        accounts = [(namespace, caller.removeprefix(prefix), (), (namespace,))]
    answers: list[RightAnswer] = []
    for home, account, arguments, watched in accounts[:1]:
        is_self = caller == f"{_ACCOUNTS}:{home}:{account}"
        reader = _RightsReader(client, home, account, is_self=is_self)
        needs = RightNeeds(
            nodes=reads_nodes(installation),
            secrets=reads_secrets(installation),
            cluster=reads_cluster(installation),
            inventory=reads_inventory(installation),
        )
        for right in list_rights(arguments, home, needs):
            if right.is_namespaced is is_namespaced:
                is_single = right.is_of_process or not is_namespaced
                places = (home,) if is_single else watched[:MOST_NAMESPACES]
                answers += [await reader.fetch(right, place) for place in places]
    return tuple(answers)


async def _fetch_caller(client: Writer) -> str:
    """Return the name by which the API server knows the caller, empty where it does not say."""
    try:
        return decode_username(await client.create(SELF_REVIEWS, "", _body(SELF_REVIEWS)))
    except ApiError:  # before 1.28
        return ""


@dataclass(frozen=True, slots=True)
class _RightsReader:
    """Reads the rights of one account of a namespace."""

    client: Writer
    home: str
    account: str
    is_self: bool = field(kw_only=True)

    async def fetch(self, right: Right, namespace: str) -> RightAnswer:
        """Return whether the account has a right in a namespace. Raises OperatorError."""
        return RightAnswer(
            account=self.account,
            namespace="" if namespace == self.home else namespace,
            right=right,
            is_granted=await self._is_granted(right, namespace),
        )

    async def _is_granted(self, right: Right, namespace: str) -> bool:
        client, home = self.client, self.home
        spec: JsonObject = {"resourceAttributes": _render_attributes(namespace, right)}
        if self.is_self:
            return await _review(client, SELF_ACCESS_REVIEWS, "", spec)
        spec["user"] = f"{_ACCOUNTS}:{home}:{self.account}"
        spec["groups"] = [f"{_ACCOUNTS}s", f"{_ACCOUNTS}s:{home}", "system:authenticated"]
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
