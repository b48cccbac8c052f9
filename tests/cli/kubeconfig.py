"""A kubeconfig in a file."""

from pathlib import Path

import yaml


def write_kubeconfig(
    file: Path, server: str = "https://unused:1", namespace: str = "mimir"
) -> Path:
    """Write one with two contexts: `first`, which is the current one, and `second`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    contexts: list[object] = [
        {"name": "first", "context": {"cluster": "k", "namespace": namespace}},
        {"name": "second", "context": {"cluster": "k"}},
    ]
    content = {
        "current-context": "first",
        "contexts": contexts,
        "clusters": [{"name": "k", "cluster": {"server": server}}],
    }
    file.write_text(yaml.safe_dump(content))
    return file
