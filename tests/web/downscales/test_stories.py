"""Downscales from the review to the last pod: texts of commands beside this file."""

from pathlib import Path

import pytest

from tests.stories import check_stories
from tests.virtual_time import in_virtual_time
from tests.web.downscales.label_stage import LabelStage
from tests.web.downscales.stage import DownscaleStage

pytestmark = pytest.mark.thorough

OTHERS = {one.stem for one in Path(__file__).parent.glob("*.txt")} - {"labels", "times"}

test_story = in_virtual_time(
    check_stories(__file__, **dict.fromkeys(OTHERS, DownscaleStage), labels=LabelStage)
)
