"""The schema of a forecast as JSON, as it stands in the documents."""

from rollout_operator.model.description import FORECAST_SCHEMA, Forecast
from rollout_operator.web.admin import render_schema_of


def render_forecast_schema() -> bytes:
    """Return what `docs/simulate-releases.schema.json` holds."""
    title = f"rollout-operator simulate -releases -o json, version {FORECAST_SCHEMA}"
    return render_schema_of(Forecast, title)
