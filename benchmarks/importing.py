"""What `import penstock` costs a program that starts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.harness import Bench
from benchmarks.rows import Row, at_most

_PROGRAM = """
import json, sys, time
before = set(sys.modules)
begin = time.perf_counter()
import penstock
took = time.perf_counter() - begin
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
own = {"penstock", "msgspec", "typing_extensions"}  # the last is msgspec's doing, where it is installed
print(json.dumps([took, sorted(loaded - sys.stdlib_module_names - own)]))
"""


def run(bench: Bench) -> Iterator[Row]:
    samples = tuple(in_new_process() * 1000 for _ in range(max(bench.sizes.repeat, 5)))
    yield Row(name="import", what="import penstock", unit="ms", ours=samples, target=at_most(100))


def in_new_process() -> float:
    """Seconds; raises when a third-party module other than msgspec comes along."""
    output = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=True).stdout
    took, strangers = json.loads(output)
    if strangers:
        raise RuntimeError(f"import penstock also imports {', '.join(strangers)}")
    return float(took)
