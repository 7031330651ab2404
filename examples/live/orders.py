"""A shop: writes orders to the topic `orders`, more of one product now and of another then.

python examples/live/orders.py FOLDER
"""

from __future__ import annotations

import json
import math
import random
import signal
import sys
import time

import penstock

PRODUCTS = {"coffee": 3, "tea": 2, "cake": 5}
EVERY_S = 0.1


def main(folder: str) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with penstock.open(folder) as store:
            orders = store.topic("orders")
            while True:
                orders.write_many([json.dumps(order) for order in some_orders(time.time())])
                time.sleep(EVERY_S)
    except KeyboardInterrupt:
        return


def some_orders(now: float) -> list[dict[str, object]]:
    """Orders of a tenth of a second: each product has its own tide."""
    made: list[dict[str, object]] = []
    for number, (product, price) in enumerate(PRODUCTS.items()):
        rate = 4 + 3 * math.sin(now / (9 + 4 * number) + 2 * number)
        made += [{"product": product, "total": price, "time": now}] * max(1, round(random.gauss(rate, 0.7)))
    return made


if __name__ == "__main__":
    main(sys.argv[1])
