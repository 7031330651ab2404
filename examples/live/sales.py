"""Sales of each product by the second, under the product as key: what the chart shows.

    penstock run examples/live/sales.py -s FOLDER

A row is written each time its second changes, so the last one of a second is right.
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, count, from_json, sum, window

import penstock


@penstock.pipeline(source="orders", sink="sales", output="update", key="product", trigger="1s")
def sales(orders: DataFrame) -> DataFrame:
    parsed = orders.select(
        from_json(col("value").cast("string"), "product string, total double, time double").alias("o")
    )
    placed = parsed.select("o.*", col("o.time").cast("timestamp").alias("at")).withWatermark("at", "1 minute")
    seconds = placed.groupBy(window("at", "1 second"), "product").agg(
        count("*").alias("orders"), sum("total").alias("total")
    )
    return seconds.select("product", col("window.start").cast("long").alias("second"), "orders", "total")
