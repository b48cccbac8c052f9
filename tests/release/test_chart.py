"""The chart as a package: what helm would take, and only of this version."""

import tarfile
from pathlib import Path

import pytest

from release.chart import ChartError, build_chart
from release.source import Source


def chart_source(root: Path, app: str = "1.2.3") -> Source:
    files = {
        "Chart.yaml": f"name: rollout-operator\nversion: 4.5.6\nappVersion: {app}\n",
        ".helmignore": "# not for users\nci/\n*.txt\n",
        "templates/a.yaml": "a: b\n",
        "ci/values.yaml": "",
        "notes.txt": "",
    }
    for name, text in files.items():
        path = root / "charts" / "rollout-operator" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    names = tuple(sorted(f"charts/rollout-operator/{name}" for name in files))
    return Source(root=root, files=names, version="1.2.3", epoch=7, revision="")


def test_dep27_a_chart_is_packed_without_what_it_ignores(tmp_path: Path) -> None:
    """DEP-27."""
    source = chart_source(tmp_path)
    (packed,) = build_chart(source, tmp_path)
    before = packed.read_bytes()

    assert packed.name == "rollout-operator-4.5.6.tgz"
    with tarfile.open(packed) as tar:
        assert tar.getnames() == [
            f"rollout-operator/{name}" for name in (".helmignore", "Chart.yaml", "templates/a.yaml")
        ]
    build_chart(source, tmp_path)
    assert packed.read_bytes() == before


def test_a_chart_of_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ChartError, match=r"appVersion is 1\.2\.2, not 1\.2\.3"):
        build_chart(chart_source(tmp_path, app="1.2.2"), tmp_path)


def test_without_a_chart_nothing_is_packed(tmp_path: Path) -> None:
    source = Source(root=tmp_path, files=("README.md",), version="1", epoch=7, revision="")

    assert build_chart(source, tmp_path) == []
