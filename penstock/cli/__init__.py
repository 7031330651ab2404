"""The command line, `penstock write`, `read`, `topic` and so on: one file a verb.

What a script may rely on (the JSON, the exit codes) is in docs/cli.md. This
module alone can be imported without typer and rich.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; the console script `penstock` calls this."""
    try:
        missing = [name for name in ("typer", "rich") if find_spec(name) is None]
        if missing:
            print(f"error: the command line needs {missing[0]}, which is not installed", file=sys.stderr)
            print('hint: pip install "penstock[cli]"', file=sys.stderr)
            return 1
        from penstock.cli.app import run

        return run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED
