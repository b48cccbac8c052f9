"""Speed and memory of the operator, measured: `python -m benchmarks --explain`."""
