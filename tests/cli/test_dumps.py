"""What `simulate` reads: lists, documents, YAML, JSON, and what is no such thing."""

import io
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import yaml

from rollout_operator.cli.dumps import BadDump, read_all, read_file, read_objects

A = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
B = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "b"}}
LIST = {"apiVersion": "v1", "kind": "List", "items": [A, B]}
SECRET = "hunter2"


def _yaml(*documents: object) -> bytes:
    return str(yaml.safe_dump_all(documents)).encode()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(_yaml(LIST), id="a List"),
        pytest.param(_yaml(A, B), id="several documents"),
        pytest.param(_yaml(None, A, None, B), id="empty documents"),
        pytest.param(_yaml({**LIST, "items": [{**LIST, "items": [A]}, B]}), id="lists in a list"),
        pytest.param(_yaml([A, B]), id="a plain sequence"),
        pytest.param(msgspec.json.encode(LIST), id="JSON"),
        pytest.param(b"\n " + msgspec.json.encode(A) + b"\n---\n" + _yaml(B), id="JSON, then YAML"),
        pytest.param(_yaml(LIST).decode().encode("utf-16"), id="UTF-16, as PowerShell writes"),
        pytest.param(_yaml(LIST).decode().encode("utf-8-sig"), id="a byte order mark"),
        pytest.param(_yaml({**LIST, "items": None}, A, B), id="an empty List"),
        pytest.param(
            _yaml(
                {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": A["metadata"]}]},
                {"apiVersion": "apps/v1", "kind": "StatefulSetList", "items": [B]},
            ),
            id="typed lists, whose items need no kind",
        ),
    ],
)
def test_all_objects_are_found(content: bytes) -> None:
    assert read_objects(content) == [A, B]


def test_what_never_ends_is_refused() -> None:
    with pytest.raises(BadDump, match="nested too deeply") as refused:
        read_objects(b"[" * 100_000 + SECRET.encode())
    assert SECRET not in str(refused.value)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(BadDump, match="not text in UTF-8"):
        read_objects(b"\xc3\x28\x00")


def test_a_file_says_when_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "dump.yaml"
    path.write_bytes(b"kind: Pod")
    os.utime(path, (1_000_000_000, 1_000_000_000))

    written = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
    assert read_file(str(path), io.BytesIO()) == (b"kind: Pod", written)


def test_standard_input_is_of_now() -> None:
    assert read_file("-", io.BytesIO(b"kind: Pod")) == (b"kind: Pod", None)


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadDump, match=r"^-f .*: (No such file|Is a directory)"):
        read_file(str(tmp_path / name), io.BytesIO())


def _write(path: Path, kind: str, at: int) -> str:
    path.write_text(f"apiVersion: v1\nkind: {kind}")
    os.utime(path, (at, at))
    return str(path)


def test_files_and_folders_are_read_as_by_kubectl(tmp_path: Path) -> None:
    """Of a folder by name, and not those below it; the newest file says when that was."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, kind in (("b.json", "B"), ("a.yml", "A"), ("c.txt", "C"), ("kustomization.yaml", "")):
        _write(folder / name, kind, at=1_000_000_000)
    (folder / "below").mkdir()
    _write(folder / "below" / "d.yaml", "D", at=1_000_000_000)
    first = _write(tmp_path / "first.yaml", "First", at=1_000_000_001)

    objects, written = read_all([first, str(folder)], io.BytesIO())

    assert [one["kind"] for one in objects] == ["First", "A", "B"]
    assert written == datetime(2001, 9, 9, 1, 46, 41, tzinfo=UTC)
    objects, written = read_all(["-", first], io.BytesIO(b"apiVersion: v1\nkind: Pod"))
    assert ([one["kind"] for one in objects], written) == (["Pod", "First"], None)


def test_the_file_is_named_that_is_wrong(tmp_path: Path) -> None:
    """Whether it is the only one, one of several, or found in a folder."""
    folder = tmp_path / "folder"
    folder.mkdir()
    good, bad = _write(tmp_path / "good.yaml", "Pod", at=0), folder / "bad.yaml"
    bad.write_text("a: [")
    for names in ([str(bad)], [good, str(bad)], [str(folder)]):
        with pytest.raises(BadDump, match=rf"^{re.escape(str(bad))}: the input is not YAML"):
            read_all(names, io.BytesIO())
    with pytest.raises(BadDump, match=r"^the input is not YAML"):
        read_all(["-"], io.BytesIO(b"a: ["))


def test_a_folder_without_such_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadDump, match=r"no file in it ends with \.yaml, \.yml and \.json"):
        read_all([str(tmp_path)], io.BytesIO())
