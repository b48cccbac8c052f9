"""Make a release: `python -m release`. What it makes stands in docs/release.md."""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from release.chart import build_chart
from release.checksums import remove_earlier, write_checksums
from release.distributions import build_distributions
from release.image.build import build_image
from release.lock import read_lock
from release.manifests import build_install
from release.sbom import describe_pins, describe_subject, render_sbom
from release.source import ROOT, Source, read_source
from tests.world.kubectl import KUBECTL


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be made, and where."""

    source: Source
    out: Path
    scratch: Path
    """An empty folder, removed after."""
    image: str
    """Where the image is pulled from: what install.yaml names."""


def make_distributions(order: Order) -> list[Path]:
    """Make the wheels and the source distributions of the operator and of the lab."""
    return build_distributions(order.source, order.out, order.scratch)


def make_chart(order: Order) -> list[Path]:
    """Make the package of the chart, where there is one."""
    return build_chart(order.source, order.out)


def make_install(order: Order) -> list[Path]:
    """Make the one file to install from."""
    kubectl = str(KUBECTL.locate())
    return [build_install(order.source, order.out, kubectl=kubectl, image=order.image)]


def make_sbom(order: Order) -> list[Path]:
    """Make the bill of materials of the wheel."""
    pins = read_lock(order.source.root / "requirements.lock")
    version = order.source.version
    subject = describe_subject(order.source, pins, f"pkg:pypi/rollout-operator@{version}")
    written = order.out / f"rollout_operator-{version}.cdx.json"
    written.write_text(render_sbom(subject, describe_pins(pins), order.source.epoch))
    return [written]


def make_image(order: Order) -> list[Path]:
    """Make the image for all platforms, as one archive."""
    return build_image(order.source, order.out, order.scratch, order.image)


STEPS: Final[Mapping[str, Callable[[Order], list[Path]]]] = {
    "python": make_distributions,
    "chart": make_chart,
    "install": make_install,
    "sbom": make_sbom,
    "image": make_image,
}


def make_release(source: Source, out: Path, steps: Sequence[str], image: str) -> list[Path]:
    """Make what the steps make, with its checksums, and return all files."""
    out.mkdir(parents=True, exist_ok=True)
    remove_earlier(out)
    files: list[Path] = []
    for step in steps:
        with tempfile.TemporaryDirectory(prefix="release-") as scratch:
            order = Order(source=source, out=out, scratch=Path(scratch), image=image)
            files += STEPS[step](order)
    return [*files, write_checksums(out, files)]


def find_differences(source: Source, out: Path, steps: Sequence[str], image: str) -> list[str]:
    """Make the release again from a clone of the commit; return the names of what differs."""
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        clone, again = Path(name, "clone"), Path(name, "again")
        words = ["git", "clone", "--quiet", "--no-hardlinks", str(source.root), str(clone)]
        subprocess.run(words, check=True)
        files = make_release(read_source(clone), again, steps, image)
        return [path.name for path in files if path.read_bytes() != (out / path.name).read_bytes()]


def main(words: Sequence[str]) -> int:
    """Make a release as the words say; return the exit code."""
    source = read_source(ROOT)
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder to write to")
    parser.add_argument("--image", default=f"rollout-operator:{source.version}")
    parser.add_argument("--only", choices=STEPS, action="append", help="a step; may be repeated")
    parser.add_argument("--without", choices=STEPS, action="append", default=[])
    parser.add_argument("--check", action="store_true", help="make it twice and compare")
    given = parser.parse_args(words)
    steps = [step for step in given.only or STEPS if step not in given.without]
    if source.revision.endswith("-dirty"):
        sys.stderr.write("files differ from the commit: this is no release\n")
    for path in make_release(source, given.out, steps, given.image):
        sys.stdout.write(f"{path.stat().st_size:>12,}  {path}\n")
    if not given.check:
        return 0
    differing = find_differences(source, given.out, steps, given.image)
    said = f"differ: {', '.join(differing)}" if differing else "made twice: the same bytes"
    sys.stdout.write(f"{said}\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
