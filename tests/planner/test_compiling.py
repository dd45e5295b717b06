from __future__ import annotations

from pathlib import Path

from planner.simulation.compiling import kept_in


def test_machine_code_is_kept_in_a_folder_of_its_own(tmp_path: Path) -> None:
    chosen, cache = kept_in({"NUMBA_CACHE_DIR": str(tmp_path / "a")}), kept_in({"XDG_CACHE_HOME": str(tmp_path / "b")})

    assert chosen is not None
    assert cache is not None
    assert chosen.is_dir()
    assert chosen.parent == tmp_path / "a"
    assert cache.parent == tmp_path / "b" / "headrace" / "simulation"


def test_machine_code_is_not_kept_where_nothing_can_be_written(tmp_path: Path) -> None:
    """As in a container whose files are read-only."""
    (tmp_path / "file").touch()

    assert kept_in({"NUMBA_CACHE_DIR": str(tmp_path / "file")}) is None
