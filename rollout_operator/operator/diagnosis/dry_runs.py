"""Requests that try what an installation answers: the API server, its webhooks, and pods.

Each dry run passes admission and is not stored, and no webhook has side effects. A GET goes to pods
where they are to be prepared for a downscale. What the answers say is judged in
`planning.diagnosis`: in `webhooks` that of dry runs, in `preparing` that of pods.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.aio.tasks import gather_all
from rollout_operator.kube.api import (
    PODS,
    STATEFULSETS,
    ZONE_BUDGETS,
    DryRunner,
    JsonObject,
    PodProxy,
)
from rollout_operator.model.decode.installation import decode_pod_to_try
from rollout_operator.model.diagnosis.installation import (
    BUDGET_PATH,
    EVICTION_PATH,
    NO_DOWNSCALE_PATH,
    PREPARE_DOWNSCALE_PATH,
    Installation,
    PathAnswer,
    PathQuestion,
    PodTrial,
    ReachAnswer,
)
from rollout_operator.model.errors import (
    ApiError,
    Conflict,
    Denied,
    NotFound,
    Refused,
    TooManyRequests,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.units import format_duration

# Zones of a group are alike: what refuses pods of the twentieth refuses those of an earlier zone.
_MOST_SETS: Final = 20
_NAME: Final = "rollout-operator-doctor"
# The schema of each release takes it, and so does none of its webhooks: there is no ninth group.
_BAD_BUDGET: Final[JsonObject] = {
    "apiVersion": f"{ZONE_BUDGETS.group}/{ZONE_BUDGETS.version}",
    "kind": ZONE_BUDGETS.kind,
    "metadata": {"name": _NAME},
    "spec": {
        "selector": {"matchLabels": {_NAME: "none"}},
        "maxUnavailable": 1,
        "podNamePartitionRegex": "(x)",
        "podNameRegexGroup": 9,
    },
}


async def try_webhooks(client: DryRunner, installation: Installation) -> tuple[ReachAnswer, ...]:
    """Return how the API server answers requests that the webhooks of this namespace review.

    Raises OperatorError where none of them is allowed.
    """
    answers: list[ReachAnswer] = []
    denials: list[ApiError] = []
    for attempt in (_try_budget, _try_scale, _try_eviction):
        try:
            answers += await attempt(client, installation)
        except (Denied, NotFound) as error:
            denials.append(error)
    if denials and not answers:
        raise denials[0]
    return tuple(answers)


async def _try_budget(client: DryRunner, installation: Installation) -> list[ReachAnswer]:
    """Create a budget that the webhook must refuse: only a webhook that was called does."""
    if BUDGET_PATH not in {hook.path for hook in installation.own_hooks}:
        return []
    creation = client.try_create(ZONE_BUDGETS, installation.namespace, _BAD_BUDGET)
    answer = ReachAnswer(
        request="create a budget that cannot be obeyed", paths=(BUDGET_PATH,), must_be_refused=True
    )
    return [await _answer(answer, creation)]


async def _try_scale(client: DryRunner, installation: Installation) -> list[ReachAnswer]:
    """Scale a member of a group down by one: what the webhooks say does not matter."""
    registered = {hook.path for hook in installation.own_hooks}
    paths = tuple(
        path for path in (NO_DOWNSCALE_PATH, PREPARE_DOWNSCALE_PATH) if path in registered
    )
    sts = next((member.sts for member in installation.members if member.sts.replicas > 0), None)
    if not paths or sts is None:
        return []
    patch: JsonObject = {"spec": {"replicas": sts.replicas - 1}}
    request = f"scale {sts.name} down to {sts.replicas - 1}"
    scaling = client.try_patch(STATEFULSETS, sts.namespace, sts.name, patch, "scale")
    return [await _answer(ReachAnswer(request=request, paths=paths), scaling)]


async def _try_eviction(client: DryRunner, installation: Installation) -> list[ReachAnswer]:
    """Evict a pod of a member: what the webhook says does not matter."""
    names = {pod.name for pod in installation.pods}
    firsts = (f"{member.sts.name}-{member.sts.first_ordinal}" for member in installation.members)
    pod = next((name for name in firsts if name in names), "")
    if not pod or EVICTION_PATH not in {hook.path for hook in installation.own_hooks}:
        return []
    namespace = installation.namespace
    eviction: JsonObject = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
        # A second time: nothing that overlooks the query may take a pod.
        "deleteOptions": {"dryRun": ["All"]},
    }
    evicting = client.try_create(PODS, namespace, eviction, pod, "eviction")
    return [await _answer(ReachAnswer(request=f"evict {pod}", paths=(EVICTION_PATH,)), evicting)]


async def _answer(dry_run: ReachAnswer, request: Awaitable[None]) -> ReachAnswer:
    """Return the outcome of a request. Raises OperatorError where it says nothing of webhooks."""
    try:
        await request
    except (Refused, Conflict, TooManyRequests) as error:
        return msgspec.structs.replace(dry_run, error=f"{error}")
    except UnknownOutcome as error:
        return msgspec.structs.replace(dry_run, error=f"{error}", is_answered=False)
    return dry_run


async def try_pods(
    client: DryRunner, namespace: str, raw_sets: Sequence[bytes]
) -> tuple[PodTrial, ...]:
    """Return how the API server answers the creation of a pod of each of these StatefulSets.

    Raises OperatorError where that is not allowed.
    """
    return tuple([await _try_pod(client, namespace, raw) for raw in raw_sets[:_MOST_SETS]])


async def _try_pod(client: DryRunner, namespace: str, raw: bytes) -> PodTrial:
    name, body = decode_pod_to_try(raw)
    try:
        await client.try_create(PODS, namespace, body)
    except Refused as error:
        return PodTrial(set_name=name, error=f"{error}")
    return PodTrial(set_name=name)


# As long as the operator itself gives a pod, unless flags say otherwise.
_LIMIT: Final = timedelta(seconds=5)
# A namespace may have many sets, and the API server other work.
_AT_ONCE: Final = 10


async def probe_paths(
    client: PodProxy, namespace: str, questions: Sequence[PathQuestion]
) -> tuple[PathAnswer, ...]:
    """Return the answer to each question. Raises Denied where pods may not be called."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def probe(question: PathQuestion) -> PathAnswer:
        if not question.pod:
            return PathAnswer(question=question, problem="no pod is ready")
        async with turns:
            return await _probe(client, namespace, question)

    return tuple(await gather_all(map(probe, questions)))


async def _probe(client: PodProxy, namespace: str, question: PathQuestion) -> PathAnswer:
    is_lost = False
    try:
        async with asyncio.timeout(_LIMIT.total_seconds()):
            status = await client.probe_pod(namespace, question.pod, question.target)
        return PathAnswer(question=question, status=status)
    except TimeoutError:
        is_lost, problem = True, f"no answer within {format_duration(_LIMIT)}"
    except Denied as error:
        right = f"get pods/proxy in namespace {namespace}"
        raise Denied(f"{error}", call=right, status=error.status) from error
    except ApiError as error:
        # With a status it is the pod that was not reached, else the API server.
        is_lost = isinstance(error, Unreachable) and error.status > 0
        problem = error.problem
    return PathAnswer(question=question, problem=problem, is_lost=is_lost)
