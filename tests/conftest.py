"""For all tests: no example of Hypothesis is bounded in time, which depends on what else the machine does; and which
tests `pytest -n` keeps together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")

# Their tests share what is started once: engines, a database. Besides, of whole systems only one then starts at a time.
TOGETHER = ("tests/controlplane/ledger/", "tests/e2e/", "tests/node_agent/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Workers take the largest groups first, so that the whole of tests/e2e lasts no longer than all others."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFileOrFolder(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((folder for folder in TOGETHER if file.startswith(folder)), file)

    return ByFileOrFolder(config, log)
