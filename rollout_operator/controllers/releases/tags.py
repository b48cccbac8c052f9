"""The tags of objects: what they mention, to find those of one Rollout among thousands."""

from collections.abc import Iterator, Mapping
from typing import Final

from rollout_operator.model.releases.flux import (
    OCI_REPOSITORY,
    AnnotationProblem,
    FluxReference,
    Kustomization,
    OciRepository,
    Writers,
)
from rollout_operator.model.releases.gate import ReleaseGate
from rollout_operator.model.releases.rollout import ReleaseRollout
from rollout_operator.planning.releases.flux.writes import name_manager

# Of Rollouts that select HealthChecks by other means than the value of a label.
_SELECTS: Final = "selects:"


def list_tags(decoded: object) -> Iterator[str]:
    """Yield the tags of an object: Rollouts, field managers, and the sources that it applies."""
    match decoded:
        case ReleaseRollout():
            yield from _list_selected(decoded)
        case ReleaseGate():
            yield decoded.rollout
        case OciRepository():
            if decoded.rollout is not None:
                yield decoded.rollout
            yield from _list_others(decoded.writers, decoded.problems)
        case Kustomization():
            yield from decoded.rollouts.values()
            yield from _list_others(decoded.writers, decoded.problems)
            if decoded.source.kind == OCI_REPOSITORY:
                yield tag_source(decoded.source)


def tag_rollout(name: str) -> tuple[str, ...]:
    """Return the tags of objects that a Rollout writes, or wrote."""
    return (name, name_manager(name))


def tag_source(source: FluxReference) -> str:
    """Return the tag of Kustomizations that apply a source; no name has a colon."""
    return f"source:{source.namespace}/{source.name}"


def tag_labels(labels: Mapping[str, str]) -> Iterator[str]:
    """Yield the tags of Rollouts that may select a HealthCheck with these labels."""
    yield _SELECTS
    yield from (f"{_SELECTS}{key}={value}" for key, value in labels.items())


def _list_selected(rollout: ReleaseRollout) -> Iterator[str]:
    checks = rollout.spec.checks
    if checks is not None and checks.selector is not None:
        # One of the required labels is enough to find it by.
        first = min(checks.selector.labels.items(), default=None)
        yield _SELECTS if first is None else f"{_SELECTS}{first[0]}={first[1]}"


def _list_others(writers: Writers, problems: tuple[AnnotationProblem, ...]) -> Iterator[str]:
    for managers in writers.values():
        yield from managers
    yield from (problem.rollout for problem in problems)
