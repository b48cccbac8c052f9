"""What the answers to dry runs say: of webhooks, and of pods that are to come.

The API server has no words for machines here: the sentence alone says which of its steps failed.
"""

import re
from collections.abc import Iterator
from typing import Final

from rollout_operator.model.diagnosis.findings import Finding, FindingCode
from rollout_operator.model.diagnosis.installation import Installation, ReachAnswer
from rollout_operator.planning.diagnosis.remedies import find
from rollout_operator.planning.wording import join_names

_FAILED: Final = re.compile(r'failed calling webhook "([^"]*)"')
_TIMED_OUT: Final = ("context deadline exceeded", "i/o timeout", "Client.Timeout exceeded")
_POD_SECURITY: Final = "violates PodSecurity"
# A webhook of another owner that has side effects: nothing is learnt of ours.
_NOT_TRIED: Final = "does not support dry run"
# Of the violations, of which the API server names all; answers are cut themselves.
_SHOWN: Final = 120
_POD: Final = re.compile(r'pods "[^"]*" is forbidden: |cannot create pods in namespace [^:]*: ')
# More pods than the quota has room for: those that are replaced have left theirs by then.
_QUOTA: Final = "exceeded quota"


def check_reach(installation: Installation) -> Iterator[Finding]:
    """Yield webhooks that the API server does not reach, or does not call."""
    for answer in installation.reach:
        yield from _judge(answer)


def _judge(answer: ReachAnswer) -> Iterator[Finding]:
    if not answer.is_answered:
        yield find(FindingCode.WEBHOOK_TIMED_OUT, answer.request, answer.error)
        return
    failed = _FAILED.search(answer.error)
    if failed is not None:
        is_late = any(arguments in answer.error for arguments in _TIMED_OUT)
        code = FindingCode.WEBHOOK_TIMED_OUT if is_late else FindingCode.WEBHOOK_UNREACHABLE
        yield find(code, f"webhook {failed[1]}", answer.error)
    # Whatever else refused it, such as the schema of another release, says nothing of ours.
    elif answer.must_be_refused and not answer.error:
        text = f"no webhook refused to {answer.request}: it was accepted"
        yield find(FindingCode.WEBHOOK_NOT_CALLED, " ".join(answer.paths), text)


def check_pods(installation: Installation) -> Iterator[Finding]:
    """Yield StatefulSets whose next pod the API server would refuse; those alike together."""
    alike: dict[tuple[FindingCode, str], list[str]] = {}
    for trial in installation.pod_trials:
        if trial.error and not any(arguments in trial.error for arguments in (_QUOTA, _NOT_TRIED)):
            alike.setdefault(_judge_refusal(trial.error), []).append(trial.set_name)
    for (code, text), (first, *others) in alike.items():
        more = f"; the same for {join_names(others)}" if others else ""
        yield find(code, f"StatefulSet {first}", f"{text}{more}")


def _judge_refusal(error: str) -> tuple[FindingCode, str]:
    """Return what is the same for all pods of a kind: their names come before it."""
    _, security, violations = error.partition(_POD_SECURITY)
    if security:
        cut = "..." if len(violations) > _SHOWN else ""
        return FindingCode.POD_SECURITY_VIOLATED, f"{security}{violations[:_SHOWN]}{cut}"
    return FindingCode.POD_REFUSED, _POD.sub("", error)
