"""Whether the controller of a StatefulSet has seen its template, where its status is behind.

Pure. Another count of replicas leaves the status behind as a new template does, and only the latter
makes a new revision. Pods of the newest revision show what template that was made of.
"""

from collections.abc import Iterable

from rollout_lab.model.fields import child, number, text
from rollout_operator.kube.api import JsonObject
from rollout_operator.model.names import REVISION_LABEL


def is_template_seen(sts: JsonObject, pods: Iterable[JsonObject]) -> bool:
    """Return whether the update revision that the status names is that of the template.

    Where no pod tells, a status that is behind counts as a controller that has not seen it.
    """
    if number(sts, "status", "observedGeneration") >= number(sts, "metadata", "generation"):
        return True
    template, update = child(sts, "spec", "template"), text(sts, "status", "updateRevision")
    made = {"metadata": _worn(template), "spec": child(template, "spec")}
    return any(
        text(pod, "metadata", "labels", REVISION_LABEL) == update and _holds(pod, made)
        for pod in pods
    )


def _worn(template: JsonObject) -> JsonObject:
    """Return what pods get of a template's metadata."""
    return {part: child(template, "metadata", part) for part in ("labels", "annotations")}


def _holds(found: object, made: object) -> bool:
    """Return whether everything of a template is in a pod, to which admission may have added."""
    if isinstance(made, dict):
        there = found if isinstance(found, dict) else {}
        return all(_holds(there.get(key), value) for key, value in made.items())
    if isinstance(made, list):
        items = found if isinstance(found, list) else []
        return all(any(_holds(item, wanted) for item in items) for wanted in made)
    return found == made or made is None
