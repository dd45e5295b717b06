"""For all tests: no example of Hypothesis is bounded in time, which depends on what else the machine does."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")
