"""What the webhook answers to a health check under review."""

from typing import Final

import msgspec

from rollout_operator.config.checks import read_config
from rollout_operator.gates.prometheus import AllowedUrls
from rollout_operator.gates.webhook import review_health_check
from rollout_operator.model.decode.review import decode_review
from tests.gates.trees import health_check_tree
from tests.model.cases import bend
from tests.model.review_trees import review_tree
from tests.stories import check_tables

ALLOWED: Final = AllowedUrls(read_config(["-kubernetes.namespace=prod"]))


def show(text: str) -> str:
    operation, _, changes = text.partition(" ")
    operation, _, subresource = operation.partition("/")
    tree = review_tree(
        operation=operation,
        subResource=subresource,
        object=bend(health_check_tree(), changes),
        oldObject=None,
    )

    verdict = review_health_check(decode_review(msgspec.json.encode(tree)), ALLOWED)

    said = [] if verdict.is_allowed else [f"{verdict.code} {verdict.reason.text}"]
    return "; ".join([verdict.reason.code, *said, *verdict.warnings])


test_review = check_tables(__file__, reviews=show)
