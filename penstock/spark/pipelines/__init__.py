"""The ready pipelines, one file each; docs/pipelines.md shows them. `replay` needs no Spark: `store.replay`.

Each is a function of a store, a source and a sink that returns when its work is done, with a summary.
"""
