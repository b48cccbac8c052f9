"""The pictures of the documents, each made from a real run: `python -m tests.pictures`."""
