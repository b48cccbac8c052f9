"""Two simulations of the same objects side by side: what `-versus` shows."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from rollout_lab.simulate.figures import Figures, find_shortest_pause
from rollout_lab.simulate.report import SimulationRun, list_ends, show_span, wrap_words
from rollout_operator.planning.wording import count

_GAP: Final = "  "


def render_comparison(change: SimulationRun, versus: SimulationRun, width: int) -> Iterator[str]:
    """Yield the lines of a table, at most so many columns wide unless a name is longer."""
    left, right = dict(_list_cells(change)), dict(_list_cells(versus))
    first = max(map(len, left))
    room = (width - first - 2 * len(_GAP)) // 2
    yield "Nothing is sent anywhere: all of this happens on two copies of the input."
    yield ""
    for label in left:
        cells = [_wrap(side[label], room) for side in (left, right)]
        for place, (cell, other) in enumerate(zip_longest(*cells, fillvalue="")):
            head = "" if place else label
            yield f"{head:{first}}{_GAP}{cell:{room}}{_GAP}{other}".rstrip()


def _list_cells(run: SimulationRun) -> Iterator[tuple[str, str]]:
    figures = run.figures
    changes = "\n".join(change.text for _, change in run.settings.changes)
    yield "changes", changes or "none"
    yield "in the end", "\n".join(list_ends(run.play))
    yield "last move after", show_span(run.play.moved_at)
    yield "deletes by the operator", str(len(figures.deletes))
    for policy in run.dump.policies:
        batches = figures.list_batches_of(policy.name)
        yield f"batches of {policy.name}", str(len(batches))
        pause = find_shortest_pause(batches)
        yield f"shortest pause of {policy.name}", "none" if pause is None else show_span(pause)
    for zone, down in figures.most_down.items():
        yield f"most down of {zone}", str(down)
    together = sum(overlap.span.total_seconds() for overlap in figures.overlaps)
    yield "zones down together", f"for {together:.0f}s" if figures.overlaps else "never"
    yield "requests refused", str(len(figures.refusals))
    yield "evictions", _describe_evictions(figures)
    crossings = figures.crossings
    first = f"{count(len(crossings), 'time')}, first: {crossings[0].text}" if crossings else "never"
    yield "past a bound", first


def _describe_evictions(figures: Figures) -> str:
    if not figures.evictions:
        return "none"
    longest = max(eviction.waited for eviction in figures.evictions)
    refused = sum(eviction.is_open for eviction in figures.evictions)
    more = f", {refused} not allowed in the end" if refused else ""
    pods = count(len(figures.evictions), "pod")
    return f"of {pods}, waited {show_span(longest)} at most{more}"


def _wrap(text: str, room: int) -> Sequence[str]:
    lines = text.splitlines()
    wrapped = (wrap_words(line, room) for line in lines)
    return [row for rows in wrapped for row in rows] or [""]
