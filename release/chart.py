"""The chart as `helm package` lays it out, where the repository has one."""

import re
from pathlib import Path
from typing import Final

import yaml

from release.archives import compress, pack
from release.source import Source, mode_of

CHART: Final = "charts/rollout-operator/"


class ChartError(Exception):
    """The chart cannot be released as it is."""


def build_chart(source: Source, folder: Path) -> list[Path]:
    """Write the chart into `folder`; nothing where there is none. Raises ChartError."""
    names = [name for name in source.files if name.startswith(CHART)]
    if f"{CHART}Chart.yaml" not in names:
        return []
    about = yaml.safe_load((source.root / CHART / "Chart.yaml").read_text())
    if str(about.get("appVersion", "")).removeprefix("v") != source.version:
        raise ChartError(f"appVersion is {about.get('appVersion')}, not {source.version}")
    ignored = _read_ignored(source.root / CHART / ".helmignore")
    files = {
        f"{about['name']}/{name.removeprefix(CHART)}": source.root / name
        for name in names
        if not ignored.search(f"/{name.removeprefix(CHART)}")
    }
    contents = {name: (path.read_bytes(), mode_of(path)) for name, path in files.items()}
    packed = folder / f"{about['name']}-{about['version']}.tgz"
    packed.write_bytes(compress(pack(contents, source.epoch)))
    return [packed]


def _read_ignored(path: Path) -> re.Pattern[str]:
    """Return what matches a path that .helmignore names; names and `*` are known of its grammar."""
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.strip().strip("/") for line in lines if line.strip() and line[0] != "#"]
    patterns = [re.escape(name).replace(r"\*", "[^/]*") for name in names if "!" not in name]
    return re.compile("|".join(f"/{each}(/|$)" for each in patterns) or "(?!)")
