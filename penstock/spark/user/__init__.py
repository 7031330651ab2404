"""The user's own pipelines: `@penstock.pipeline` on a function from DataFrames to a DataFrame.

    definition   what the decorator was given, checked
    signature    what the function takes: sources, tables, parameters
    tables       tables that a pipeline reads beside its topics
    plan         what Spark made of the function: sources, columns, state
    query        the streaming DataFrame of a pipeline, reading no column too many, and where it goes
    settings     settings of Spark that a query is started with
    running      one run of a pipeline over a store
    trial        `.test(…)`: a run over rows, for the user's own tests
    blame        errors of the user's code, by their line
    loading      the pipelines in a Python file
    shipping     the user's code on its way to Spark's workers

Nothing here imports PySpark before a pipeline is run: a file with pipelines can be imported without it.
"""

from __future__ import annotations
