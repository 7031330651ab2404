"""A shop that writes its orders into the topic, as a process of its own.

    python examples/demo/shop.py STORE NUMBER ORDERS SECONDS

Each order is written under its own number, so the log skips what it has already: after a kill -9 the shop
just sends its latest orders again. It tells how it does by lines of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import penstock

TOPIC = "orders"
COUNTRIES = ("de", "fr", "it", "jp", "us")
#: So many orders are sent again after a crash, whether or not they were stored.
AGAIN = 100
#: So often a shop waits for the disk; between two of these it may be killed anywhere.
_FLUSHES = 200


def order(shop: int, number: int) -> dict[str, Any]:
    """The same order whenever it is made."""
    country = COUNTRIES[(shop + number * number // 7) % len(COUNTRIES)]
    return {"shop": shop, "n": number, "country": country, "cents": 100 + number * 7919 % 9900}


def write(path: str, shop: int, orders: int, duration_s: float) -> None:
    """Write orders 1 to `orders`, going on a little before where an earlier life of the shop stopped."""
    name = f"shop-{shop}"
    step = max(orders // _FLUSHES, 1)
    with penstock.open(path) as store, store.topic(TOPIC).writer(producer_id=name) as writer:
        stored = writer.last_seqno() or 0
        first = max(stored - AGAIN, 0) + 1
        tell(stored=stored, first=first, acknowledged=0, skipped=0)
        for number in range(first, orders + 1):
            writer.write(json.dumps(order(shop, number)), key=name, seqno=number)
            if number % step == 0 or number == orders:
                # Meanwhile the writer stores what it was given: whoever is killed here has stored orders,
                # and holds no receipt for them.
                time.sleep(duration_s * step / orders)
                writer.flush()
                tell(acknowledged=number, skipped=writer.skipped)


def tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
