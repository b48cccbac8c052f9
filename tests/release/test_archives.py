"""Archives follow from what is in them, and from nothing of the machine."""

import io
import os
import tarfile
from pathlib import Path

from release.archives import compress, pack, pack_tree


def test_dep27_order_and_owner_do_not_show() -> None:
    """DEP-27."""
    one = pack({"b": (b"2", 0o644), "a": (b"1", 0o755)}, epoch=5)
    two = pack({"a": (b"1", 0o755), "b": (b"2", 0o644)}, epoch=5)

    assert one == two
    assert compress(one) == compress(two)
    with tarfile.open(fileobj=io.BytesIO(one)) as tar:
        members = [(each.name, each.mode, each.uid, each.uname, each.mtime) for each in tar]
    assert members == [("a", 0o755, 0, "", 5), ("b", 0o644, 0, "", 5)]


def test_dep27_a_tree_is_packed_with_its_links_and_without_its_times(tmp_path: Path) -> None:
    """DEP-27."""
    packed = []
    for when in (1, 1_000_000):
        root = tmp_path / str(when)
        (root / "d").mkdir(parents=True)
        (root / "d" / "f").write_text("x")
        (root / "d" / "f").chmod(0o644)
        (root / "l").symlink_to("d/f")
        os.utime(root / "d" / "f", (when, when))
        packed.append(pack_tree(root, root.rglob("*"), epoch=7))

    assert packed[0] == packed[1]
    with tarfile.open(fileobj=io.BytesIO(packed[0])) as tar:
        members = [(each.name, each.type, each.linkname, each.mtime) for each in tar]
    assert members == [
        ("d", tarfile.DIRTYPE, "", 7),
        ("d/f", tarfile.REGTYPE, "", 7),
        ("l", tarfile.SYMTYPE, "d/f", 7),
    ]
