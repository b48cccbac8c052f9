"""In which order a person is shown releases."""

from msgspec import UNSET
from msgspec.structs import replace

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Unreadable
from rollout_operator.operator.inspect import ObservedReleases
from rollout_operator.releases.model.plan import ReleaseObjects
from rollout_operator.releases.model.releases import RefusedRelease
from tests.planning.releases.builders import head, rollout
from tests.planning.releases.schedules.schedule_builders import schedule


def test_rollouts_are_shown_by_name_and_schedules_of_the_cluster_last() -> None:
    """Those that cannot be read or obeyed, too."""
    lost = Unreadable(
        kind="Rollout",
        namespace="prod",
        name="b",
        uid=Uid("b"),
        resource_version="1",
        error="status: no object",
    )
    refused = RefusedRelease(head=head("c"), problem="spec: no object")
    objects = ReleaseObjects(
        rollouts=(refused, replace(rollout(), head=head("a"))),
        schedules=tuple(schedule(namespace=namespace) for namespace in ("", "prod")),
        unreadable=(lost,),
    )
    observed = ObservedReleases(objects, "prod")
    shown, schedules = observed.describe_releases(), observed.describe_schedules()

    assert shown is not UNSET
    assert schedules is not UNSET
    assert [one.namespace for one in schedules] == ["prod", ""]
    assert [(one.name, one.reason) for one in shown] == [
        ("a", "NotObserved"),
        ("b", "InvalidSpec"),
        ("c", "InvalidSpec"),
    ]
