"""What deciding costs does not grow unseen: counts that are the same on every machine, against stored right values."""

from __future__ import annotations

import pytest

from support.cost import PYTHON, STORED, Cost, cost, costs, stored

# What a changed word list or a header more may do to the counts; more is meant, or a fault.
GROWTH, GAIN = 0.05, 0.20


def test_reading_deciding_and_an_exchange_cost_what_they_should() -> None:
    right = stored()
    if right is None:
        pytest.skip(f"{STORED.name} has no values for Python {PYTHON}; `python bench/cost.py --store` adds them")
    found = costs()
    assert found.keys() == right.keys(), _renew("Other steps are counted than are stored.")
    changed = [
        f"{name}: {of} {now:,}, stored are {was:,} ({now / was - 1:+.0%})"
        for name in right
        for of, now, was in _compared(found[name], right[name])
        if not was * (1 - GAIN) <= now <= was * (1 + GROWTH)
    ]
    assert not changed, _renew("\n".join(["The cost has changed:", *changed]))


def test_a_loop_a_call_and_a_copy_more_are_seen() -> None:
    def lean() -> object:
        return len(b"x" * 10_000)

    def fat() -> object:
        copy = b"x" * 10_000
        return len(copy + copy) + sum(each for each in range(10))

    lesser, greater = cost(lean), cost(fat)
    assert greater.instructions > lesser.instructions + 10
    assert greater.c_calls > lesser.c_calls
    assert greater.peak_bytes > lesser.peak_bytes + 10_000


def _compared(found: Cost, right: Cost) -> tuple[tuple[str, int, int], ...]:
    return (
        ("instructions", found.instructions, right.instructions),
        ("calls into C", found.c_calls, right.c_calls),
        ("bytes at the peak", found.peak_bytes, right.peak_bytes),
    )


def _renew(what: str) -> str:
    return f"{what}\nIf that is meant, `python bench/cost.py --store` makes it the right value; say why in the commit."
