"""The fuzz target for frames, for as long as wanted; the tests run it for a second.

    python bench/fuzz_frames.py [--seconds 60] [--seed N]

Sessions are drawn, and looked at, by tests/ext_proc/http2/test_fuzz.py. One that is not survived ends this, after it
was made as small as it can be.
"""

from __future__ import annotations

import argparse
import random
import runpy
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

_TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(_TESTS))

SESSIONS_EACH = 2_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    asked = parser.parse_args()
    fuzz = runpy.run_path(str(_TESTS / "ext_proc" / "http2" / "test_fuzz.py"))
    end, number = time.monotonic() + asked.seconds, asked.seed
    while time.monotonic() < end:

        @seed(number)
        @settings(max_examples=SESSIONS_EACH, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(fuzz["sessions"](), st.sampled_from([1, 3, 10, 100, 1 << 16]))
        def any_session_is_survived(sent: bytes, step: int) -> None:
            fuzz["check"](sent, step)

        any_session_is_survived()
        number += 1
    print(f"survived {(number - asked.seed) * SESSIONS_EACH:,} sessions, seeds {asked.seed} to {number - 1}")


if __name__ == "__main__":
    main()
