"""A seeded sample of the automatic mutants of some folders, written into a copy of the package.

mutmut makes the mutants: a mutated function becomes a switch between its original and its mutants,
so that one import serves them all. It leaves decorated functions alone.
"""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

# Where they are needed: they take longer to load than all that the other tests share.
if TYPE_CHECKING:
    import libcst
    from mutmut.mutation.file_mutation import Mutation

AREAS: Final = ("planning", "guards", "controllers")
PACKAGE: Final = "rollout_operator"
_HEADS: Final = ("---", "+++")


class Automatic(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """By which its switch is thrown."""
    area: str
    file: str
    """Relative to the checkout."""
    function: str
    diff: str

    @property
    def place(self) -> str:
        """Return the name that mutmut gives to its function."""
        return self.name.partition("__mutmut_")[0]

    @property
    def text(self) -> str:
        """Return file, function and what is changed."""
        lines = self.diff.splitlines()
        changed = [f"  {line}" for line in lines if line[:1] in "+-" and line[:3] not in _HEADS]
        return "\n".join([f"{self.file} {self.function}", *changed])


def write_sample(copy: Path, areas: Sequence[str], size: int, seed: int) -> list[Automatic]:
    """Mutate the files of some folders in a copy of the checkout: of the package, or of the
    checkout as in `lab/rollout_lab`.

    Every mutant is as likely as every other, hence folders have shares by their size.
    """
    files = [path for area in areas for path in _list_files(copy, area)]
    parsed = {path: _parse(path) for path in files}
    all_of_them = [(path, number) for path in files for number in range(len(parsed[path][1]))]
    drawn = random.Random(seed).sample(all_of_them, min(size, len(all_of_them)))
    sample: list[Automatic] = []
    for path in files:
        numbers = sorted(number for drawn_path, number in drawn if drawn_path == path)
        if numbers:
            module, mutations = parsed[path]
            sample += _write(copy, path, module, [mutations[number] for number in numbers])
    return sample


def _list_files(copy: Path, area: str) -> list[Path]:
    for place in (copy / PACKAGE / area, copy / area):
        module = place.with_suffix(".py")
        if files := [module] if module.is_file() else sorted(place.rglob("*.py")):
            return files
    raise SystemExit(f"{area}: neither {PACKAGE} nor the checkout has such a folder or module")


def _parse(path: Path) -> "tuple[libcst.Module, list[Mutation]]":
    import libcst
    from mutmut.mutation.file_mutation import create_mutations

    module, mutations, _, _ = create_mutations(str(path), path.read_text())
    return module, [
        mutation
        for mutation in mutations
        if isinstance(mutation.contained_by_top_level_function, libcst.FunctionDef)
    ]


def _write(
    copy: Path, path: Path, module: "libcst.Module", mutations: "Sequence[Mutation]"
) -> Iterator[Automatic]:
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.mutation.file_mutation import combine_mutations_to_source

    mutated = combine_mutations_to_source(module, mutations)
    path.write_text(mutated.code)
    file = path.relative_to(copy)
    dotted = ".".join(file.with_suffix("").parts).removesuffix(".__init__").removeprefix("lab.")
    for name in mutated.mutant_names:
        yield Automatic(
            name=f"{dotted}.{name}",
            area=file.parts[1],
            file=str(file),
            function=_spell(name.partition("__mutmut_")[0]),
            diff=get_diff_for_mutant(name, mutated.code, file),
        )


def _spell(mangled: str) -> str:
    """Return `Class.method` for mutmut's name of it."""
    return mangled.removeprefix("x").removeprefix("_").strip("ǁ").replace("ǁ", ".")
