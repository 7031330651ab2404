"""Open a folder, write, read, commit, come back later.

python examples/quickstart.py [FOLDER]
"""

import sys

import penstock


def main(folder: str) -> None:
    with penstock.open(folder) as store:
        orders = store.create_topic("orders", partitions=3, retention="7d", exists_ok=True)
        for number in range(5):
            receipt = orders.write(f"order {number}", key=f"customer-{number % 2}", headers={"shop": "web"})
            print(f"stored at partition {receipt.partition}, offset {receipt.offset}, safe on {receipt.sync}")

        # The first run sees everything; a second run of this program only what is new.
        with orders.reader(consumer="billing", follow=False) as reader:
            for message in reader:
                print(f"{message.time:%H:%M:%S} {message.key!r}: {message.text}")
                reader.commit(message)

        print(orders.stats())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "data")
