"""Series, health and the log: texts of commands beside this file."""

from tests.stories import check_stories
from tests.telemetry.metrics_stage import MetricsStage
from tests.telemetry.release_stage import ReleaseStage
from tests.telemetry.small_stages import HealthStage, LogStage

test_story = check_stories(
    __file__, groups=MetricsStage, metrics=MetricsStage, releases=ReleaseStage, log=LogStage
)
test_health = check_stories(__file__, health=HealthStage)
