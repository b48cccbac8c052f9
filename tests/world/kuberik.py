"""The kinds as kuberik's rollout-controller defines them: `kuberik.yaml`."""

from pathlib import Path
from typing import Final

import yaml

from tests.world.api import Json
from tests.world.budgets import definition

GROUP: Final = "kuberik.com"
SCHEMAS: Final[dict[str, Json]] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text("utf-8")
)["kinds"]


def render_kinds() -> list[Json]:
    return [_render(kind, schema) for kind, schema in SCHEMAS.items()]


def _render(kind: str, schema: Json) -> Json:
    text = {"type": "string"}
    meta = {"apiVersion": text, "kind": text, "metadata": {"type": "object"}}
    whole = {**schema, "properties": {**meta, **schema["properties"]}}
    scope = "Cluster" if kind.startswith("Cluster") else "Namespaced"
    return definition(GROUP, kind, f"{kind.lower()}s", ["v1alpha1"], whole, scope)
