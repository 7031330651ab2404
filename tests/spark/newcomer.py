"""What a newcomer writes: a session of one's own, a topic read and written; run from anywhere."""

import sys

from pyspark.sql import SparkSession

import penstock
from penstock.spark import read, register, to_topic

folder = sys.argv[1]
with penstock.open(folder) as store:
    store.create_topic("orders").write_many(
        [f"{n}" for n in range(100)], keys=[f"k{n % 3}" for n in range(100)]
    )
    store.create_topic("counts")

spark = register(SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate())
orders = spark.read.format("penstock").option("topic", "orders").load(folder)
counts = orders.groupBy("key").count().selectExpr("key", "string(count) AS value")
to_topic(counts, folder, "counts")
print(sorted((bytes(row.key).decode(), int(row.value)) for row in read(spark, folder, "counts").collect()))
spark.stop()
