"""Locks, Makefile and Dockerfile: what is installed was chosen, and the image is as said."""

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rollout_operator import __version__
from rollout_operator.cli.main import COMMANDS, ENTRY_POINTS
from tests.code_rules import ROOT

RUNTIME: Final = ROOT / "requirements.lock"
TRACING: Final = ROOT / "requirements-otel.lock"
DEVELOPMENT: Final = ROOT / "requirements-dev.lock"
TOOLCHAIN: Final = ROOT / "requirements-go.lock"
SITE: Final = ROOT / "requirements-docs.lock"
LOCKS: Final = (RUNTIME, TRACING, DEVELOPMENT, TOOLCHAIN, SITE)
PINNED: Final = re.compile(r"^([a-z0-9-]+)==(\S+)( ; [^\\]+)? \\$")
HASH: Final = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
LAB: Final[dict[str, Any]] = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text())
OPERATOR: Final = f"rollout-operator=={__version__}"
EXTRAS: Final[dict[str, list[str]]] = PROJECT["project"]["optional-dependencies"]
DOCKERFILE: Final = (ROOT / "Dockerfile").read_text()


def versions(lock: Path) -> dict[str, str]:
    matches = (PINNED.match(line) for line in lock.read_text().splitlines())
    return {match[1]: match[2] for match in matches if match}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_holds_exact_versions_and_hashes_and_no_address(lock: Path) -> None:
    """D-62, SEC-27: each line is a pin, a hash or a comment."""
    lines = lock.read_text().splitlines()
    pins = [number for number, line in enumerate(lines) if PINNED.match(line)]

    assert pins
    assert all(HASH.match(lines[number + 1]) for number in pins)
    assert [
        line
        for line in lines
        if not (PINNED.match(line) or HASH.match(line) or line.lstrip().startswith("#"))
    ] == []
    assert not re.search(r"://|--index|--find-links|file:", lock.read_text())


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        (RUNTIME, PROJECT["project"]["dependencies"]),
        (TRACING, PROJECT["project"]["dependencies"] + EXTRAS["otel"]),
        (
            DEVELOPMENT,
            [
                *PROJECT["project"]["dependencies"],
                *EXTRAS["otel"],
                *(each for each in LAB["project"]["dependencies"] if each != OPERATOR),
                *PROJECT["dependency-groups"]["dev"],
            ],
        ),
        (TOOLCHAIN, PROJECT["dependency-groups"]["go"]),
        (SITE, PROJECT["dependency-groups"]["docs"]),
    ],
    ids=["runtime", "tracing", "development", "toolchain", "site"],
)
def test_a_lock_answers_pyproject(lock: Path, wanted: list[str]) -> None:
    """D-62: what is requested is locked, at a version that is requested."""
    locked = versions(lock)

    for requirement in map(Requirement, wanted):
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement}: not in {lock.name}, run `make lock`"
        assert requirement.specifier.contains(version), f"{requirement}: {version} in {lock.name}"


def test_what_is_tested_is_what_runs() -> None:
    """D-62: the development lock holds all of the run-time locks, and what the site has as well.

    The image is built from the run-time lock, unless an argument says otherwise.
    """
    tested, site = versions(DEVELOPMENT), versions(SITE)

    assert versions(RUNTIME).items() <= versions(TRACING).items() <= tested.items()
    assert {name: version for name, version in site.items() if name in tested}.items() <= (
        tested.items()
    )
    assert [name for name in versions(RUNTIME) if name.startswith(("opentelemetry", "rich"))] == []
    assert len(PROJECT["project"]["dependencies"]) <= 8
    assert "\nARG LOCK=requirements.lock\n" in DOCKERFILE
    assert "lock=${LOCK:-requirements.lock}\n" in (ROOT / "image" / "assemble").read_text()


def test_the_gate_is_what_a_developer_types() -> None:
    """D-61: formatting, rules and types before the tests, whose summary ends the output."""
    gate = ROOT / ".ci" / "run"
    commands = [line.strip() for line in make("--dry-run", "test").stdout.splitlines()]
    checks = [line for line in commands if re.match(r"\S+/bin/python -m (?!pip)", line)]

    assert os.access(gate, os.X_OK)
    assert gate.read_text().endswith("\nmake test\n")
    assert [" ".join(line.partition(" >")[0].split()[2:4]) for line in checks] == [
        "ruff format",
        "ruff check",
        "codespell_lib .",
        "mypy --strict",
        "pytest --collect-only",  # beside these
        "tests.world.assets",
        "tests.world.promql",
        "tests.world.prometheus",
        "tests.world.kubectl",
        "tests.world.helm",
        "tests.world.registry",
        "tests.flux.image_policies",
        "pytest -n",
    ]
    assert commands[-1] == checks[-1]


def test_everything_is_installed_by_hash() -> None:
    """SEC-27: and nothing is built but this checkout, from what is there."""
    commands = make("--always-make", "--dry-run", "venv").stdout.splitlines()
    installs = [line for line in commands if "pip" in line and " install " in line]

    assert len(installs) == 2
    assert installs[1].endswith(" --editable . --editable lab")
    assert "--require-hashes --only-binary :all: -r requirements-dev.lock" in installs[0]
    assert "--no-deps --no-index --no-build-isolation" in installs[1]
    assert PROJECT["build-system"]["requires"] == ["setuptools>=80"]
    assert "setuptools" in versions(DEVELOPMENT)


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Variables of a `make` around this one would change what is checked.
    left_out = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "VENV", "PYTHON", "ARGS"}
    return subprocess.run(
        ["make", *arguments],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key not in left_out},
        capture_output=True,
        check=False,
        text=True,
    )


def final_stage() -> list[str]:
    """Return the instructions of the Dockerfile's last stage, joined over line ends."""
    _, _, stage = DOCKERFILE.rpartition("\nFROM ")
    joined = stage.replace("\\\n", " ")
    return [line for line in joined.splitlines()[1:] if line and not line.startswith("#")]


def test_the_image_runs_as_a_number_and_its_final_stage_runs_nothing() -> None:
    """SEED-022, SEED-023, SEC-28, DEPLOY-01, DEP-22: no shell, and no scratch file in a layer."""
    stage = final_stage()
    (labels,) = (line for line in stage if line.startswith("LABEL"))

    assert {
        "USER 65532:65532",
        'ENTRYPOINT ["/usr/bin/rollout-operator"]',
        "CMD []",
        "EXPOSE 8001",
    } <= {*stage}
    assert [line for line in stage if line.startswith(("RUN", "ADD", "SHELL", "COPY"))] == [
        "COPY --from=build /image/ /"
    ]
    shown = re.findall(r"org\.opencontainers\.image\.([a-z.]+)=", labels)
    assert {"title", "source", "revision", "version", "licenses", "base.digest"} <= {*shown}


def test_both_stages_have_the_python_that_the_launcher_names() -> None:
    """D-03: byte code and wheels are made for one minor version. Debian 13 has 3.13."""
    first = (ROOT / "image" / "rollout-operator").read_text().splitlines()[0]

    assert first == "#!/usr/bin/python3.13 -IBS"
    pinned = r"(@sha256:[0-9a-f]{64})?$"
    assert re.search(rf"^ARG BUILD=\S+/python:3\.13-slim-trixie{pinned}", DOCKERFILE, re.MULTILINE)
    pattern = rf"^ARG RUNTIME=\S+/python3-debian13:nonroot{pinned}"
    assert re.search(pattern, DOCKERFILE, re.MULTILINE)


def test_the_image_is_made_of_little() -> None:
    """Only what is named gets into the build."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()

    assert [line for line in lines if line and not line.startswith("#")] == [
        "*",
        "!requirements.lock",
        "!requirements-otel.lock",
        "!image",
        "!rollout_operator",
        "**/__pycache__",
    ]


def test_what_is_no_code_is_installed_too() -> None:
    """The page's style and script: a wheel holds only what is named."""
    package = ROOT / "rollout_operator"
    named = {*PROJECT["tool"]["setuptools"]["package-data"]["rollout_operator"]}
    others = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    }

    assert others == named


def test_the_lab_is_of_the_same_version_and_brings_its_commands() -> None:
    """Its code calls the operator's, hence neither fits another version of the other."""
    assert LAB["project"]["version"] == __version__
    assert OPERATOR in LAB["project"]["dependencies"]
    assert EXTRAS["lab"] == [f"rollout-operator-lab=={__version__}"]
    assert LAB["project"]["requires-python"] == PROJECT["project"]["requires-python"]
    entries = LAB["project"]["entry-points"][ENTRY_POINTS]
    assert set(entries) == {command.name for command in COMMANDS if command.extra == "lab"}


def test_the_console_script_is_the_operator() -> None:
    """D-61: `.venv/bin/rollout-operator`, and the same entry that the image starts."""
    main = "rollout_operator.cli.main:main"
    # kubectl finds the second one as a plugin.
    scripts = {"rollout-operator": main, "kubectl-rollout_operator": main}
    assert PROJECT["project"]["scripts"] == scripts
    launcher = (ROOT / "image" / "rollout-operator").read_text()
    assert "from rollout_operator.cli.main import main" in launcher
