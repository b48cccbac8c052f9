"""What our webhook configurations do where the operator does not answer, as a metric shows it."""

from collections.abc import Iterable, Iterator

from rollout_operator.model.names import NAMESPACE_LABEL
from rollout_operator.model.objects import Unreadable, WebhookConfiguration


def list_failure_policies(
    configurations: Iterable[WebhookConfiguration | Unreadable], namespace: str
) -> Iterator[tuple[str, str, str]]:
    """Yield type, name and failure policy of each hook that is labelled for our namespace.

    The type is `ValidatingWebhook` or `MutatingWebhook`. Two configurations may hold hooks of one
    name, which then comes twice.
    """
    for one in configurations:
        if isinstance(one, Unreadable) or one.labels.get(NAMESPACE_LABEL) != namespace:
            continue
        for hook in one.webhooks:
            yield one.kind.removesuffix("Configuration"), hook.name, hook.failure_policy
