"""Downscales from the review to the last pod: texts of commands beside this file."""

import pytest

from tests.stories import check_stories
from tests.virtual_time import in_virtual_time
from tests.web.downscales.label_stage import LabelStage
from tests.web.downscales.stage import DownscaleStage

pytestmark = pytest.mark.thorough

OTHERS = [
    "doubt",
    "forged",
    "late",
    "prepared",
    "repeated",
    "rollouts",
    "shares",
    "targets",
    "tracker",
    "undone",
]

test_story = in_virtual_time(
    check_stories(__file__, **dict.fromkeys(OTHERS, DownscaleStage), labels=LabelStage)
)
