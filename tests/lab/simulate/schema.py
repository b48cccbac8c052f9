"""The schema of a simulation as JSON, as it stands in the documents."""

from rollout_lab.simulate.report import SIMULATION_SCHEMA, SimulationDocument

from rollout_operator.web.admin import render_schema_of


def render_simulation_schema() -> bytes:
    """Return what `docs/simulate.schema.json` holds."""
    title = f"rollout-operator simulate -o json, version {SIMULATION_SCHEMA}"
    return render_schema_of(SimulationDocument, title)
