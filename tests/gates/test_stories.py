"""Health checks between the zones of a whole operator, told in the texts beside this file."""

import pytest

from tests.gates.stage import GateStage
from tests.stories import check_stories
from tests.virtual_time import in_virtual_time

test_story = pytest.mark.thorough(in_virtual_time(check_stories(__file__, rollouts=GateStage)))
