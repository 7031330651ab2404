"""Account balances, exactly: each payment changes its account once, whatever is killed in between.

    penstock write payments 100 --key alice -s data
    penstock topic create balances -s data
    penstock run examples/pipelines/balances.py -s data --once
    penstock read balances -s data

The sums lie in Spark's state; sums, positions and what is written move on together. The balance of an
account is the last message under its key. `examples/balances.py` does the same without Spark.
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, sum

import penstock


@penstock.pipeline(source="payments", sink="balances", output="update")
def balances(payments: DataFrame) -> DataFrame:
    amounts = payments.select("key", col("value").cast("string").cast("long").alias("amount"))
    totals = amounts.groupBy("key").agg(sum("amount").alias("balance"))
    return totals.select("key", col("balance").cast("string").alias("value"))
