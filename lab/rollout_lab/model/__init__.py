"""The words of the lab: requests and their answers, fields of objects, the history of a run."""
