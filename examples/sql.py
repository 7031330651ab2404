"""Query a live topic with DuckDB, without copying it anywhere (needs penstock[arrow] and duckdb).

python examples/sql.py [FOLDER]
"""

import json
import random
import sys

import duckdb

import penstock

QUERY = """
    select json_extract_string(decode(value), '$.product') as product,
           count(*) as sold,
           sum(json_extract(decode(value), '$.price')::double) as revenue
    from sales group by all order by sold desc, product
"""


def main(folder: str) -> None:
    products = {"tea": 3.5, "coffee": 4.2, "water": 1.0}
    chance = random.Random(7)
    with penstock.open(folder) as store:
        topic = store.create_topic("sales", exists_ok=True)
        with topic.writer() as writer:
            for _ in range(20_000):
                product = chance.choice(list(products))
                writer.write(json.dumps({"product": product, "price": products[product]}), key=product)
        sales = topic.scan(start="1h")  # what was written during the last hour; lazy
        print(duckdb.sql(QUERY))
        print(f"{sales!r}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "data")
