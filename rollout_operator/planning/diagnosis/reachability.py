"""What the answers to dry runs say: of webhooks, and of pods that are to come.

The API server has no words for machines here: the sentence alone tells which of its steps failed.
"""

import re
from collections.abc import Iterator
from typing import Final

from rollout_operator.model.diagnosis.findings import Finding, FindingCode
from rollout_operator.model.diagnosis.installation import Installation, ReachAnswer
from rollout_operator.planning.diagnosis.remedies import find

_FAILED: Final = re.compile(r'failed calling webhook "([^"]*)"')
_DENIED: Final = re.compile(r'admission webhook "([^"]*)" denied the request')
_TIMED_OUT: Final = ("context deadline exceeded", "i/o timeout", "Client.Timeout exceeded")
_POD_SECURITY: Final = "violates PodSecurity"
# A webhook of somebody else that has side effects: nothing is learnt of ours.
_NOT_TRIED: Final = "does not support dry run"
# More pods than the quota has room for: those that are replaced have left theirs by then.
_QUOTA: Final = "exceeded quota"


def check_reach(installation: Installation) -> Iterator[Finding]:
    """Yield webhooks that the API server does not reach, or does not ask."""
    for answer in installation.reach:
        yield from _judge(answer)


def _judge(answer: ReachAnswer) -> Iterator[Finding]:
    if not answer.is_answered:
        yield find(FindingCode.WEBHOOK_TIMED_OUT, answer.request, answer.error)
        return
    failed = _FAILED.search(answer.error)
    if failed is not None:
        is_late = any(words in answer.error for words in _TIMED_OUT)
        code = FindingCode.WEBHOOK_TIMED_OUT if is_late else FindingCode.WEBHOOK_UNREACHABLE
        yield find(code, f"webhook {failed[1]}", answer.error)
    elif _NOT_TRIED in answer.error:
        return
    elif answer.must_be_refused and not _DENIED.search(answer.error):
        told = answer.error or "it was accepted"
        text = f"no webhook refused to {answer.request}: {told}"
        yield find(FindingCode.WEBHOOK_NOT_CALLED, " ".join(answer.paths), text)


def check_pods(installation: Installation) -> Iterator[Finding]:
    """Yield StatefulSets whose next pod the API server would refuse."""
    for trial in installation.pod_trials:
        name = f"StatefulSet {trial.set_name}"
        if _POD_SECURITY in trial.error:
            yield find(FindingCode.POD_SECURITY_VIOLATED, name, trial.error)
        elif trial.error and not any(words in trial.error for words in (_QUOTA, _NOT_TRIED)):
            yield find(FindingCode.POD_REFUSED, name, trial.error)
