"""What `doctor` reads, and what `status` does from outside: texts of commands beside this file."""

from tests.operator.diagnosis.examine_stage import ExamineStage
from tests.operator.diagnosis.inspect_stage import InspectStage
from tests.stories import check_stories
from tests.virtual_time import in_virtual_time

test_story = in_virtual_time(check_stories(__file__, examine=ExamineStage, inspect=InspectStage))
