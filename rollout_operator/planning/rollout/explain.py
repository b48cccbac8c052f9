"""Plan → sentences, for page, CLI and logs.

Says nothing of its own: the reasons in the plan are the words, here they are only put in order.
"""

from typing import Final, assert_never

from rollout_operator.model.outcome import Action, Plan, RecordRevision, ReplacePods

# Of a thousand pods that go at once nobody reads more than the first few.
SENTENCES_PER_ACTION: Final = 10


def explain(plan: Plan) -> tuple[str, ...]:
    """Return what is done, then why the rest waits, then what is odd; one sentence each."""
    done = tuple(sentence for action in plan.actions for sentence in _explain_action(action))
    return (
        *done,
        *(reason.text for reason in plan.waits),
        *(reason.text for reason in plan.problems),
    )


def _explain_action(action: Action) -> tuple[str, ...]:
    match action:
        case ReplacePods(going=going):
            texts = [one.reason.text for one in going]
            hidden = len(texts) - SENTENCES_PER_ACTION
            more = (f"and {hidden} more",) if hidden > 0 else ()
            return (*texts[:SENTENCES_PER_ACTION], *more)
        case RecordRevision(reason=reason):
            return (reason.text,)
        case _:
            assert_never(action)
