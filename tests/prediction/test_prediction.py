"""How near a forecast came, and what is read from one: a text of commands beside this file."""

from tests.prediction.comparison import Cause, Going, compare, read_goings
from tests.stories import Stage, check_stories


class ForecastStage(Stage):
    """Forecasts and what happened; pods that go are as `a-0 e:a-1@4.5`: cause, name and second."""

    async def do_compare(self, foreseen: str, happened: str) -> str:
        """Show how near it came."""
        return compare(_read(foreseen), _read(happened)).value

    async def do_goings(self, *steps: str) -> str:
        """Show the pods that go by the steps of a simulation, `a-0:going down`."""
        found = [{"at": at, "text": one.partition(":")[2]} for at, one in enumerate(steps)]
        for one, step in zip(found, steps, strict=True):
            one["what"] = step.partition(":")[0]
        return ", ".join(f"{one.pod} {one.cause}" for one in read_goings({"steps": found}))


def _read(text: str) -> list[Going]:
    """Return pods that go; those without a second go one second after another."""
    found = []
    for place, word in enumerate(text.split()):
        name, _, at = word.removeprefix("e:").partition("@")
        cause = Cause.EVICTED if word.startswith("e:") else Cause.DELETED
        found.append(Going(name, cause, float(at or place)))
    return found


test_forecast = check_stories(__file__, forecasts=ForecastStage)
