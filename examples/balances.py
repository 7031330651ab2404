"""Account balances, exactly: banks send payments, workers keep the balances, and anyone may be killed.

    python examples/balances.py [DATA] [--accounts 200] [--payments 4000] [--kills 10]

Every payment must change its account once, however often the process that sent it, or the one that
counts it, is killed in the middle. Three promises do it:

    banks     write with a producer id and a seqno: what is sent again is not stored again
    workers   share the partitions of one consumer: an account has one worker at a time
    tx        what was read and the balances that follow from it become true together

The balance of an account is the last message under its key in the topic "balances".
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import penstock

PARTITIONS = 6
BANKS, WORKERS = 3, 3
PATIENCE_S = 100.0


def payment(bank: int, number: int, accounts: int) -> tuple[str, int]:
    """The account and the amount of a bank's n-th payment: the same whenever it is asked."""
    chance = random.Random(bank * 1_000_003 + number)
    return f"account-{chance.randrange(accounts)}", chance.randrange(-500, 1000)


def bank(data: str, number: int, payments: int, accounts: int) -> None:
    """Send all payments; started again, a bank sends all of them again, and what is stored is skipped."""
    with penstock.open(data) as store:
        with store.topic("payments").writer(producer_id=f"bank-{number}") as writer:
            for seqno in range(1, payments + 1):
                account, amount = payment(number, seqno, accounts)
                writer.write(str(amount), key=account, seqno=seqno)
                if seqno % 50 == 0:
                    writer.flush()
                    time.sleep(0.01)


def worker(data: str, stop: str) -> None:
    """Keep the balances of the accounts in the partitions that this worker has."""
    known: dict[int, tuple[int, Counter[str]]] = {}  # partition: (next offset, balances)
    with penstock.open(data) as store, store.topic("payments").reader(consumer="balances") as reader:
        while True:
            over = os.path.exists(stop)
            try:
                with store.transaction() as tx:
                    batch = reader.receive_batch(200, timeout=0.2, tx=tx)
                    if batch:
                        count(store, tx, batch, known)
            except penstock.PartitionLost:
                known.clear()  # someone else counts it now; what we added was rolled back
                continue
            if over and not batch and not reader.lag().messages:
                return


def count(store: penstock.Store, tx: penstock.Transaction, batch: penstock.Batch, known: dict) -> None:
    partition, first = batch[0].partition, batch[0].offset
    place, balances = known.get(partition, (-1, Counter()))
    if place != first:  # it is new to us, or someone else had it in between
        balances = stored_balances(store, partition)
    touched = set()
    for message in batch:
        account = message.key.decode()
        balances[account] += int(message.value)
        touched.add(account)
    for account in sorted(touched):
        tx.write("balances", str(balances[account]), key=account, partition=partition)
    known[partition] = (batch[-1].offset + 1, balances)


def stored_balances(store: penstock.Store, partition: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for message in store.topic("balances").scan(partition=partition).messages():
        found[message.key.decode()] = int(message.value)
    return found


def main() -> int:
    if len(sys.argv) > 1 and sys.argv[1] in ("bank", "worker"):
        role, data, *rest = sys.argv[1:]
        if role == "bank":
            bank(data, *map(int, rest))
        else:
            worker(data, *rest)
        return 0
    parser = argparse.ArgumentParser(description="Exact balances while processes are killed.")
    parser.add_argument(
        "data", nargs="?", help="the store's folder (default: one that is removed afterwards)"
    )
    parser.add_argument("--accounts", type=int, default=200)
    parser.add_argument("--payments", type=int, default=4000, help="how many each bank sends")
    parser.add_argument("--kills", type=int, default=10)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(chosen.data or os.path.join(folder, "data"), chosen)


def run(data: str, chosen: argparse.Namespace) -> int:
    with penstock.open(data) as store:
        store.create_topic("payments", partitions=PARTITIONS, exists_ok=True)
        store.create_topic("balances", partitions=PARTITIONS, exists_ok=True)
    stop = os.path.join(data + ".stop")
    banks = [["bank", data, str(n), str(chosen.payments), str(chosen.accounts)] for n in range(BANKS)]
    processes = {
        number: start(command) for number, command in enumerate(banks + [["worker", data, stop]] * WORKERS)
    }
    try:
        kills = kill_some(processes, banks + [["worker", data, stop]] * WORKERS, chosen.kills)
        deadline = time.monotonic() + PATIENCE_S
        for number in range(BANKS):
            ended(processes[number], deadline)
        Path(stop).touch()
        for number in range(BANKS, BANKS + WORKERS):
            ended(processes[number], deadline)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
        Path(stop).unlink(missing_ok=True)
    return compare(data, chosen, kills)


def start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, *command])


def kill_some(processes: dict, commands: list[list[str]], kills: int) -> Counter[str]:
    """Kill processes at random, and start each again at once."""
    chance, killed = random.Random(), Counter()
    for _ in range(kills):
        time.sleep(chance.uniform(0.1, 0.5))
        number = chance.randrange(len(commands))
        if processes[number].poll() is None:
            processes[number].send_signal(signal.SIGKILL)
            processes[number].wait()
            processes[number] = start(commands[number])
            killed[commands[number][0]] += 1
    return killed


def ended(process: subprocess.Popen[bytes], deadline: float) -> None:
    if process.wait(max(deadline - time.monotonic(), 1)) != 0:
        raise SystemExit("a process failed: see above")


def compare(data: str, chosen: argparse.Namespace, kills: Counter[str]) -> int:
    """What the banks meant against what the workers counted."""
    meant: Counter[str] = Counter()
    for number in range(BANKS):
        for seqno in range(1, chosen.payments + 1):
            account, amount = payment(number, seqno, chosen.accounts)
            meant[account] += amount
    with penstock.open(data, read_only=True) as store:
        stored = store.topic("payments").stats().messages
        counted: Counter[str] = Counter()
        for partition in range(PARTITIONS):
            counted.update(stored_balances(store, partition))
    wrong = [account for account in meant if meant[account] != counted[account]]
    summary = {"payments": stored, "accounts": len(meant), "killed": dict(kills), "wrong": len(wrong)}
    print(json.dumps(summary))
    if wrong or stored != BANKS * chosen.payments:
        return 1
    print(f"all {len(meant)} balances are right after {sum(kills.values())} kills")
    return 0


if __name__ == "__main__":
    sys.exit(main())
