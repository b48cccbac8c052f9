"""What pyproject.toml cannot say: a README whose links lead somewhere from a package index too."""

import re
from pathlib import Path

from setuptools import setup

REPOSITORY = "github.com/rollout-operator/rollout-operator"
PAGES = f"https://{REPOSITORY}/blob/main/"
PICTURES = f"https://raw.{REPOSITORY.replace('github.com', 'githubusercontent.com')}/main/"
# An exclamation mark makes it a picture. Addresses, and anchors on the same page, stay as they are.
RELATIVE = re.compile(r"(!?)(\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)")


def absolute_links(markdown: str) -> str:
    """Return the text with links to files of the repository made absolute."""
    return RELATIVE.sub(
        lambda link: f"{link[1]}{link[2]}({PICTURES if link[1] else PAGES}{link[3]}", markdown
    )


setup(
    long_description=absolute_links((Path(__file__).parent / "README.md").read_text("utf-8")),
    long_description_content_type="text/markdown",
)
