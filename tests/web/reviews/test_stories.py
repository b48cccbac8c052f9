"""Reviews, their answers and their way to the replica that leads: texts beside this file."""

from tests.stories import check_stories
from tests.virtual_time import in_virtual_time
from tests.web.reviews.answer_stage import AnswerStage, NamespaceStage
from tests.web.reviews.peer_stage import PeerStage

test_story = in_virtual_time(
    check_stories(__file__, answers=AnswerStage, namespaces=NamespaceStage)
)


test_story_over_tls = check_stories(__file__, peers=PeerStage)
