"""Mutants of what the operator believes: `store`, `informer` and `retries` of `kube.cache`."""

from typing import Final

from tests.mutants.entry import Mutant

CACHES: Final = (
    Mutant(
        name="absence-from-a-list-ignored",
        old="for key, old in tuple(self._items.items()):",
        new="for key, old in ():",
        breaks="LI-02, FP-08: a deletion that shows only in a list is never seen",
        scenarios=("walk",),
        profile="lost events",
    ),
    Mutant(
        name="streamed-list-cut-short",
        old="return list(items.values()), version",
        new="return list(items.values())[1:], version",
        breaks="LI-01: an object that was streamed is taken for gone",
        scenarios=("s8-streamed",),
    ),
    Mutant(
        name="never-listed-again",
        old="requested_at + self._of.relist if",
        new="requested_at + self._of.relist * 100 if",
        breaks="LI-02: what a watch has not brought is never found",
        profile="lost events",
        scenarios=("s1-small", "s1"),
    ),
    Mutant(
        name="changes-by-list-not-passed-on",
        old="            self._notify(changes[start : start + STEP])\n",
        new="",
        breaks="LI-02: what a list shows wakes no subscriber",
    ),
)
