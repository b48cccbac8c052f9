"""What is read of texts: tables of cases, a function and its arguments a line."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeVar, cast

from rollout_operator.model.lease import read_address, render_address
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.objects import (
    MOST_LABELS,
    LabelSelector,
    SelectorTerm,
    bound_labels,
    parse_ordinal,
    selects,
)
from rollout_operator.model.policy import check_label_key, check_label_value
from rollout_operator.model.scaling import decode_entry, is_recorded
from rollout_operator.model.units import (
    compile_extraction,
    compile_pattern,
    format_duration,
    format_go_time,
    format_next_second,
    format_prometheus_duration,
    format_rfc3339,
    has_open_alternation,
    parse_duration,
    parse_go_bool,
    parse_go_int,
    parse_max_unavailable,
    parse_prometheus_duration,
    parse_rfc3339,
)
from rollout_operator.releases.model.releases import parse_reference, parse_repository
from tests.builders import sts
from tests.model.cases import call, show
from tests.stories import check_tables

T = TypeVar("T")

NOW: Final = datetime(2020, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
MILLISECOND: Final = timedelta(milliseconds=1)


def read_duration(text: str) -> str:
    span = parse_duration(text)
    return f"{span // MICROSECOND} \u00b5s, {format_duration(span)}"


def read_long_duration(text: str) -> str:
    span = parse_prometheus_duration(text)
    return f"{span // MILLISECOND} ms, {format_prometheus_duration(span)}"


def read_time(text: str) -> str:
    time = read_until(parse_rfc3339, text, " is no RFC 3339 time")
    return f"{time.isoformat()}, {format_rfc3339(time)}, {format_go_time(time)}"


def read_until(read: Callable[[str], T], text: str, reason: str) -> T:
    """Read a text; of its refusal keep what comes before the words of Python or a library."""
    try:
        return read(text)
    except InvalidInput as error:
        before, found, _ = str(error).partition(reason)
        raise InvalidInput(f"{before}{found}") from error


def read_limit(text: str, replicas: str = "10") -> str:
    limit = parse_max_unavailable(text)
    return f"{limit.of(int(replicas))} of {replicas} by {limit}"


def read_reference(text: str) -> str:
    found = parse_reference(text)
    assert parse_reference(str(found)) == found
    parts = {"tag": found.tag, "digest": found.digest}
    more = [f"{key} {one}" for key, one in parts.items() if one is not None]
    return ", ".join([f"{found.repository.name} of {found.repository.registry}", *more])


def read_pattern(pattern: str, text: str = "") -> str:
    found = compile_pattern(pattern).capture(text, 1)
    return "no match" if found is None else show(found)


def has_open(pattern: str) -> str:
    compile_pattern(pattern)
    return show(has_open_alternation(pattern))


class Unwalked:
    """As many ordinals as there can be; it breaks when something walks them one by one."""

    def __contains__(self, ordinal: object) -> bool:
        # `range` compares anything but a number with each of its own.
        assert isinstance(ordinal, int)
        return ordinal in range(2**31 - 1)


def find_ordinal(pod: str) -> str:
    """Return the ordinal of a pod of `zone-a`, and of it among all but the last (D-51)."""
    found = sts("a").find_ordinal(pod, cast("range", Unwalked()))
    return f"{show(sts('a').ordinal_of(pod))}, {show(found)}"


def tell_recorded(text: str | None = None) -> str:
    """Return whether an entry says now, or later; a day later than the last of them none does."""
    assert not is_recorded(text, NOW + timedelta(days=1))
    return show(is_recorded(text, NOW))


def show_selects(selector: str, many: str = "") -> str:
    """Return whether labels are selected, beside which many more may be that are not kept."""
    wanted = dict(one.split("=") for one in selector.split())
    more = {f"l{number}": "x" for number in range(MOST_LABELS if many else 0)}
    return show(selects(wanted, bound_labels({"rollout-group": "g", "zone": "a", **more})))


def show_term(operator: str, *values: str) -> str:
    """Return whether a term over `a` takes `a=b`, and what has no `a`."""
    term = SelectorTerm(key="a", operator=operator, values=values)
    selector = LabelSelector(terms=(term,))
    return f"{show(selector.takes({'a': 'b'}))}, {show(selector.takes({'x': 'b'}))}"


FUNCTIONS: Final[Mapping[str, Callable[..., str]]] = {
    "address": lambda ip, port: render_address(ip, int(port)) or "none",
    "bool": lambda text: show(parse_go_bool(text)),
    "duration": read_duration,
    "entry": lambda text: show(read_until(decode_entry, text, " is no JSON")),
    "expand": lambda pattern, to: show(compile_extraction(pattern, to)("abc-12")),
    "int": lambda text, bits="64": str(parse_go_int(text, int(bits))),
    "key": lambda text: show(check_label_key(text)),
    "limit": read_limit,
    "long": read_long_duration,
    "match": read_pattern,
    "next": lambda text: format_next_second(datetime.fromisoformat(text)),
    "open": has_open,
    "ordinal": lambda digits: show(parse_ordinal(digits)),
    "peer": lambda text: read_address(text) or "none",
    "pod": find_ordinal,
    "recorded": tell_recorded,
    "reference": read_reference,
    "repository": lambda text: f"{parse_repository(text)} at {parse_repository(text).host}",
    "selects": show_selects,
    "term": show_term,
    "time": read_time,
    "value": lambda text: show(check_label_value(text)),
}


read: Final = partial(call, FUNCTIONS)
test_case = check_tables(__file__, labels=read, names=read, patterns=read, units=read)
