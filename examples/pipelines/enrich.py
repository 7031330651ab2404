"""Orders, each with what a table knows of its customer.

    penstock write orders '{"id": 1, "customer": 7, "total": 30}' -s data
    penstock topic create orders.enriched -s data
    penstock run examples/pipelines/enrich.py -s data --once --set least=10

`customers.csv` lies beside this file; `--set customers=PATH` takes another one, Parquet or Delta as well.
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import broadcast, col, from_json

import penstock

ORDER = "id long, customer long, total double"


@penstock.pipeline(source="orders", sink="orders.enriched", tables={"customers": "customers.csv"}, key="name")
def enrich(orders: DataFrame, customers: DataFrame, *, least: float = 0.0) -> DataFrame:
    """A row becomes a JSON object, under the customer's name as its key."""
    parsed = orders.select(from_json(col("value").cast("string"), ORDER).alias("order")).select("order.*")
    known = customers.select(col("id").alias("customer"), "name", "country")
    return parsed.where(col("total") >= least).join(broadcast(known), "customer", "left")
