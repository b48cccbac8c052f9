"""Who may import whom: the architecture as a table, checked on every import of the package.

Layers outside, features inside: a module may import what the table of its layer names, and inside
the layer what the table of its folder names.
"""

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.code_rules import PACKAGE, Module, list_calls, list_imports, load_modules, load_package

NAME = PACKAGE.name
# From the ground up. A layer always sees itself.
MAY_IMPORT: Mapping[str, Iterable[str]] = {
    "": (),
    "model": (),
    "aio": (),
    "planning": ("model",),
    "config": ("model",),
    "telemetry": ("model", "aio"),
    "kube": ("model", "aio", "telemetry"),
    "pods": ("model", "aio", "telemetry"),
    "oci": ("model", "aio", "telemetry"),
    "pki": ("model", "planning", "aio", "telemetry", "kube"),
    "guards": ("model", "planning", "aio", "telemetry", "kube"),
    "controllers": ("model", "planning", "aio", "telemetry", "kube", "pods", "oci", "guards"),
    "web": ("model", "planning", "aio", "telemetry", "kube", "pods", "guards"),
}
LAYERS: Mapping[str, Iterable[str]] = {
    **MAY_IMPORT,
    "operator": {*MAY_IMPORT},
    "lab": {*MAY_IMPORT, "operator"} - {"pki", "oci"},
    "cli": ("model", "aio", "planning", "config", "telemetry", "kube", "operator", "lab"),
    "__main__": ("cli",),
}
# The folders of a layer, and which of its others each of them may import; "" are its own modules.
INSIDE: Mapping[str, Mapping[str, Iterable[str]]] = {
    "model": {
        "": ("described",),
        "described": ("",),
        "reasons": ("",),
        "policy": ("",),
        "diagnosis": ("", "policy", "releases"),
        "adoption": ("", "diagnosis"),
        "releases": ("",),
        "decode": ("", "diagnosis", "adoption", "policy", "releases"),
        "decode.releases": ("", "policy", "releases", "decode"),
    },
    "planning": {
        "": (),
        "rollout": ("",),
        "downscales": ("", "rollout"),
        "budgets": ("", "rollout", "downscales"),
        "scaling": ("", "rollout", "downscales"),
        "description": ("", "rollout", "budgets", "policies"),
        "description.releases": ("", "description", "releases"),
        "diagnosis": ("", "rollout", "downscales", "policies", "releases"),
        "adoption": ("", "diagnosis"),
        "policies": ("", "rollout"),
        "releases": ("",),
        "forecasts": ("", "releases", "releases.schedules", "description", "description.releases"),
        "releases.schedules": ("", "releases"),
        "releases.checks": ("", "releases"),
    },
    "kube": {
        "": (),
        "connection": ("",),
        "client": ("", "connection"),
        "cache": ("",),
        "scales": ("", "client", "cache"),
    },
    "guards": {"": (), "budgets": ("",), "downscales": ("",)},
    "controllers": {
        "": (),
        "rollout": ("",),
        "scaling": ("",),
        "downscales": ("",),
        "budgets": ("",),
        "shadow": ("",),
        "policies": ("", "rollout"),
        "releases": ("",),
        "releases.schedules": ("", "releases"),
        "releases.checks": ("", "releases"),
    },
    "web": {
        "": ("http", "reviews", "status"),
        "http": (),
        "reviews": (),
        "status": ("http",),
    },
    "lab": {
        "model": (),
        "virtual_loop": (),
        "trace": ("model",),
        "schemas": ("model",),
        "admission": ("model", "schemas"),
        "apiserver": ("model", "schemas", "admission", "virtual_loop"),
        "controllers": ("model", "schemas", "virtual_loop"),
        "nodes": ("model", "schemas", "virtual_loop"),
        "network": ("model", "apiserver", "virtual_loop"),
        "": (
            "model",
            "virtual_loop",
            "trace",
            "schemas",
            "admission",
            "apiserver",
            "controllers",
            "nodes",
            "network",
        ),
        "demo": ("", "model", "virtual_loop", "trace", "schemas", "admission", "nodes"),
        "simulate": (
            "",
            "model",
            "virtual_loop",
            "trace",
            "schemas",
            "admission",
            "controllers",
            "nodes",
            "forecasts",
        ),
        "forecasts": ("model",),
    },
    "operator": {"": ("releases",), "diagnosis": (), "releases": ("",)},
    "cli": {"": ("text",), "text": ()},
}
# The simulated cluster knows nothing of the operator but what calls look like and what they mean.
CLUSTER = {*INSIDE["lab"]} - {"", "demo", "simulate", "forecasts"}
CLUSTER_SEES = {
    "model",
    "aio",
    "kube.api",
    "kube.call",
    "kube.release_kinds",
    "kube.client.rate_limit",
    "kube.client.responses",
}
# These run in the lab as well: whatever opens the clients also serves, signs and reads flags.
_INNER = (
    *("process", "context", "rollout", "scaling", "budgets", "shadow", "describe", "events"),
    *("engine", "fleet", "policies"),
)
INNER = {f"operator.{name}" for name in _INNER}
NOT_INNER = {"web", "pki"}
ONLY_IN = {
    "kubernetes_asyncio": {"kube"},
    "cryptography": {"pki"},
    "prometheus_client": {"telemetry"},
    "aiohttp": {"kube", "pods", "oci", "web"},
    "opentelemetry": {"telemetry"},
}
PURE = {"model", "planning"}
# A time zone by its name is a file of the machine.
IMPURE = {"asyncio", "time", "random", "os", "socket", "ssl", "logging", "zoneinfo"}
# Files and the clock of the machine need no import to get at.
IMPURE_CALLS = {"open", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}


def check_layers(modules: Iterable[Module]) -> list[str]:
    """Return one line for each thing that stands where the tables do not want it."""
    findings: list[str] = []
    for module in modules:
        if module.layer not in LAYERS:
            findings.append(f"{module.path}: {module.layer} stands in no table")
            continue
        if module.folder not in _map_folders(module):
            findings.append(f"{module.path}: {module.layer}.{module.folder} stands in no table")
            continue
        for node, name in list_imports(module):
            findings += [module.at(node, what) for what in _judge_import(module, name)]
        if module.layer in PURE:
            findings += [
                module.at(call, f"{name}() in {module.layer}")
                for call, name in list_calls(module)
                if name in IMPURE_CALLS
            ]
    return findings


def _map_folders(module: Module) -> Mapping[str, Iterable[str]]:
    return INSIDE.get(module.layer, {"": ()})


def _judge_import(module: Module, name: str) -> Iterable[str]:
    top, *rest = name.split(".")
    layer = module.layer
    if not top:
        yield f"relative import {name}"
    if top in ONLY_IN and layer not in ONLY_IN[top]:
        yield f"{layer} imports {top}"
    if top in IMPURE and layer in PURE:
        yield f"{layer} imports {top}"
    # What is no layer is a name of the top package itself, such as its version.
    if top != NAME or not rest or rest[0] not in LAYERS:
        return
    target = rest[0]
    if target not in {layer, *LAYERS[layer]}:
        yield f"{layer} imports {target}"
    if target == layer:
        yield from _judge_inside(module, rest)
    elif layer == "lab" and module.folder in CLUSTER and not _is_below(rest, CLUSTER_SEES):
        yield f"lab.{module.folder} imports {'.'.join(rest[:-1]) or target}"
    if target in NOT_INNER and module.name in INNER:
        yield f"{module.name} imports {target}"


def _judge_inside(module: Module, rest: Sequence[str]) -> Iterable[str]:
    folders = _map_folders(module)
    target = rest[1] if len(rest) > 1 and rest[1] in folders else ""
    if target not in {module.folder, *folders[module.folder]}:
        where = f"{module.layer}.{module.folder}" if module.folder else module.name
        yield f"{where} imports {module.layer}.{target or rest[1]}"


def _is_below(rest: Sequence[str], allowed: Iterable[str]) -> bool:
    name = ".".join(rest)
    return any(name == one or name.startswith(f"{one}.") for one in allowed)


def list_circle(modules: Iterable[Module]) -> Sequence[str]:
    """Return modules that import each other in a circle, first and last the same; else nothing."""
    known = {module.name: module for module in modules}
    graph: dict[str, set[str]] = {name: set() for name in known}
    for name, module in known.items():
        for _, imported in list_imports(module):
            parts = imported.split(".")[1:] if imported.startswith(f"{NAME}.") else []
            # A module, or else a name out of it.
            targets = [".".join(parts), ".".join(parts[:-1])]
            graph[name].update([one for one in targets if one in known and one != name][:1])
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return tuple(error.args[1])
    return ()


def test_one_module_knows_of_traces() -> None:
    """DEP-12: it is imported where they are requested, and only there."""
    found = {
        module.name
        for module in load_package()
        for _, name in list_imports(module)
        if name.startswith("opentelemetry")
    }
    assert found == {"telemetry.traces"}


def test_the_package_keeps_its_layers() -> None:
    """D-02: imports go one way, libraries stay in their layer, the core is pure."""
    modules = load_package()

    assert len(modules) > 20
    assert check_layers(modules) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert list_circle(load_package()) == ()


def test_a_circle_is_found(tmp_path: Path) -> None:
    _write(tmp_path / NAME / "aio/a.py", f"from {NAME}.aio.b import c")
    _write(tmp_path / NAME / "aio/b.py", f"from {NAME}.aio import a")

    assert {*list_circle(load_modules(tmp_path / NAME))} == {"aio.a", "aio.b"}


@pytest.mark.parametrize(
    ("file", "source", "finding"),
    [
        ("model/a.py", f"from {NAME}.planning.b import c", ":1: model imports planning"),
        ("web/a.py", f"from {NAME} import cli", ":1: web imports cli"),
        ("kube/a.py", f"import {NAME}.web", ":1: kube imports web"),
        ("config/a.py", f"from {NAME}.operator import b", ":1: config imports operator"),
        ("operator/a.py", f"from {NAME}.lab.world import A", ":1: operator imports lab"),
        ("web/a.py", "from . import b", ":1: relative import ..b"),
        (
            "web/a.py",
            "def b():\n    import aiohttp, ssl\n    import cryptography.x509",
            ":3: web imports cryptography",
        ),
        ("planning/a.py", "import time", ":1: planning imports time"),
        ("model/a.py", "now = datetime.now(UTC)", ":1: datetime.now() in model"),
        ("model/a.py", "open('b')", ":1: open() in model"),
        ("misc/a.py", "", ": misc stands in no table"),
        ("guards/misc/a.py", "", ": guards.misc stands in no table"),
        (
            "lab/nodes/a.py",
            f"from {NAME}.kube.client.client import Client",
            ":1: lab.nodes imports kube.client.client",
        ),
        (
            "controllers/rollout/a.py",
            f"from {NAME}.controllers.scaling.b import c",
            ":1: controllers.rollout imports controllers.scaling",
        ),
        (
            "planning/a.py",
            f"from {NAME}.planning.budgets.b import c",
            ":1: planning.a imports planning.budgets",
        ),
        (
            "operator/engine.py",
            f"from {NAME}.web.admin import A",
            ":1: operator.engine imports web",
        ),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, file: str, source: str, finding: str) -> None:
    """The check itself works: each kind of finding on a tree made for it."""
    _write(tmp_path / NAME / file, source)

    assert check_layers(load_modules(tmp_path / NAME)) == [f"{NAME}/{file}{finding}"]


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("operator/a.py", f"from {NAME} import __version__\nfrom {NAME}.web.admin import A"),
        ("cli/a.py", f"from {NAME}.operator.main import run\nfrom {NAME}.cli.b import c"),
        ("kube/a.py", "import aiohttp, kubernetes_asyncio"),
        ("lab/nodes/a.py", f"from {NAME}.kube.api import Reader"),
        ("lab/world.py", f"from {NAME}.lab.nodes.pods import Pods"),
        ("planning/budgets/a.py", f"from {NAME}.planning.rollout.b import c"),
    ],
)
def test_an_allowed_import_is_left_alone(tmp_path: Path, file: str, source: str) -> None:
    _write(tmp_path / NAME / file, source)

    assert check_layers(load_modules(tmp_path / NAME)) == []


def _write(path: Path, source: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
