"""The user's own pipelines: `@penstock.pipeline` on a function from DataFrames to a DataFrame.

    pipeline     the decorator, and how the user's code reaches Spark's workers
    definition   what the decorator was given and what the function takes, checked; errors by their line
    query        the streaming DataFrame of a pipeline, the tables it reads, and its sink
    query_plan   what Spark made of the function: sources, columns, state
    run          one run of a pipeline over a store
    trial        `.test(…)`: a run over a few rows, for the user's own tests
    load         the pipelines in a Python file

Nothing here imports PySpark before a pipeline is run: a file with pipelines can be imported without it.
"""

from __future__ import annotations
