"""The image's own file system: for any user, nothing to write to, the same bytes each time."""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec

from tests import image_tree
from tests.contained import can_contain, contained, limit_memory
from tests.image_tree import LAUNCHER, LIBRARY
from tests.world.operatorproc import OperatorProcess
from tests.world.world import World

# An archive of a release, to try that one: docs/release.md.
ARCHIVE = os.environ.get("IMAGE_ARCHIVE", "")
# As the shipped Deployment limits it; no user of this machine has that number.
LIMIT = 200 * 1024 * 1024
RANDOM_USER = "1000690000:0"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="chroot and ldd as on Linux"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may change root and user"),
]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the Dockerfile takes from the checkout."""
    folder = tmp_path_factory.mktemp("context")
    image_tree.copy_context(folder)
    return folder


@pytest.fixture(scope="module")
def added(context: Path) -> Iterator[Path]:
    """What the Dockerfile puts into the final stage."""
    # Not below the folder of pytest: other users may not enter that.
    with tempfile.TemporaryDirectory(prefix="image-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        image_tree.assemble(context, folder)
        yield folder


@pytest.fixture(scope="module")
def tree(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The whole file system of a container."""
    with tempfile.TemporaryDirectory(prefix="image-") as name:
        root = Path(name, "root")
        Path(name).chmod(0o755)
        if ARCHIVE:
            root.mkdir()
            image_tree.unpack_archive(Path(ARCHIVE), root)
        else:
            shutil.copytree(request.getfixturevalue("added") / "usr", root / "usr")
            image_tree.add_interpreter(root)
        yield root


def test_help_is_printed_to_any_client(tree: Path) -> None:
    """DEP-22, DEP-23, DEP-24, PROC-04: any user id, no home, no writable path."""
    ended = image_tree.run(tree, LAUNCHER, "-h")

    assert ended.returncode == 0, ended.stderr
    assert "-kubernetes.namespace" in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("flag", "code", "said"),
    [
        pytest.param("-no.such.flag", 2, "no.such.flag", id="PROC-04 unknown flag"),
        pytest.param("-log.level=info", 1, "-kubernetes.namespace", id="PROC-03 no namespace"),
        pytest.param("-kubernetes.namespace=x", 1, "KUBERNETES_SERVICE", id="not in a cluster"),
    ],
)
def test_a_start_that_cannot_succeed_says_why(tree: Path, flag: str, code: int, said: str) -> None:
    ended = image_tree.run(tree, LAUNCHER, flag)

    assert (ended.returncode, said in ended.stderr) == (code, True), ended.stderr
    assert "Traceback" not in ended.stderr


def test_every_library_finds_what_it_needs(tree: Path) -> None:
    """Shared libraries are all there; the whole operator can be imported, and has its page."""
    modules = (
        "rollout_operator.operator.main, aiohttp, msgspec, prometheus_client, re2, uvloop, yaml"
    )
    code = f"import sys; sys.path.insert(0, '{LIBRARY}'); import {modules}"
    code += "; from rollout_operator.web.admin import make_policy; make_policy()"
    interpreter = LAUNCHER.with_name("python3.13")

    ended = image_tree.run(tree, interpreter, "-IBSc", code)

    assert ended.returncode == 0, ended.stderr


def test_a_run_writes_nothing(tree: Path) -> None:
    """DEP-24: no byte code, no cache. Run as root: another user could not write if it tried."""
    before = image_tree.digests(tree)

    for flag in ("-h", "-kubernetes.namespace=x"):
        image_tree.run(tree, LAUNCHER, flag, user="0:0")

    assert image_tree.digests(tree) == before


@pytest.mark.controlplane
@pytest.mark.skipif(not can_contain(), reason="this machine lets no process mount")
async def test_dep96_it_works_within_the_limits_of_a_container(world: World, tree: Path) -> None:
    """DEP-23, DEP-24, DEP-25, DEP-96: a user id of no one, a read-only root, 200 MiB.

    It serves reviews and rolls a group out.
    """
    zones = await world.create(ZoneSpec(name="zone-a", replicas=2), ZoneSpec(name="zone-b"))
    await world.grant("webhooks")
    launch = world.launch("-server-tls.enabled=true")
    for path in (launch.kubeconfig, world.plane.pki.ca):
        copy = tree / path.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    with limit_memory(LIMIT) as limit:
        command = contained(tree, RANDOM_USER, limit, str(LAUNCHER))
        async with OperatorProcess(replace(launch, command=command)) as operator:
            await operator.wait_ready()
            await world.roll(zones, "v2")
            assert await operator.terminate() == 0
        if limit:
            assert limit.count_kills() == 0
            assert limit.read_peak() < LIMIT


def test_nothing_is_writable_or_privileged_and_there_is_no_shell(added: Path) -> None:
    """SEC-28, SEED-023."""
    paths = [path for path in (added / "usr").rglob("*") if not path.is_symlink()]

    assert [p for p in paths if p.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)] == []
    assert [p for p in paths if p.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)] == []
    # DEP-23: and any user that runs it may read all.
    assert [p for p in paths if not p.stat().st_mode & stat.S_IROTH] == []
    assert [p.name for p in (added / "usr" / "bin").iterdir()] == [LAUNCHER.name]
    assert not {"pip", "setuptools", "bin"} & {p.name for p in _library(added).iterdir()}


def test_there_is_no_lab(added: Path, tree: Path) -> None:
    """Neither the simulated cluster nor what only it needs; its commands say how to get them."""
    names = {path.name.partition("-")[0] for path in _library(added).iterdir()}
    assert names.isdisjoint({"lab", "rollout_lab", "rollout_operator_lab", "rich"})

    ended = image_tree.run(tree, LAUNCHER, "demo")

    assert (ended.returncode, ended.stdout) == (2, "")
    assert "demo is not installed: pip install ./lab in a checkout" in ended.stderr


def test_byte_code_is_compiled_and_believed(added: Path) -> None:
    """DEP-26, DEP-27: by hash, unchecked: the date of a file is not read."""
    ours = list((_library(added) / "rollout_operator").rglob("*.py"))
    compiled = list((_library(added) / "rollout_operator").rglob("*.pyc"))

    assert len(ours) == len(compiled) > 20
    for path in compiled:
        content = path.read_bytes()
        assert int.from_bytes(content[4:8], "little") == 0b01, path
        assert bytes(added) not in content, path


def test_two_builds_give_the_same_bytes(context: Path, added: Path, tmp_path: Path) -> None:
    """DEP-27, SEC-28."""
    image_tree.assemble(context, tmp_path)

    assert image_tree.digests(tmp_path / "usr") == image_tree.digests(added / "usr")


@pytest.mark.prove
def test_two_builds_of_a_release_give_the_same_bytes(context: Path, tmp_path: Path) -> None:
    """DEP-27, SEC-28: with what fetches for a release, which reads no folder of wheels."""
    for name in "ab":
        fetch = f"{sys.executable} -m uv pip install -q --link-mode copy"
        image_tree.assemble(context, tmp_path / name, fetch)

    assert image_tree.digests(tmp_path / "a") == image_tree.digests(tmp_path / "b")


def _library(root: Path) -> Path:
    return root / LIBRARY.relative_to("/")
