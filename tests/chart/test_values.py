"""What each value changes, and what is refused: texts of cases beside this file."""

import re
from functools import cache
from typing import Any, Final

import pytest
import yaml

from rollout_operator.config.checks import read_config
from rollout_operator.config.flags import read_environment
from tests.chart.rendering import RELEASE, ChartError, is_hook, render_all
from tests.digest import show
from tests.kustomize import Object
from tests.rendered import NAMESPACE, get_field
from tests.stories import check_tables

pytestmark = pytest.mark.controlplane

CONTAINER: Final = "spec.template.spec.containers.0"


def show_value(case: str) -> str:
    """DEP-48, DEP-82: whatever is rendered, the operator understands its arguments."""
    values, _, kind = case.partition(" @")
    before, _, after = values.rpartition(" => ")
    try:
        after = f"{before}; {after}" if before not in ("", "nothing") else after
        return show(_render(after, kind), _render(before, kind))
    except ChartError as error:
        return f"refused: {'; '.join(_list_reasons(str(error)))}"


test_a_value = check_tables(__file__, values=show_value)


@cache
def _render_text(text: str) -> list[Object]:
    values: dict[str, Any] = {}
    for part in text.split("; ") if text else ():
        [(path, value)] = yaml.safe_load(part).items()
        *parents, last = path.split(".")
        inner = values
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = value
    return render_all(values, release=RELEASE)


def _render(text: str, kind: str) -> list[Object]:
    if text == "nothing":
        return []
    objects = _render_text(text)
    (deployment,) = (one for one in objects if one["kind"] == "Deployment")
    container = get_field(deployment, CONTAINER)
    env = {one["name"]: one.get("value", "") for one in container["env"]}
    read_config(container["args"], read_environment(env, NAMESPACE))
    if kind == "hook":
        return [one for one in objects if is_hook(one)]
    return [one for one in objects if kind in ("", one["kind"])]


def _list_reasons(text: str) -> list[str]:
    """Return what is wrong; the library that checks the schema says it in any order."""
    found = re.findall(r"^(?:- at |Error: execution error at .*?\): )(.*)", text, re.MULTILINE)
    return sorted(found)
