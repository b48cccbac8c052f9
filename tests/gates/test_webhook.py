"""What the webhook answers to a health check under review."""

from pathlib import Path
from typing import Final

import msgspec
import pytest

from rollout_operator.config.checks import read_config
from rollout_operator.gates.prometheus import AllowedUrls
from rollout_operator.gates.webhook import review_health_check
from rollout_operator.model.decode.review import decode_review
from tests.gates.trees import health_check_tree
from tests.goldens import Golden
from tests.model.cases import bend
from tests.model.review_trees import review_tree
from tests.stories import Story, read_stories

STORIES: Final = read_stories(Path(__file__).parent / "reviews.txt")
ALLOWED: Final = AllowedUrls(read_config(["-kubernetes.namespace=prod"]))


@pytest.mark.parametrize("story", STORIES)
def test_review(story: Story, golden: Golden) -> None:
    [text] = story.commands
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
    story.check("; ".join([verdict.reason.code, *said, *verdict.warnings]), golden)
