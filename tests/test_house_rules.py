"""Rules of the house that no linter knows: sizes, words, and the few places of broad catches."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.code_rules import (
    ROOT,
    Module,
    dotted,
    list_calls,
    list_definitions,
    list_texts,
    load_modules,
    load_package,
)

MOST_LINES = 400
# Words that say nothing about what a thing does.
EMPTY_WORDS = re.compile(r"^_*(handle|process|do|manage)_|Manager|Helper")
# Named by the library whose method it overrides.
OVERRIDES = {"handle_error"}
# Words for which the field has others: client, random source, states of groups, context, outcome,
# message or report, live read or reconcile, record, snapshot; last, what names of tests say.
HOME_MADE = re.compile(
    r"\b_*(doors?|chance|board|Doors?|Board|Parts|fates?|Fate|talks?|Talks?|(is_)?told|Told"
    r"|looks?|Looks?|LOOKS?|look_again|LOOK_AGAIN|note_\w+|DemoNote|ZoneNote|views|view_age"
    r"|picture|Picture|scenes?|Scene|_?owed|_?withdraw\w*|WITHDRAW\w*"
    r"|test_\w*(live_look|_(a|an|one|the|next|last|first)_looks?(?!_up))"
    r"(_\w+)?)\b"
)
# Who acts has a name: the API server, another replica, the kubelet, a person.
PERSONS = re.compile(r"\b(somebody|someone|anybody|nobody)\b", re.IGNORECASE)
PERSONS_HERE = re.compile(r"\b(everybody|everyone|anyone|whoever)\b", re.IGNORECASE)
# The simulation tells stories to people, and has words of its own for that.
TELLERS = re.compile(r"(lab|cli\.simulate)\b.*")
# What a verb promises of the type that it returns.
VERBS = {
    "find_": re.compile(r".*\| None|None \| .*"),
    "list_": re.compile(
        r"(Async)?Itera(tor|ble)\b.*|Sequence\b.*|list\b.*|tuple\b.*|.*\bGenerator\b.*"
    ),
    "assess_": re.compile(r".*(\| None|(Verdict|Finding|Refusal)\b).*"),
}
VERB = re.compile(r"def _*(find|list|assess)_")
# In the package alone: tests have their own tales still.
HOME_MADE_HERE = re.compile(
    r"_*(tells?|tell_\w+|told|hears?|heard|hearing|asks|(must|may|would|next|was)_ask(ed)?"
    r"|(\w+_)?troubles?|list_troubles|gist|tall(y|ies)|misfits?|\w+_misfit|carriers|Trip|trip"
    r"|tales?|TALES|permits?|choose_permitted|debts?|word_\w+|Permit|Material|Words|(parse|read)_words|ask_for|one)"
)
# In texts: docstrings, comments, messages, help. A pod "is told that it stays", as promises say it.
HOME_MADE_TEXT = re.compile(
    r"\b(doors?|chance|board|pictures?|scenes?|fates?|talks?|hear(s|d|ing)?|troubles?|keepers?|gist"
    r"|permit(s|ted|ting)?|with(draw\w*|drew)|owed|noted|oddit(y|ies)|stor(y|ies)|tales?|aims?"
    r"|(giv|tak)(en?|es|ing)( \w+)? back|gave( \w+)? back|shrinks?|resiz(es?|ed|ing)|seats?"
    r"|(?<!cannot )tells?(?! (all |its )?pods that)|told(?! (yet |again |pods )?that)"
    r"|audience|rhythm|surroundings"
    r"|(a|another|each|every|live|fresh|our|two) looks?(?!-))\b",
    re.IGNORECASE,
)
# In texts and names: what is meant has its noun and not `one`, a call or a request is no `ask`, and
# what a cache or a decoder holds no `view`. Words of the API server itself stand as they are.
UNNAMED = re.compile(
    r"\bones\b|\bone (that|which|whose|who)\b|\b(the|an|this|that|these|which|each|every|any|no"
    r"|same|such|first|last|next|new|old|better|larger|worse|\w{3,}est"
    r"|(anoth|oth|lat|earli|new|old|high|low|small|long|short)er) one(?=$|\W*$|[.,:;)]"
    r"| (that|which|whose|who|is|are|was|has|have|may|can|must|does|goes|counts|before|after|of|in"
    r"|with|for|by|to|and|or|as|at|from|where|than|it)\b)"
    r"|\b(un)?ask(s|ed|ing|ers?)?\b(?! us to wait)|\bviews?\b",
    re.IGNORECASE,
)
UNNAMED_CODE = re.compile(r"_*(un)?ask(s|ed|er|ing)?(_\w+)?|\w+_(un)?asked|_*views?|list_views")
QUOTED = re.compile(r"`[^`]*`")
EMPTY_MODULES = {"utils", "common", "helpers", "misc"}
# The two places where anything may arrive and the show must go on: the worker of a queue, and the
# answer to a review.
WORKER = "controllers/worker.py"
CATCH_ALL = {WORKER, "web/reviews/dispatch.py"}
TASK_MAKERS = {"aio/tasks.py"}


def list_broad_catches(module: Module) -> Iterator[str]:
    """Yield catches of Exception outside its doors, and of BaseException anywhere."""
    is_door = _below_top(module) in CATCH_ALL
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler):
            names = _caught(node.type)
        elif isinstance(node, ast.Call) and dotted(node.func).endswith("suppress"):
            names = [dotted(argument) for argument in node.args]
        else:
            continue
        if "BaseException" in names or ("Exception" in names and not is_door):
            yield module.at(node, f"catches {', '.join(names)}")


def _caught(kind: ast.expr | None) -> list[str]:
    if kind is None:
        return ["BaseException"]
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return [dotted(each).removeprefix("builtins.") for each in kinds]


def list_orphan_tasks(module: Module) -> Iterator[str]:
    """Yield tasks without a parent: started neither in a task group nor where parents are made."""
    if _below_top(module) in TASK_MAKERS:
        return
    groups = _task_groups(module)
    for call, name in list_calls(module):
        owner, _, what = name.rpartition(".")
        if what in {"create_task", "ensure_future"} and owner not in groups:
            yield module.at(call, f"{name}()")


def _task_groups(module: Module) -> set[str]:
    """Return the names that `async with asyncio.TaskGroup()` gives."""
    return {
        dotted(item.optional_vars)
        for node in module.nodes
        if isinstance(node, ast.AsyncWith)
        for item in node.items
        if item.optional_vars is not None
        and isinstance(item.context_expr, ast.Call)
        and dotted(item.context_expr.func) == "asyncio.TaskGroup"
    }


def list_empty_words(module: Module) -> Iterator[str]:
    """Yield names of our own that say nothing."""
    if module.path.stem in EMPTY_MODULES:
        yield f"{module.path}: module name"
    for node, name in list_definitions(module):
        if EMPTY_WORDS.search(name) and name not in OVERRIDES:
            yield module.at(node, name)


def list_home_made_words(module: Module) -> Iterator[str]:
    """Yield names for which the field has another word."""
    if not HOME_MADE.search(module.source):
        return
    for node, name in list_definitions(module):
        if HOME_MADE.fullmatch(name):
            yield module.at(node, name)


def list_words_gone_here(module: Module) -> Iterator[str]:
    """Yield names of the package for which it has another word."""
    for node, name in list_definitions(module):
        if HOME_MADE_HERE.fullmatch(name):
            yield module.at(node, name)


def list_home_made_texts(module: Module) -> Iterator[str]:
    """Yield lines of texts with a word for which the field has another."""
    words = (HOME_MADE_TEXT, PERSONS_HERE)
    if TELLERS.fullmatch(module.name) or not any(each.search(module.source) for each in words):
        return
    for number, line in list_texts(module):
        for each in words:
            if found := each.search(QUOTED.sub("", line)):
                yield f"{module.path.as_posix()}:{number}: {found[0]}"


def list_unnamed(module: Module) -> Iterator[str]:
    """Yield lines of texts that do not name what they mean, and such names of code."""
    for number, line in list_texts(module):
        if found := UNNAMED.search(QUOTED.sub("", line)):
            yield f"{module.path.as_posix()}:{number}: {found[0]}"
    for node, name in list_definitions(module):
        if UNNAMED_CODE.fullmatch(name):
            yield module.at(node, name)


def list_persons(module: Module) -> Iterator[str]:
    """Yield lines of docstrings, comments and messages in which no one in particular acts."""
    for number, line in enumerate(module.source.splitlines(), 1):
        if found := PERSONS.search(line):
            yield f"{module.path.as_posix()}:{number}: {found[0]}"


def list_wrong_verbs(module: Module) -> Iterator[str]:
    """Yield functions whose verb promises something else than they return.

    `find_` returns something or None, `list_` a sequence, `assess_` a verdict, a refusal or None.
    """
    if not VERB.search(module.source):
        return
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            answer = "" if node.returns is None else ast.unparse(node.returns).strip("'")
            for verb, promised in VERBS.items():
                if node.name.lstrip("_").startswith(verb) and not promised.fullmatch(answer):
                    yield module.at(node, f"{node.name} -> {answer}")


def map_shared_names(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Return the public classes whose name stands for two things, and where."""
    places: dict[str, list[str]] = {}
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module.name)
    return {name: found for name, found in places.items() if len(found) > 1}


def list_oversize(module: Module) -> Iterator[str]:
    """Yield a module that is too long to be one subject."""
    if module.lines > MOST_LINES:
        yield f"{module.path}: {module.lines} lines"


def list_missing_subject(module: Module) -> Iterator[str]:
    """Yield a module that does not say what it is about."""
    if module.source.startswith('"""'):
        return
    if module.tree.body and ast.get_docstring(module.tree) is None:
        yield f"{module.path}: no docstring"


def _below_top(module: Module) -> str:
    return Path(*module.path.parts[1:]).as_posix()


Rule = Callable[[Module], Iterator[str]]


RULES: tuple[Rule, ...] = (
    list_broad_catches,
    list_orphan_tasks,
    list_empty_words,
    list_home_made_words,
    list_words_gone_here,
    list_home_made_texts,
    list_unnamed,
    list_persons,
    list_wrong_verbs,
    list_oversize,
    list_missing_subject,
)


def test_the_package_keeps_the_rules() -> None:
    """In one test: each process that has one of the rules would parse the whole package for it."""
    found = {
        rule.__name__: [f for module in load_package() for f in rule(module)] for rule in RULES
    }

    assert {name: findings for name, findings in found.items() if findings} == {}


def test_a_public_class_has_a_name_of_its_own() -> None:
    assert map_shared_names(load_package()) == {}


def test_a_name_of_two_classes_is_found(tmp_path: Path) -> None:
    for name, source in (
        ("a.py", "class B: ...\nclass _C: ..."),
        ("d.py", "class B: ...\nclass _C: ..."),
    ):
        (tmp_path / name).write_text(source)

    assert map_shared_names(load_modules(tmp_path)) == {"B": ["a", "d"]}


def test_the_tests_keep_the_rules() -> None:
    rules = (list_oversize, list_missing_subject, list_home_made_words, list_wrong_verbs)
    modules = load_modules(ROOT / "tests")

    assert [found for module in modules for rule in rules for found in rule(module)] == []


@pytest.mark.parametrize(
    ("rule", "file", "source", "finding"),
    [
        (list_broad_catches, "a.py", "try: b\nexcept: c", ":2: catches BaseException"),
        (
            list_broad_catches,
            WORKER,
            "try: b\nexcept BaseException: c",
            ":2: catches BaseException",
        ),
        (
            list_broad_catches,
            "a.py",
            "try: b\nexcept (A, Exception): c",
            ":2: catches A, Exception",
        ),
        (list_broad_catches, "a.py", "with suppress(Exception): b", ":1: catches Exception"),
        (list_orphan_tasks, "a.py", "asyncio.create_task(b())", ":1: asyncio.create_task()"),
        (list_orphan_tasks, "a.py", "f().create_task(b())", ":1: .create_task()"),
        (list_empty_words, "a.py", "def handle_it(): ...", ":1: handle_it"),
        (list_empty_words, "a.py", "class PodManager: ...", ":1: PodManager"),
        (list_empty_words, "a.py", "self._do_it = 1", ":1: _do_it"),
        (list_empty_words, "utils.py", "", ": module name"),
        (list_home_made_words, "a.py", "def b(door): ...", ":1: door"),
        (list_home_made_words, "a.py", "for look in b: ...", ":1: look"),
        (list_home_made_words, "a.py", "self.note_failure = b", ":1: note_failure"),
        (list_home_made_words, "a.py", "def b(scene): ...", ":1: scene"),
        (
            list_home_made_words,
            "a.py",
            "def test_a_live_look_counts(): ...",
            ":1: test_a_live_look_counts",
        ),
        (list_words_gone_here, "a.py", "self._tell_b = 1", ":1: _tell_b"),
        (list_words_gone_here, "a.py", "a = [one.b for one in c]", ":1: one"),
        (list_home_made_texts, "a.py", '"""Not `a look`.\n\nA look."""', ":3: A look"),
        (list_home_made_texts, "a.py", "a = f'{b} permits {c}'", ":1: permits"),
        (list_home_made_texts, "a.py", "a = b  # as anyone may", ":1: anyone"),
        (list_unnamed, "model/a.py", '"""A pod.\n\nThe last one counts."""', ":3: last one"),
        (list_unnamed, "model/a.py", "# of zones, ones", ":1: ones"),
        (list_unnamed, "model/a.py", "a = f'one that {b}'", ":1: one that"),
        (list_unnamed, "model/a.py", "a = 'pods are asked'", ":1: asked"),
        (list_unnamed, "model/a.py", "# the view of a pod", ":1: view"),
        (list_unnamed, "model/a.py", "def b(asked): ...", ":1: asked"),
        (list_persons, "a.py", "# Nobody waits: nonetheless none do.", ":1: Nobody"),
        (list_persons, "a.py", "a = 1\n# as somebody else's", ":2: somebody"),
        (list_wrong_verbs, "a.py", "def find_b() -> str: ...", ":1: find_b -> str"),
        (list_wrong_verbs, "a.py", "async def _find_b(): ...", ":1: _find_b -> "),
        (list_wrong_verbs, "a.py", "def list_b() -> set[str]: ...", ":1: list_b -> set[str]"),
        (list_wrong_verbs, "a.py", "def assess_b() -> str: ...", ":1: assess_b -> str"),
        (list_oversize, "a.py", "a = 1\n" * 401, ": 401 lines"),
        (list_missing_subject, "a.py", "a = 1", ": no docstring"),
    ],
)
def test_a_breach_is_found(
    tmp_path: Path, rule: Rule, file: str, source: str, finding: str
) -> None:
    """The checks themselves work, each on a file made for it."""
    path = tmp_path / "p" / file
    path.parent.mkdir(parents=True)
    path.write_text(source)

    assert [found for module in load_modules(tmp_path / "p") for found in rule(module)] == [
        f"p/{file}{finding}"
    ]


@pytest.mark.parametrize(
    ("rule", "file", "source"),
    [
        (list_broad_catches, WORKER, "try: b\nexcept Exception: c"),
        (list_broad_catches, "a.py", "try: b\nexcept (OSError, ValueError): c"),
        (list_orphan_tasks, "aio/tasks.py", "asyncio.create_task(b())"),
        (
            list_orphan_tasks,
            "a.py",
            "async def b():\n async with asyncio.TaskGroup() as c: c.create_task(d())",
        ),
        (list_empty_words, "a.py", "done = thread.handle_it()\ndocument = redo_it"),
        (list_home_made_words, "a.py", "def test_it_does_not_look_like_b(note, preview): ..."),
        (list_home_made_texts, "a.py", "tell = f'{tell} a look-up'  # `undo`, told that it stays"),
        (list_home_made_texts, "lab/a.py", "# a story"),
        (list_unnamed, "lab/a.py", "# one by one, the one pod of one of them; `the last one`"),
        (list_wrong_verbs, "a.py", "def find_b() -> 'B | None': ...\ndef finder(): ..."),
        (list_wrong_verbs, "a.py", "def list_b() -> tuple[B, ...]: ..."),
        (
            list_wrong_verbs,
            "a.py",
            "def assess_b() -> Refusal | None: ...\ndef _assess_b() -> BVerdict: ...",
        ),
        (list_oversize, "a.py", "a = 1\n" * 400),
    ],
)
def test_what_is_allowed_is_left_alone(tmp_path: Path, rule: Rule, file: str, source: str) -> None:
    path = tmp_path / "p" / file
    path.parent.mkdir(parents=True)
    path.write_text(source)

    assert [found for module in load_modules(tmp_path / "p") for found in rule(module)] == []


@pytest.mark.parametrize(
    ("path", "code", "rule"),
    [
        ("rollout_operator/pki/x.py", "exec(input())", "S102"),
        ("rollout_operator/web/x.py", "import random\n\nrandom.Random()", "S311"),
        ("rollout_operator/kube/x.py", 'PASSWORD = "hunter2"', "S105"),
        ("tests/x.py", "import pickle\n\npickle.loads(b'')", "S301"),
    ],
)
def test_the_linter_finds_what_attackers_use(path: str, code: str, rule: str) -> None:
    """Rules `S` (flake8-bandit) are on; what is excepted stands in pyproject.toml, with why."""
    asked = [sys.executable, "-m", "ruff", "check", "--output-format=concise", "--no-cache"]
    found = subprocess.run(
        [*asked, f"--stdin-filename={path}", "-"],
        cwd=ROOT,
        input=f"{code}\n",
        capture_output=True,
        check=False,
        text=True,
    )
    assert f" {rule} " in found.stdout
