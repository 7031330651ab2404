"""A driver on a cluster: `python -m tests.spark.sink_cluster_driver '{"master": …, "store": …}'`.

It writes numbers to the topic and reads them back. One task's first attempt is slow, so that where
speculation is on, a second attempt on the other host overtakes it; each attempt leaves a file.
"""

import json
import os
import sys
import time

from penstock.spark import session

ROWS = 2000
TASKS = 4


def attempts(folder: str, slow_s: float):
    def passed_on(batches):
        from pyspark import TaskContext

        task = TaskContext.get()
        name = f"{task.partitionId()}-{task.attemptNumber()}-{os.environ.get('SPARK_LOCAL_IP', '')}"
        with open(os.path.join(folder, name), "w"):
            pass
        yield from batches
        if task.partitionId() == TASKS - 1 and task.attemptNumber() == 0:
            time.sleep(slow_s)

    return passed_on


def main(master: str, store: str, folder: str, slow_s: float, conf: dict[str, str]) -> None:
    spark = session(master, **conf)
    numbers = spark.range(0, ROWS, 1, TASKS).selectExpr("string(id) AS value", "string(id) AS key")
    slowed = numbers.mapInArrow(attempts(folder, slow_s), "value string, key string")
    slowed.write.format("penstock").option("topic", "orders").mode("append").save(store)
    read = (
        spark.read.format("penstock").option("topic", "orders").load(store).selectExpr("int(string(value)) n")
    )
    found = read.selectExpr("count(*)", "count(DISTINCT n)", "min(n)", "max(n)").first()
    print(json.dumps(list(found)))
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
