"""What replicas should become, and what holds them back: a case a line, read by `scalings`."""

from rollout_operator.planning.replicas import keeps_time
from rollout_operator.planning.scaling import list_references, plan_scaling
from tests.planning.scalings import read_snapshot, show_plan
from tests.stories import check_tables


def show(case: str) -> str:
    """Return the plan for a view, or one part of it where the case begins with its word."""
    word, _, rest = case.partition(": ")
    match word:
        case "stable":
            lines = show_plan(plan_scaling(read_snapshot(rest)), stable=True)
        case "urls":
            calls = plan_scaling(read_snapshot(rest)).pod_calls
            lines = [
                f"{one.scheme}://{one.host}:{one.port}/{one.path} {one.query} {one.ip}"
                for two in calls
                for one in two.post
            ]
        case "references":
            sets = [zone.sts for zone in read_snapshot(rest).group.zones]
            lines = [f"{one}" for one in list_references(sets)]
        case "keeping":
            sets = [zone.sts for zone in read_snapshot(rest).group.zones]
            lines = [sts.name for sts in sets if keeps_time(sts, sets)]
        case _:
            lines = show_plan(plan_scaling(read_snapshot(case)))
    return "; ".join(lines) or "nothing"


test_a_case = check_tables(__file__, delays=show, following=show, mirroring=show, permission=show)
