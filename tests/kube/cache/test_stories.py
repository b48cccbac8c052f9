"""What caches make of the answers of an API server: stories on virtual time."""

from tests.kube.cache.kinds_stage import FollowedStage, NodesStage, OptionalStage
from tests.kube.cache.stage import InformerStage
from tests.stories import check_stories
from tests.virtual_time import in_virtual_time

test_story = in_virtual_time(
    check_stories(
        __file__,
        informer=InformerStage,
        doubt=InformerStage,
        streamed=InformerStage,
        optional=OptionalStage,
        followed=FollowedStage,
        nodes=NodesStage,
    )
)
