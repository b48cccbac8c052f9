"""Foresee the releases of a copy of objects: when which version would be deployed, and why then."""

from zoneinfo import ZoneInfo

from rollout_operator.lab.forecasts.observe import ForecastSpan, observe_releases
from rollout_operator.model.described.forecasts import Arrival, Forecast, RolloutForecast
from rollout_operator.model.exit_codes import ExitCode
from rollout_operator.model.releases.status import ACTIVE, BakeStatus
from rollout_operator.model.units import format_duration
from rollout_operator.operator.diagnosis.copies import ObjectsCopy
from rollout_operator.planning.forecasts.play import play_ahead


def foresee(copy: ObjectsCopy, namespace: str, span: ForecastSpan) -> Forecast:
    """Return what is foreseen. Raises InvalidInput where there is no Rollout."""
    given, problems = observe_releases(copy, namespace, span)
    played = play_ahead(given, ZoneInfo)
    settles = format_duration(span.settles_after)
    return Forecast(
        exit_code=_choose_exit_code(played.rollouts),
        begins=given.begins,
        ends=given.ends,
        rollouts=played.rollouts,
        problems=(*problems, *played.problems),
        assumptions=(
            "the operator runs with -releases.enabled",
            f"{settles} after a tag is written, Flux runs it and HealthChecks are healthy that are"
            " not Unhealthy before",
            "no other version is announced, no registry is called, and people change nothing",
        ),
    )


def _choose_exit_code(rollouts: tuple[RolloutForecast, ...]) -> ExitCode:
    """Return how it ends: what needs a person counts more than what takes longer."""
    verdicts = {rollout.versions[-1].verdict for rollout in rollouts}
    bakes = {rollout.versions[-2].bake for rollout in rollouts if len(rollout.versions) > 1}
    if Arrival.PERSON in verdicts or BakeStatus.FAILED in bakes:
        return ExitCode.NEEDS_A_PERSON
    is_late = Arrival.LATER in verdicts or not bakes.isdisjoint(ACTIVE)
    return ExitCode.TIMED_OUT if is_late else ExitCode.DONE
