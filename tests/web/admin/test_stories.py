"""The admin server on real sockets: texts of commands beside this file."""

import pytest

from tests.stories import check_stories
from tests.web.admin.stage import AdminStage

pytestmark = pytest.mark.usefixtures("no_stack_trace")

test_story = check_stories(__file__, clusters=AdminStage, pages=AdminStage)
