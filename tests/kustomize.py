"""Render a kustomization as `kubectl kustomize` does, as far as the shipped manifests need it.

A field, a patch or an option that is not known here is an error and never skipped, so that no test
passes on half a rendering. The order of the steps is kustomize's: resources, components (which see
what there is so far, before this kustomization's own namespace), patches, namespace, images,
replacements; at the very end references follow and local configuration is dropped.
"""

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

# Parsed YAML: whatever the file says.
Object = dict[str, Any]

_KINDS: Final = {"Kustomization", "Component"}
_FIELDS: Final = {
    "apiVersion",
    "kind",
    "resources",
    "components",
    "patches",
    "namespace",
    "images",
    "replacements",
    "configMapGenerator",
}
_CLUSTER_SCOPED: Final = {
    "Namespace",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
}
_LOCAL: Final = "config.kubernetes.io/local-config"
_SEGMENT: Final = re.compile(r"\[([^\]]+)\]|([^.]+)")


class KustomizeError(Exception):
    """The folder does not render, or only with a feature that is not known here."""


def render(folder: Path) -> list[Object]:
    """Return the objects that a folder renders to. Raises KustomizeError."""
    objects = _accumulate(folder, [])
    for each in objects:
        _follow_references(each, objects)
    return [each for each in objects if not _is_local(each)]


def _accumulate(folder: Path, objects: list[Object]) -> list[Object]:
    """Return `objects` with what a folder adds to them and makes of them."""
    loaded: Object = yaml.safe_load((folder / "kustomization.yaml").read_text())
    _only(loaded, _FIELDS, f"{folder.name}/kustomization.yaml")
    if loaded.get("kind", "Kustomization") not in _KINDS:
        raise KustomizeError(f"{folder.name}: kind {loaded['kind']}")
    for entry in loaded.get("resources", ()):
        path = (folder / entry).resolve()
        found = _accumulate(path, []) if path.is_dir() else _load(path)
        objects = [*objects, *found]
        _refuse_twins(objects)
    for entry in loaded.get("components", ()):
        objects = _accumulate((folder / entry).resolve(), objects)
        _refuse_twins(objects)
    objects = [*objects, *(_generate(folder, one) for one in loaded.get("configMapGenerator", ()))]
    _refuse_twins(objects)
    for patch in loaded.get("patches", ()):
        _patch(objects, patch)
    if "namespace" in loaded:
        _set_namespace(objects, loaded["namespace"])
    for image in loaded.get("images", ()):
        _set_image(objects, image)
    for replacement in loaded.get("replacements", ()):
        _replace(objects, replacement)
    return objects


def _load(path: Path) -> list[Object]:
    return [copy.deepcopy(one) for one in yaml.safe_load_all(path.read_text()) if one]


def _generate(folder: Path, given: Object) -> Object:
    """Return a ConfigMap of files, each `key=path`."""
    _only(given, {"name", "files", "options"}, "configMapGenerator")
    options = given["options"]
    _only(options, {"disableNameSuffixHash", "labels"}, "configMapGenerator.options")
    if not options.get("disableNameSuffixHash"):
        raise KustomizeError(f"{given['name']}: a name with a hash")
    files = dict(entry.split("=") for entry in given["files"])
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": given["name"], "labels": dict(options["labels"])},
        "data": {key: (folder / path).read_text() for key, path in files.items()},
    }


def _refuse_twins(objects: list[Object]) -> None:
    keys = [(one["kind"], one["metadata"].get("namespace"), _name(one)) for one in objects]
    twins = {key for key in keys if keys.count(key) > 1}
    if twins:
        raise KustomizeError(f"twice: {sorted(map(str, twins))}")


def _set_namespace(objects: list[Object], namespace: str) -> None:
    for one in objects:
        if one["kind"] == "Namespace":
            one["metadata"]["name"] = namespace
        elif one["kind"] not in _CLUSTER_SCOPED:
            one["metadata"]["namespace"] = namespace


def _set_image(objects: list[Object], image: Object) -> None:
    _only(image, {"name", "newName", "newTag"}, "images")
    for one in objects:
        if one["kind"] == "Deployment":
            for container in one["spec"]["template"]["spec"]["containers"]:
                # A tag that another kustomization has given does not count.
                if re.fullmatch(rf"{re.escape(image['name'])}(:[\w.-]+)?", container["image"]):
                    name = image.get("newName", image["name"])
                    container["image"] = f"{name}:{image['newTag']}"


def _follow_references(one: Object, objects: list[Object]) -> None:
    """Complete a subject that names no namespace by that of the account it means."""
    for subject in one.get("subjects", ()):
        spaces = {
            other["metadata"].get("namespace")
            for other in objects
            if (other["kind"], _name(other)) == (subject["kind"], subject["name"])
        }
        here = one["metadata"].get("namespace")
        if "namespace" not in subject and here in spaces and here is not None:
            subject["namespace"] = here


def _is_local(one: Object) -> bool:
    return bool(one["metadata"].get("annotations", {}).get(_LOCAL) == "true")


# --- patches -----------------------------------------------------------------------------------


def _patch(objects: list[Object], patch: Object) -> None:
    _only(patch, {"target", "patch"}, "patches")
    for one in _select(objects, patch["target"]):
        for step in yaml.safe_load(patch["patch"]):
            try:
                _take_step(one, step)
            except (KeyError, IndexError) as error:
                raise KustomizeError(f"{_name(one)}: nothing at {step['path']}") from error


def _take_step(one: Object, step: Object) -> None:
    *parents, last = (part.replace("~1", "/") for part in step["path"].split("/")[1:])
    holder: Any = one
    for part in parents:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    match step["op"], holder:
        case "add", list() if last == "-":
            holder.append(copy.deepcopy(step["value"]))
        case "add", dict():
            holder[last] = copy.deepcopy(step["value"])
        case "test", dict() | list():
            found = holder[int(last)] if isinstance(holder, list) else holder.get(last)
            if found != step["value"]:
                raise KustomizeError(f"{_name(one)}: test of {step['path']} failed: {found!r}")
        case _:
            raise KustomizeError(f"{_name(one)}: {step['op']} at {step['path']}")


# --- replacements ------------------------------------------------------------------------------


def _replace(objects: list[Object], replacement: Object) -> None:
    _only(replacement, {"source", "targets"}, "replacements")
    value = _read_source(objects, replacement["source"])
    for target in replacement["targets"]:
        _only(target, {"select", "fieldPaths", "options"}, "replacements.targets")
        options = target.get("options", {})
        _only(options, {"delimiter", "index", "create"}, "options")
        # As in kustomize: what nothing matches is no error, what has no such field is one.
        for one in list(_select(objects, target["select"])):
            for path in target["fieldPaths"]:
                for place in _spread(one, path):
                    _write(one, place, value, options)


def _read_source(objects: list[Object], source: Object) -> str:
    _only(source, {"kind", "name", "fieldPath"}, "replacements.source")
    found = [
        one for one in objects if (one["kind"], _name(one)) == (source["kind"], source["name"])
    ]
    if len(found) != 1:
        raise KustomizeError(f"{len(found)} sources {source['kind']} {source['name']}")
    holder, last = _walk(found[0], source["fieldPath"])
    value = holder.get(last) if isinstance(holder, dict) else holder[last]
    if not value:
        raise KustomizeError(f"{source['fieldPath']} is missing for source {source['name']}")
    return str(value)


def _write(one: Object, path: str, value: str, options: Object) -> None:
    holder, last = _walk(one, path)
    there = last < len(holder) if isinstance(holder, list) else last in holder
    if not there and not options.get("create"):
        raise KustomizeError(f"{_name(one)}: no field {path}")
    if "delimiter" in options:
        parts = holder[last].split(options["delimiter"])
        parts[options.get("index", 0)] = value
        value = options["delimiter"].join(parts)
    holder[last] = value


def _spread(one: Object, path: str) -> list[str]:
    """Return a path once for each item of the lists that a `*` in it stands for."""
    before, star, after = path.partition(".*.")
    if not star:
        return [path]
    holder, last = _walk(one, before)
    places = range(len(holder[last]))
    return [end for place in places for end in _spread(one, f"{before}.{place}.{after}")]


def _walk(one: Object, path: str) -> tuple[Any, Any]:
    """Return what holds the field at the end of a path, and its key or index there."""
    *parents, last = (match[1] or match[2] for match in _SEGMENT.finditer(path))
    holder: Any = one
    for part in parents:
        try:
            holder = holder[int(part)] if isinstance(holder, list) else holder[part]
        except (KeyError, IndexError) as error:
            raise KustomizeError(f"{_name(one)}: no field {path}") from error
    return holder, int(last) if isinstance(holder, list) else last


# --- selection ---------------------------------------------------------------------------------


def _select(objects: list[Object], target: Object) -> Iterator[Object]:
    """Yield what a target selects; kind and name are whole regular expressions."""
    _only(target, {"kind", "name", "labelSelector"}, "target")
    wanted = dict(pair.split("=") for pair in target.get("labelSelector", "").split(",") if pair)
    for one in objects:
        if (
            re.fullmatch(target.get("kind", ".*"), one["kind"])
            and re.fullmatch(target.get("name", ".*"), _name(one))
            and wanted.items() <= one["metadata"].get("labels", {}).items()
        ):
            yield one


def _name(one: Object) -> str:
    return str(one["metadata"]["name"])


def _only(given: Object, known: set[str], where: str) -> None:
    if unknown := set(given) - known:
        raise KustomizeError(f"{where}: {sorted(unknown)} is not known here")
