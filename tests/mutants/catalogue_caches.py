"""Mutants of what the operator believes: `store`, `informer` and `retries` of `kube.cache`."""

from typing import Final

from tests.mutants.entry import Mutant

CACHES: Final = (
    Mutant(
        name="name-keyed-cache",
        old="        if old.uid != item.uid:\n            return self._supersede(old, item)\n",
        new="",
        breaks="SI-07: a successor is taken for a new version of the pod before it",
        unseen=(
            "versions compare across the UIDs of one name, so that the right view is stored all "
            "the same; only what callbacks are told differs"
        ),
        units="tests/kube/cache/test_store.py",
    ),
    Mutant(
        name="older-events-taken",
        old="        if _is_known(item.resource_version, old.resource_version):\n"
        "            return ()\n",
        new="",
        breaks="LI-02: an event that comes late or twice turns the view back",
        unseen=(
            "a wrong view only delays: a live look precedes each act, and a list within four "
            "minutes mends it, inside of the five that LI-02 allows"
        ),
        units="tests/kube/cache/test_store.py",
    ),
    Mutant(
        name="deletions-not-remembered",
        old="        self._remember_deletion(last.uid, version)\n        if old is None or not",
        new="        if old is None or not",
        breaks="LI-02: an event that comes after the deletion brings the pod back",
        unseen=(
            "a wrong view only delays: a live look precedes each act, and a list within four "
            "minutes mends it, inside of the five that LI-02 allows"
        ),
        units="tests/kube/cache/test_store.py",
    ),
    Mutant(
        name="absence-from-a-list-ignored",
        old="for old in [old for key, old in self._items.items() if not _lives_on("
        "old, found.get(key))]:",
        new="for old in list(self._items.values())[:0]:",
        breaks="LI-02, FP-08: a deletion that shows only in a list is never seen",
        scenarios=("walk",),
        profile="lost events",
        units="tests/kube/cache/test_store.py",
    ),
    Mutant(
        name="bookmarks-taken-as-data",
        old="            self._advance(self._read_bookmark(event))\n            return\n",
        new="            self._read_bookmark(event)\n",
        breaks="LI-02: an object is stored that does not exist",
        unseen="a bookmark names no object and no group, and what no group has is not looked at",
        units="tests/kube/cache/test_informer.py",
    ),
    Mutant(
        name="lists-by-any-cache",
        old="token=token,\n            has_turn=has_turn,\n",
        new='token=token,\n            has_turn=has_turn,\n            resource_version="0",\n',
        breaks="SI-09: a list may be older than what was seen before",
        unseen=(
            "the watch goes on where the old list ends, and a live look precedes each act: nothing "
            "rests on the list alone"
        ),
        units="tests/kube/cache/test_informer.py",
    ),
    Mutant(
        name="streamed-list-cut-short",
        old="return list(items.values()), version",
        new="return list(items.values())[1:], version",
        breaks="LI-01: an object that was streamed is taken for gone",
        scenarios=("s8-streamed",),
    ),
    Mutant(
        name="gone-retried-in-place",
        old="needs_list=not has_list or isinstance(error, Gone) or self.resumes >= FAILED_RESUMES,",
        new="needs_list=not has_list,",
        breaks="LI-04: a version that is too old is asked for again and again",
    ),
    Mutant(
        name="never-listed-again",
        old="asked_at + RELIST if",
        new="asked_at + RELIST * 100 if",
        breaks="LI-02: what a watch has not brought is never found",
        profile="lost events",
        scenarios=("s1-small", "s1"),
    ),
    Mutant(
        name="changes-by-list-not-told",
        old="            self._tell(changes[start : start + STEP])\n",
        new="",
        breaks="LI-02: what a list shows wakes nobody",
    ),
    Mutant(
        name="unreadable-until-listed",
        old="                self._rereads.record(new)\n",
        new="                pass\n",
        breaks="LI-02: what one event has spoiled stays spoiled until everything is listed",
        unseen="the list that comes every four minutes is within the five that LI-02 allows; a "
        "systematic plan sees it, where nothing else went wrong",
        units="tests/kube/cache/test_informer_doubt.py",
    ),
    Mutant(
        name="older-reads-taken",
        old="if _key(found) != key or is_older(found.resource_version, old.resource_version):",
        new="if _key(found) != key:",
        breaks="SI-09: a read of one object turns its view back",
        unseen="every list shows at least what its server has sent in the stream before",
        units="tests/kube/cache/test_store.py",
    ),
    Mutant(
        name="deep-objects-hide-others",
        old="            page = _LIST.decode(await _cut_deep(body))\n",
        new='            raise msgspec.DecodeError("deep") from None\n',
        breaks="LI-09: one object that nests too deeply takes a whole page away",
        unseen="the sandbox keeps no managedFields, and its API server nests nothing deeply",
        units="tests/kube/cache/test_deep.py",
    ),
)
