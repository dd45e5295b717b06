"""What deciding and our transport cost in instructions, calls into C and bytes, which are the same on every run.

    python bench/cost.py [--store]

`--store` makes these the right values of tests/ext_proc/test_cost.py, for this version of Python.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.cost import costs, store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", action="store_true")
    given = parser.parse_args()
    found = costs()
    print(f"{'':<20}{'instructions':>14}{'calls into C':>14}{'bytes at peak':>15}")
    for name, cost in found.items():
        print(f"{name:<20}{cost.instructions:>14,}{cost.c_calls:>14,}{cost.peak_bytes:>15,}")
    if given.store:
        store(found)


if __name__ == "__main__":
    main()
