"""A simulation as one JSON object for machines; times are seconds since the start."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.history import History
from rollout_operator.lab.simulate.flags import show_time
from rollout_operator.lab.simulate.report import FIRST_STEP, SimulationRun
from rollout_operator.lab.trace.lines import Storyteller
from rollout_operator.planning.wording import explain

_INDENT: Final = 2


def render_json(told: SimulationRun) -> str:
    """Return it, for people to read as well."""
    figures = told.figures
    found: JsonObject = {
        "namespace": told.dump.namespace,
        "groups": told.dump.groups,
        "begins": show_time(told.epoch),
        "readyAfter": {group: _seconds(one.span) for group, one in told.ready.items()},
        "terminatesAfter": _seconds(told.settings.terminates_after),
        "steps": list(_list_steps(told)),
        "ends": {str(one.plan.group): explain(one.plan) for one in told.play.entries},
        "seconds": _seconds(told.play.moved_at),
        "isCutOff": told.play.is_cut,
        "deletes": figures.deletes,
        "mostDown": figures.most_down,
        "downTogether": [
            {
                "zones": one.zones,
                "at": _seconds(one.begin),
                "seconds": _seconds(one.span),
                "isOpen": one.is_open,
            }
            for one in figures.overlaps
        ],
        "refusals": figures.refusals,
    }
    return msgspec.json.format(msgspec.json.encode(found), indent=_INDENT).decode()


def _list_steps(told: SimulationRun) -> Iterator[JsonObject]:
    for line in Storyteller(History(records=told.records())).tell():
        if line.at >= FIRST_STEP:
            yield {
                "at": _seconds(line.at),
                "who": line.who,
                "what": line.what,
                "text": line.text,
            }


def _seconds(span: timedelta) -> float:
    return round(span.total_seconds(), 3)
