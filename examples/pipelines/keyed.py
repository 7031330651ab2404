"""Sales of each product as they stand, under the product as key: a live reader follows the ones it shows.

    penstock write orders '{"product": "chair", "total": 30}' -s data
    penstock topic create sales -s data
    penstock run examples/pipelines/keyed.py -s data
    penstock read sales --follow -s data

Every message holds the whole of what is known of its key: whoever comes late needs the last one only.
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, count, from_json, sum

import penstock


@penstock.pipeline(source="orders", sink="sales", output="update", key="product", trigger="1s")
def sales(orders: DataFrame) -> DataFrame:
    parsed = orders.select(from_json(col("value").cast("string"), "product string, total double").alias("o"))
    return parsed.groupBy("o.product").agg(count("*").alias("orders"), sum("o.total").alias("total"))
