"""python -m benchmarks [NAME…]: every benchmark, or the named ones."""

from __future__ import annotations

import importlib
import sys

NAMES = ("training", "replay", "recurrences", "overheads", "planning")


def main() -> int:
    names = sys.argv[1:] or list(NAMES)
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"unknown benchmark '{unknown[0]}'; there are: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in names:
        importlib.import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
