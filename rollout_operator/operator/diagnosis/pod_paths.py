"""Call pods, through the API server, where they are to be prepared for a downscale.

Which pods are called, and what their answers say, is decided in `planning.diagnosis.preparing`.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from rollout_operator.aio.tasks import gather_all
from rollout_operator.kube.api import PodProxy
from rollout_operator.model.diagnosis.installation import PathAnswer, PathQuestion
from rollout_operator.model.errors import ApiError, Denied, Unreachable
from rollout_operator.model.units import format_duration

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
