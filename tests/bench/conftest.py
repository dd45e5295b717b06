"""The benchmarks are programs in a folder, not a package: their modules are found as they find each other."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "bench"))
