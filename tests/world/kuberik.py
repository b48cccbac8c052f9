"""The kinds as kuberik's rollout-controller defines them: `kuberik.yaml`."""

from pathlib import Path
from typing import Final

import yaml

from tests.world.api import Json

GROUP: Final = "kuberik.com"
SCHEMAS: Final[dict[str, Json]] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text("utf-8")
)["kinds"]


def render_kinds() -> list[Json]:
    return [_render(kind, schema) for kind, schema in SCHEMAS.items()]


def _render(kind: str, schema: Json) -> Json:
    plural = f"{kind.lower()}s"
    meta: Json = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    version: Json = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {**schema, "properties": {**meta, **schema["properties"]}}},
    }
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster" if kind.startswith("Cluster") else "Namespaced",
            "names": names,
            "versions": [version],
        },
    }
