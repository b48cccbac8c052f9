"""What words and variables mean: tables of cases, as in `tests.model`."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import timedelta
from functools import partial
from typing import Any, Final

from hypothesis import example, given
from hypothesis import strategies as st

from rollout_operator.config.checks import read_config
from rollout_operator.config.flags import Config, get_flag, read_environment
from rollout_operator.config.grammar import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    LIST,
    LONG_SPAN,
    TEXT,
    Flag,
    FlagKind,
    HelpRequested,
    ParsedArguments,
    UsageError,
    parse_arguments,
    parse_mixed,
)
from rollout_operator.model.names import ConfigError
from tests.examples import repeatable
from tests.model.cases import call, show
from tests.stories import check_tables

IN_NAMESPACE: Final = "-kubernetes.namespace=prod"


def flag(name: str, kind: FlagKind[Any], default: object, alias: str = "") -> Flag[Any]:
    return Flag(name=name, kind=kind, default=default, alias=alias, help="", group="")


FLAGS: Final = (
    flag("a.name", TEXT, "none", alias="a-name"),
    flag("on", BOOL, False),
    flag("count", INT, 1),
    flag("rate", FLOAT, 0.5),
    flag("span", DURATION, timedelta(0)),
    flag("parts", LIST, ()),
    flag("long", LONG_SPAN, timedelta(days=365)),
)


def tell_parsed(parsed: ParsedArguments) -> str:
    """Return the flags that are given, and what is left of the words."""
    given = {each.name: parsed.value(each) for each in FLAGS if parsed.has(each)}
    left = [f"left: {show(parsed.leftovers)}"] if parsed.leftovers else []
    return ", ".join([*(f"{name}={show(value)}" for name, value in given.items()), *left]) or "none"


def read_flags(*words: str) -> str:
    """Return which settings differ from those of the namespace alone."""
    return tell_config(read_config([IN_NAMESPACE, *words]))


def tell_config(config: Config) -> str:
    plain = Config(namespace="prod")
    names = [one.name for one in fields(Config)]
    changed = [name for name in names if getattr(config, name) != getattr(plain, name)]
    return ", ".join(f"{name}={show(getattr(config, name))}" for name in changed) or "the defaults"


def read_variables(*words: str) -> str:
    """Return what variables and flags mean together; `mounted=` is the service account's file."""
    variables = {"POD_NAMESPACE": "ops"}
    variables |= dict(word.split("=", 1) for word in words if word[:1] != "-")
    mounted = variables.pop("mounted", "")
    flags = [word for word in words if word[:1] == "-"]
    config = read_config(flags, read_environment(variables, mounted))
    assert config.watches_all == (not config.namespaces)
    assert config.watches_several == (len(config.namespaces) != 1)
    environment = config.environment
    port = f"port {config.extra_port}{' chosen' if environment.is_port_chosen else ''}"
    return "; ".join(
        [
            f"{', '.join(config.namespaces) or 'all namespaces'} from {config.namespace}",
            f"{config.log_level}, {port}, {config.operator_name} with {config.lease}",
            *environment.warnings,
        ]
    )


def with_code(read: Callable[..., str]) -> Callable[..., str]:
    """Return the same, with the exit code where the words are refused or help is requested."""

    def run(*words: str) -> str:
        try:
            return read(*words)
        except ConfigError as error:
            return f"exit {error.exit_code}: {error}"
        except HelpRequested as request:
            return "full help" if request.is_full else "help"

    return run


def read_tracker(*words: str) -> str:
    config = read_config([IN_NAMESPACE, *words])
    return f"{config.zone_tracker or 'none'}{', with webhooks' * config.webhooks_enabled}"


def show_again(word: str) -> str:
    """Return a flag as it is shown, which must be what was written."""
    parsed = parse_arguments(FLAGS, [word])
    [given] = [one for one in FLAGS if parsed.has(one)]
    shown = f"-{given.name}={given.kind.show(parsed.value(given))}"
    return shown if shown == word else f"{shown}, not {word}"


def show_default(name: str) -> str:
    found = get_flag(name)
    return str(found.kind.show(found.default)) or "empty"


FUNCTIONS: Final[Mapping[str, Callable[..., str]]] = {
    "again": show_again,
    "bare": with_code(lambda *words: tell_config(read_config(words))),
    "default": show_default,
    "env": with_code(read_variables),
    "flags": with_code(read_flags),
    "mixed": with_code(lambda *words: tell_parsed(parse_mixed(FLAGS, words))),
    "parse": with_code(lambda *words: tell_parsed(parse_arguments(FLAGS, words))),
    "tracker": read_tracker,
}


test_case = check_tables(
    __file__, **dict.fromkeys(("arguments", "environment", "flags"), partial(call, FUNCTIONS))
)


def test_a_flag_is_given_or_at_its_default() -> None:
    words = parse_arguments(FLAGS, ["-count=1"])

    assert {each.name for each in FLAGS if words.has(each)} == {"count"}
    assert words.value(FLAGS[0]) == "none"


@repeatable(300)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(["-on", "-count", "--count=2", "-h", "--", "-", "-a.name", "-span=1s"]),
            st.text(alphabet="-=ahon.1 ", max_size=6),
        ),
        max_size=5,
    )
)
@example(["-on=", "x"])
def test_any_words_are_read_or_refused_for_a_reason(words: list[str]) -> None:
    """What is left over is always the end of the words, untouched."""
    read = outcome(words)

    if isinstance(read, UsageError):
        assert str(read)
    elif isinstance(read, ParsedArguments):
        assert read.leftovers == tuple(words[len(words) - len(read.leftovers) :])


def outcome(words: list[str]) -> ParsedArguments | UsageError | HelpRequested:
    try:
        return parse_arguments(FLAGS, words)
    except (UsageError, HelpRequested) as error:
        return error
