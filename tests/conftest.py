"""For all tests: no example of Hypothesis is bounded in time, which depends on what else the machine does; and what
`pytest -n` runs in one process."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")

WHOLE_SYSTEMS = "tests/e2e/"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """One process takes all tests of whole systems, so that only one of these runs at a time; what other tests share is
    shared within a file. The largest groups are begun first: whole systems take as long as all other tests."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFileOrWholeSystems(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return WHOLE_SYSTEMS if nodeid.startswith(WHOLE_SYSTEMS) else nodeid.partition("::")[0]

    return ByFileOrWholeSystems(config, log)
