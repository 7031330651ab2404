"""Measures Penstock against its targets and its peers: `python -m benchmarks`. See README.md."""
