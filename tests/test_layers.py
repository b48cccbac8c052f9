"""Who may import whom: the architecture as a table, checked on every import of the package."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.code_rules import PACKAGE, Module, list_calls, list_imports, load_modules

NAME = PACKAGE.name
# A package always sees itself.
MAY_IMPORT: Mapping[str, Iterable[str]] = {
    "model": (),
    "planning": ("model",),
    "aio": (),
    "telemetry": ("model",),
    "kube": ("model", "aio", "telemetry"),
    "pods": ("model", "aio", "telemetry"),
    "oci": ("model", "aio", "telemetry"),
    "pki": ("model", "planning", "aio", "telemetry", "kube"),
    "guards": ("model", "planning", "aio", "telemetry", "kube"),
    "controllers": (
        "model",
        "planning",
        "aio",
        "telemetry",
        "kube",
        "pods",
        "oci",
        "pki",
        "guards",
    ),
    "web": ("model", "planning", "aio", "telemetry", "kube", "pods", "guards"),
    "sandbox": ("model", "aio", "kube"),
}
# The modules at the top, and the packages that put the others together.
OUTER: Mapping[str, Iterable[str]] = {
    "": (),
    "flags": ("model",),
    "webhook_flags": ("model", "flags"),
    "config": ("model", "flags", "webhook_flags"),
    "app_parts": {*MAY_IMPORT} - {"sandbox", "pki", "web"},
    "app_scaling": ({*MAY_IMPORT} - {"sandbox", "pki", "web"}) | {"app_parts"},
    "app_budgets": ({*MAY_IMPORT} - {"sandbox", "pki", "web"}) | {"app_parts"},
    "app_engine": ({*MAY_IMPORT} - {"sandbox", "pki", "web"})
    | {"app_parts", "app_scaling", "app_budgets"},
    "app_reviews": ({*MAY_IMPORT} - {"sandbox"}) | {"webhook_flags", "app_parts"},
    "app_webhooks": ({*MAY_IMPORT} - {"sandbox"}) | {"webhook_flags", "app_parts", "app_reviews"},
    "app": ({*MAY_IMPORT} - {"sandbox"})
    | {"config", "webhook_flags", "app_parts", "app_engine", "app_webhooks"},
    "app_process": {*MAY_IMPORT} | {"config", "app_parts", "app_engine", "app_reviews"},
    "app_sandbox": {*MAY_IMPORT} | {"config", "app_process"},
    "cli": {*MAY_IMPORT} | {"config", "flags", "app", "app_parts", "app_process", "app_sandbox"},
    "__main__": ("cli",),
}
LAYERS = {**MAY_IMPORT, **OUTER}
# Of these packages, others see only the Protocols.
# What an answer of the API server means is the same in both worlds.
ONLY_MODULES = {("sandbox", "kube"): {"api", "call", "limits", "responses"}}
ONLY_IN = {
    "kubernetes_asyncio": {"kube"},
    "cryptography": {"pki"},
    "prometheus_client": {"telemetry"},
    "aiohttp": {"kube", "pods", "oci", "web"},
}
PURE = {"model", "planning"}
IMPURE = {"asyncio", "time", "random", "os", "socket", "ssl", "logging"}
# Files and the clock of the machine need no import to get at.
IMPURE_CALLS = {"open", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}


def check_layers(modules: Iterable[Module]) -> list[str]:
    """Return one line for each thing that stands where the tables do not want it."""
    findings: list[str] = []
    for module in modules:
        if module.layer not in LAYERS:
            findings.append(f"{module.path}: {module.layer} stands in no table")
            continue
        for node, name in list_imports(module):
            findings += [module.at(node, what) for what in _judge_import(module.layer, name)]
        if module.layer in PURE:
            findings += [
                module.at(call, f"{name}() in {module.layer}")
                for call, name in list_calls(module)
                if name in IMPURE_CALLS
            ]
    return findings


def _judge_import(layer: str, name: str) -> Iterable[str]:
    top, *rest = name.split(".")
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
    only = ONLY_MODULES.get((layer, target))
    if only is not None and rest[1] not in only:
        yield f"{layer} imports {target}.{rest[1]}"


def test_the_package_keeps_its_layers() -> None:
    """D-02: imports go one way, libraries stay behind their doors, the core is pure."""
    modules = load_modules(PACKAGE)

    assert len(modules) > 20
    assert check_layers(modules) == []


@pytest.mark.parametrize(
    ("file", "source", "finding"),
    [
        pytest.param(
            "model/a.py",
            f"from {NAME}.planning.b import c",
            "model/a.py:1: model imports planning",
            id="inward only",
        ),
        pytest.param(
            "web/a.py", f"from {NAME} import cli", "web/a.py:1: web imports cli", id="package"
        ),
        pytest.param(
            "kube/a.py", f"import {NAME}.web", "kube/a.py:1: kube imports web", id="import"
        ),
        pytest.param(
            "flags.py", f"from {NAME}.app import b", "flags.py:1: flags imports app", id="top"
        ),
        pytest.param("web/a.py", "from . import b", "web/a.py:1: relative import ..b", id="dots"),
        pytest.param(
            "web/a.py",
            "def b():\n    import kubernetes_asyncio.client",
            "web/a.py:2: web imports kubernetes_asyncio",
            id="library behind its door, inside a function too",
        ),
        pytest.param(
            "planning/a.py", "import time", "planning/a.py:1: planning imports time", id="clock"
        ),
        pytest.param(
            "model/a.py",
            "now = datetime.now(UTC)",
            "model/a.py:1: datetime.now() in model",
            id="clock without import",
        ),
        pytest.param("model/a.py", "open('b')", "model/a.py:1: open() in model", id="file"),
        pytest.param("misc/a.py", "", "misc/a.py: misc stands in no table", id="unknown package"),
        pytest.param(
            "sandbox/a.py",
            f"from {NAME}.kube.client import Client",
            "sandbox/a.py:1: sandbox imports kube.client",
            id="Protocols only",
        ),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, file: str, source: str, finding: str) -> None:
    """The check itself works: each kind of finding on a tree made for it."""
    _write(tmp_path / NAME / file, source)

    assert check_layers(load_modules(tmp_path / NAME)) == [f"{NAME}/{finding}"]


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("app.py", f"from {NAME} import __version__\nfrom {NAME}.web.admin import A"),
        ("cli/a.py", f"from {NAME}.app import run\nfrom {NAME}.cli.b import c"),
        ("kube/a.py", "import aiohttp, kubernetes_asyncio"),
        ("sandbox/a.py", f"from {NAME}.kube.api import Reader"),
    ],
)
def test_an_allowed_import_is_left_alone(tmp_path: Path, file: str, source: str) -> None:
    _write(tmp_path / NAME / file, source)

    assert check_layers(load_modules(tmp_path / NAME)) == []


def _write(path: Path, source: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(source)
