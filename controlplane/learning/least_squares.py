"""Least squares by sums that add up: each part of the data has its own, in any order and place, and the sum is solved.

With weights that halve as time goes by, this is recursive least squares with forgetting, but for replicas that each see
a part of the samples. Everything is relative to a prior, which a solution stays near where the data say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

import msgspec


class Sums(msgspec.Struct):
    """Of weighted rows and targets. `moments` is the lower triangle of the rows' products, row by row."""

    weight: float
    squares: float
    cross: list[float]
    moments: list[float]

    @classmethod
    def empty(cls, width: int) -> Sums:
        return cls(0.0, 0.0, [0.0] * width, [0.0] * (width * (width + 1) // 2))

    def add(self, row: Sequence[float], target: float, weight: float) -> None:
        self.weight += weight
        self.squares += weight * target * target
        present = [(index, value) for index, value in enumerate(row) if value]
        for place, (index, value) in enumerate(present):
            weighted = weight * value
            self.cross[index] += weighted * target
            base = index * (index + 1) // 2
            for other, factor in present[: place + 1]:
                self.moments[base + other] += weighted * factor

    def scale(self, factor: float) -> None:
        self.weight *= factor
        self.squares *= factor
        self.cross = [value * factor for value in self.cross]
        self.moments = [value * factor for value in self.moments]

    def merge(self, other: Sums, factor: float = 1.0) -> None:
        self.weight += other.weight * factor
        self.squares += other.squares * factor
        self.cross = [a + b * factor for a, b in zip(self.cross, other.cross, strict=True)]
        self.moments = [a + b * factor for a, b in zip(self.moments, other.moments, strict=True)]

    def mean_square(self, solution: Sequence[float]) -> float:
        """What is left of the targets' squares, per weight, when `solution` is taken for the truth."""
        if self.weight <= 0:
            return 0.0
        left = self.squares
        place = 0
        for row, value in enumerate(solution):
            left -= 2.0 * value * self.cross[row]
            for column in range(row):
                left += 2.0 * value * solution[column] * self.moments[place + column]
            left += value * value * self.moments[place + row]
            place += row + 1
        return max(0.0, left / self.weight)

    def distance(self, one: Sequence[float], other: Sequence[float]) -> float:
        """By how much two solutions differ, as the root mean square over the rows."""
        difference = [a - b for a, b in zip(one, other, strict=True)]
        return math.sqrt(Sums(self.weight, 0.0, [0.0] * len(difference), self.moments).mean_square(difference))


def solve(sums: Sums, ridge: Sequence[float]) -> list[float]:
    """The solution nearest to 0 by `ridge`, which is the weight of the prior for each column and above 0 (Cholesky)."""
    solution = [0.0] * len(ridge)
    # What never occurred stays as it is, and costs nothing.
    columns = [column for column in range(len(ridge)) if sums.moments[column * (column + 3) // 2] > 0]
    rows: list[list[float]] = []
    forward: list[float] = []
    for place, column in enumerate(columns):
        base = column * (column + 1) // 2
        row = [sums.moments[base + other] for other in columns[: place + 1]]
        for other, above in enumerate(rows):
            row[other] = (row[other] - sum(map(mul, row[:other], above))) / above[other]
        pivot = row[place] + ridge[column] - sum(value * value for value in row[:place])
        # Rounding can only eat what the prior adds when the data are far beyond it.
        row[place] = math.sqrt(max(pivot, ridge[column]))
        forward.append((sums.cross[column] - sum(map(mul, row, forward))) / row[place])
        rows.append(row)
    for place in range(len(columns) - 1, -1, -1):
        known = sum(rows[below][place] * solution[columns[below]] for below in range(place + 1, len(columns)))
        solution[columns[place]] = (forward[place] - known) / rows[place][place]
    return solution
