"""How a model's engines had better be divided among its context classes, in whole engines.

`thresholds.needs` tells what each class needs, in fractions of engines. Pure, and steady: a division stays until it is
off by enough.
"""

from __future__ import annotations

from collections.abc import Sequence

# Engines that a class may lack, or have too many, before another division is suggested. A half is what rounding leaves.
STEADY_WITHIN = 0.75
_ROUNDING = 1e-9


def counted(contexts: Sequence[int], bounds: Sequence[int]) -> tuple[int, ...]:
    """How many engines of these contexts are in each class; the last one's bound is left out."""
    places = [next((place for place, bound in enumerate(bounds) if each <= bound), len(bounds)) for each in contexts]
    return tuple(places.count(place) for place in range(len(bounds) + 1))


def divided(wanted: Sequence[float], before: Sequence[int] = ()) -> tuple[int, ...]:
    """The wanted engines of each class in whole ones: as many in all as hold them, and at least one of each. `before`
    is the last division, which stays as long as no class is off by more than `STEADY_WITHIN`."""
    engines = max(len(wanted), _up(sum(wanted)))
    if len(before) == len(wanted) and all(
        abs(want - have) <= STEADY_WITHIN or (want < have == 1) for want, have in zip(wanted, before, strict=True)
    ):
        return tuple(before)
    found = [max(1, int(want)) for want in wanted]
    while sum(found) != engines:
        lacking = [want - have for want, have in zip(wanted, found, strict=True)]
        if sum(found) < engines:
            found[lacking.index(max(lacking))] += 1
        else:
            spare = [lack if have > 1 else float("inf") for lack, have in zip(lacking, found, strict=True)]
            found[spare.index(min(spare))] -= 1
    return tuple(found)


def _up(engines: float) -> int:
    return -int(-(engines - _ROUNDING) // 1)
