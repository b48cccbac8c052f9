"""Where pods say that they can be prepared for a downscale: which are called, and what follows.

A GET goes to one ready pod of each set, and prepares nothing: a POST prepares a pod, and a DELETE
tells pods that they stay. Any answer proves that the path is served, except that it is unknown
(404, 410), or that a proxy before the program gave up (502, 504). A program that wants credentials
(401, 403) proves nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from rollout_operator.model.diagnosis.findings import Finding, FindingCode
from rollout_operator.model.diagnosis.installation import (
    Installation,
    LabelledPod,
    PathAnswer,
    PathQuestion,
    ZoneSet,
)
from rollout_operator.model.downscale import Target
from rollout_operator.model.names import DOWNSCALE_DELAY_URL, PREPARE_DOWNSCALE
from rollout_operator.planning.diagnosis.remedies import make_finding
from rollout_operator.planning.downscales.endpoint import NoTarget, plan_delay_target, plan_target
from rollout_operator.planning.downscales.request import is_labelled
from rollout_operator.planning.wording import join_names

_UNKNOWN: Final = frozenset({404, 410})
_NOT_OF_THE_PROGRAM: Final = frozenset({502, 504})
_CALLER_REFUSED: Final = frozenset({401, 403})
# Mimir and Loki act on a GET of these: no pod is called where an annotation names such a path.
_ACTS_ON_GET: Final = frozenset({"shutdown", "flush", "flush_shutdown"})


def plan_questions(installation: Installation) -> tuple[PathQuestion, ...]:
    """Return which pods are to be called, and where; sets without replicas have none to prepare."""
    return tuple(
        PathQuestion(set_name=sts.sts.name, target=target, pod=_choose_pod(sts, installation.pods))
        for sts in installation.sets
        if sts.sts.replicas > 0
        for target in _list_targets(sts)
    )


def _list_targets(sts: ZoneSet) -> Iterator[Target]:
    """Yield the places that can be called; what is wrong with others is found elsewhere."""
    targets: list[Target | NoTarget] = []
    if is_labelled(sts.sts.labels, PREPARE_DOWNSCALE):
        targets.append(plan_target(sts.sts.annotations, sts.sts.service_name))
    url = sts.sts.annotations.get(DOWNSCALE_DELAY_URL, "")
    if url:
        targets.append(plan_delay_target(url, sts.sts.service_name))
    for target in targets:
        if isinstance(target, Target) and target.path.rpartition("/")[2] not in _ACTS_ON_GET:
            yield target


def _choose_pod(sts: ZoneSet, pods: Sequence[LabelledPod]) -> str:
    """Return a ready pod of a set, empty where there is none."""
    ready = (pod.name for pod in pods if pod.is_ready)
    return min((name for name in ready if _is_of(sts, name)), default="")


def _is_of(sts: ZoneSet, pod: str) -> bool:
    name, _, ordinal = pod.rpartition("-")
    return name == sts.sts.name and ordinal.isdecimal()


def check_answers(installation: Installation) -> Iterator[Finding]:
    """Yield sets of which a pod does not answer where it is to be prepared."""
    for answer in installation.path_answers:
        code = _judge(answer)
        if code is not None:
            yield make_finding(code, f"StatefulSet {answer.question.set_name}", _describe(answer))


def explain_unknown(answers: Sequence[PathAnswer]) -> str:
    """Return why it is not known of all sets whether they answer; empty where findings are."""
    if any(_judge(answer) is not None for answer in answers):
        return ""
    unknown = [answer for answer in answers if answer.problem or answer.status in _CALLER_REFUSED]
    if not unknown:
        return ""
    first = unknown[0]
    if not first.question.pod:
        names = dict.fromkeys(
            answer.question.set_name for answer in unknown if not answer.question.pod
        )
        return f"no pod is ready of {join_names([*names])}"
    return _describe(first)


def _judge(answer: PathAnswer) -> FindingCode | None:
    if answer.status in _UNKNOWN:
        return FindingCode.PREPARE_PATH_UNKNOWN
    if answer.is_lost or answer.status in _NOT_OF_THE_PROGRAM:
        return FindingCode.PREPARE_UNANSWERED
    return None


def _describe(answer: PathAnswer) -> str:
    """Return what was requested, and what came."""
    question, target = answer.question, answer.question.target
    port = f"{target.port}" if target.scheme == "http" else f"{target.port} ({target.scheme})"
    came = answer.problem or f"HTTP status {answer.status}"
    return f"GET /{target.path} on port {port} of pod {question.pod}: {came}"
