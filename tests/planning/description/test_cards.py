"""What people read of a description: `cards.txt` beside this file."""

from tests.planning.description.card_stage import CardStage
from tests.stories import check_stories

test_story = check_stories(__file__, cards=CardStage)
