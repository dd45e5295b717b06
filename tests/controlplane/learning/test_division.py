from __future__ import annotations

import pytest

from controlplane.learning.division import counted, divided
from controlplane.learning.histogram import Histogram
from controlplane.learning.thresholds import EngineShape, needs, saving

SHAPE = EngineShape(kv_cache_tokens=1_048_576, max_sequences=128)


def totals(*tokens: float) -> Histogram:
    found = Histogram()
    for each in tokens:
        found.add(each)
    return found


def test_what_the_classes_need_is_what_the_closed_form_leaves() -> None:
    of = totals(*[1000.0] * 80, *[30_000.0] * 20)
    wanted = needs(of, (8192,), 65_536, SHAPE)

    assert sum(wanted) == pytest.approx(1 - saving(of, (8192,), 65_536, SHAPE))
    # Of alpha 0.8 and rho 1.614.
    assert wanted == pytest.approx((0.8 / 1.614, 0.2), rel=0.001)


def test_engines_are_counted_by_class() -> None:
    assert counted((4096, 8192, 8193, 65_536), (8192,)) == (2, 2)
    assert counted((4096,), ()) == (1,)


@pytest.mark.parametrize(
    ("wanted", "engines"),
    [
        ((4.96, 2.0), (5, 2)),
        ((4.3, 2.4), (4, 3)),
        ((0.2, 3.0), (1, 3)),
        ((0.1, 0.1), (1, 1)),
        ((0.1, 0.1, 5.0), (1, 1, 4)),
        ((7.0,), (7,)),
    ],
)
def test_engines_are_whole_and_every_class_has_one(wanted: tuple[float, ...], engines: tuple[int, ...]) -> None:
    assert divided(wanted) == engines


def test_a_division_stays_until_it_is_off_by_enough() -> None:
    assert divided((4.6, 2.4)) == (5, 2)
    assert divided((4.4, 2.6), before=(5, 2)) == (5, 2)
    assert divided((4.1, 2.9), before=(5, 2)) == (4, 3)
    # One engine is the least, however little it has to do.
    assert divided((0.1, 3.0), before=(1, 3)) == (1, 3)
