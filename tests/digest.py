"""Kubernetes objects in few lines, and what distinguishes two renderings of them.

Of labels and annotations what each object has is left out, a rule of a Role and the ends of a
binding stand in one word, and a schema without its descriptions.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

from tests.kustomize import Object

_WIDTH: Final = 120
_LONGEST: Final = 1200
_USUAL: Final = {
    **dict.fromkeys(("name", "part-of", "instance"), "rollout-operator"),
    "managed-by": "Helm",
}
_VERSIONS: Final = {"version", "helm.sh/chart"}
_SHORT: Final = {"spec.template.spec.containers.0": "container", "spec.template.spec": "pod"}
_NOTHING: Final = object()


def show(after: Iterable[Object], before: Iterable[Object] = ()) -> str:
    """Return each object that came or went, and the fields of the others that changed.

    Objects that change alike stand in one line.
    """
    old, new = _sort(before), _sort(after)
    lines: dict[str, list[str]] = {}
    for kind in dict.fromkeys([*old, *new]):
        was, now = old.get(kind, {}), new.get(kind, {})
        renamed = {}
        if len(was) == len(now) == 1 and was.keys() != now.keys():
            renamed = dict(zip(now, was, strict=True))
        for name in dict.fromkeys([*was, *now]):
            if name in renamed.values():
                continue
            before_it, after_it = was.get(renamed.get(name, name)), now.get(name)
            if after_it is None:
                change = "-"
            elif before_it is None:
                change = f"+ {_flow(after_it)}"
            else:
                changes = _compare("", before_it, after_it)
                if name in renamed:
                    changes.insert(0, f"name: {renamed[name]} -> {name}")
                change = f"~ {'; '.join(changes)}" if changes else ""
            if change:
                lines.setdefault(change, []).append(f"{kind} {name}")
    return (
        "\n".join(
            f"{change[0]} {', '.join(names)} {change[2:]}".rstrip()
            for change, names in lines.items()
        )
        or "the same"
    )


def shape(schema: Mapping[str, Any]) -> Any:
    """Return the fields of a schema and what narrows them; a `!` is behind what is required."""
    rest = {
        key: value
        for key, value in schema.items()
        if key not in {"description", "type", "properties", "items", "required"}
    }
    if "x-kubernetes-validations" in rest:
        rules = rest.pop("x-kubernetes-validations")
        rest["rules"] = {one["message"]: " ".join(one["rule"].split()) for one in rules}
    required = schema.get("required", ())
    inner = {
        f"{key}!" if key in required else key: shape(one)
        for key, one in schema.get("properties", {}).items()
    }
    if "items" in schema:
        return [shape(schema["items"]), *([rest] if rest else [])]
    if inner or not isinstance(schema.get("type"), str):
        return {**inner, **{f"({key})": value for key, value in rest.items()}}
    words = " ".join(f"{key}={_flow(value)}" for key, value in rest.items())
    return f"{schema['type']} {words}".strip()


def _sort(objects: Iterable[Object]) -> dict[str, dict[str, Object]]:
    found: dict[str, dict[str, Object]] = {}
    for one in objects:
        found.setdefault(one["kind"], {})[one["metadata"]["name"]] = _shorten(one)
    return found


def _shorten(one: Object) -> Object:
    shown = {key: one[key] for key in one if key not in {"apiVersion", "kind", "metadata"}}
    metadata = {key: value for key, value in one["metadata"].items() if key != "name"}
    labels = {
        key.removeprefix("app.kubernetes.io/"): value
        for key, value in metadata.pop("labels", {}).items()
    }
    labels = {
        key: value
        for key, value in sorted(labels.items())
        if key not in _VERSIONS and _USUAL.get(key) != value
    }
    if labels:
        metadata["labels"] = labels
    if one["kind"] == "Pod":
        shown["spec"] = {"template": {"spec": shown["spec"]}}
    if "rules" in shown and one["kind"].endswith("Role"):
        shown["rules"] = [_tell_rule(rule) for rule in shown["rules"]]
    if one["kind"].endswith("Binding"):
        to = shown.pop("roleRef")
        shown["binds"] = f"{to['kind']} {to['name']}"
        shown["to"] = ", ".join(
            f"{each['kind']} {each.get('namespace', '')}/{each['name']}"
            for each in shown.pop("subjects")
        )
    if one["kind"] == "PrometheusRule":
        [group] = shown.pop("spec")["groups"]
        shown["alerts"] = {
            rule["alert"]: f"{rule['for']} {rule['labels']['severity']}" for rule in group["rules"]
        }
    if one["kind"] == "CustomResourceDefinition":
        shown["spec"] = _tell_kind(one["spec"])
    return {**metadata, **shown}


def _tell_rule(rule: Mapping[str, list[str]]) -> str:
    resources = ",".join(
        f"{group}/{resource}".lstrip("/")
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    )
    names = f"[{','.join(rule['resourceNames'])}]" if "resourceNames" in rule else ""
    return f"{resources}{names}: {' '.join(rule['verbs'])}"


def _tell_kind(spec: Object) -> Object:
    versions = {
        one["name"]: {
            **{
                key: value
                for key, value in one.items()
                if key not in {"name", "schema", "additionalPrinterColumns"}
            },
            "columns": {
                each["name"]: each["jsonPath"] for each in one.get("additionalPrinterColumns", ())
            },
            "schema": shape(one["schema"]["openAPIV3Schema"]),
        }
        for one in spec["versions"]
    }
    return {**spec, "versions": versions}


def _compare(path: str, old: Any, new: Any) -> list[str]:
    if old == new:
        return []
    if isinstance(old, list) and isinstance(new, list):
        is_one = len(old) == len(new) == 1
        old, new = (_name(one, by_place=is_one) for one in (old, new))
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            change
            for key in dict.fromkeys([*old, *new])
            for change in _compare(
                f"{path}.{key}" if path else key, old.get(key, _NOTHING), new.get(key, _NOTHING)
            )
        ]
    for long, short in _SHORT.items():
        path = path.replace(long, short)
    if isinstance(old, list) and isinstance(new, list):
        came = [f"+{_flow(one)}" for one in new if one not in old]
        went = [f"-{_flow(one)}" for one in old if one not in new]
        return [f"{path}: {' '.join([*went, *came]) or 'in another order'}"]
    if old is _NOTHING:
        return [f"{path}: {_flow(new)}"]
    return [f"{path}: {_flow(old)} -> {'nothing' if new is _NOTHING else _flow(new)}"]


def _name(value: list[Any], *, by_place: bool) -> Any:
    """Return a list of objects as a map, by their names where there are several."""
    if not value or not all(isinstance(one, dict) for one in value):
        return value
    return {
        str(place) if by_place else one.get("name", place): one for place, one in enumerate(value)
    }


def _flow(value: Any) -> str:
    text = yaml.safe_dump(
        _cut(value), default_flow_style=True, width=_WIDTH, sort_keys=False, allow_unicode=True
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _cut(value: Any) -> Any:
    """Return it with the size in place of a text that is a file of its own."""
    match value:
        case dict():
            return {key: _cut(inner) for key, inner in value.items()}
        case list():
            return [_cut(inner) for inner in value]
        case str() if len(value) > _LONGEST:
            return f"{value.count(chr(10))} lines"
        case str():
            return " ".join(value.split()) if "\n" in value else value
    return value
