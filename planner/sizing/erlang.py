"""How long requests wait for a free slot: Erlang's formula for M/M/c, and its approximation for G/G/c.

Kimura's and Allen and Cunneen's: the wait of those who wait is exponential, as of M/M/c, and longer by half the sum of
the squared coefficients of variation (CV) of the times between arrivals and of service. With M/M/c it is exact.
"""

from __future__ import annotations

from math import exp, inf, lgamma, log

import numpy as np

# Of probabilities that do not matter only a bound is computed.
_NEGLIGIBLE = 1e-9


def waiting_probability(servers: int, load: float) -> float:
    """Erlang C: of finding all servers busy. `load` is in servers, arrival rate times mean service time; 1 from
    `servers` on."""
    if load <= 0:
        return 0.0
    if load >= servers:
        return 1.0
    utilisation = load / servers
    # All terms as logarithms, divided by exp(load): what Poisson says of so many in service.
    all_busy = servers * log(load) - lgamma(servers + 1) - load - log(1 - utilisation)
    # The terms below `servers` add up to a half of exp(load) at least, as the median of Poisson is not above its mean.
    if 2 * exp(min(all_busy, 0.0)) < _NEGLIGIBLE:
        return 2 * exp(all_busy)
    below = np.arange(servers)
    logarithms = below * log(load) - load - _log_factorials(servers)
    highest = max(float(logarithms.max()), all_busy)
    some_free = float(np.exp(logarithms - highest).sum())
    return exp(all_busy - highest) / (some_free + exp(all_busy - highest))


def mean_wait(
    servers: int, arrival_rate: float, service_seconds: float, *, arrival_cv2: float = 1.0, service_cv2: float = 1.0
) -> float:
    """Seconds, over all requests; infinite when the servers cannot keep up."""
    rate = _clearing_rate(servers, arrival_rate, service_seconds, arrival_cv2, service_cv2)
    return waiting_probability(servers, arrival_rate * service_seconds) / rate if rate > 0 else inf


def wait_quantile(
    servers: int,
    arrival_rate: float,
    service_seconds: float,
    *,
    arrival_cv2: float = 1.0,
    service_cv2: float = 1.0,
    share: float = 0.99,
) -> float:
    """Seconds that this share of the requests does not wait longer than; 0 when fewer than the others wait at all."""
    rate = _clearing_rate(servers, arrival_rate, service_seconds, arrival_cv2, service_cv2)
    if rate <= 0:
        return inf
    waiting = waiting_probability(servers, arrival_rate * service_seconds)
    return log(waiting / (1 - share)) / rate if waiting > 1 - share else 0.0


def _clearing_rate(
    servers: int, arrival_rate: float, service_seconds: float, arrival_cv2: float, service_cv2: float
) -> float:
    """At which the wait of those who wait dies away, a second; not above 0 when it does not, infinite where nothing is
    left to chance."""
    room, spread = servers / service_seconds - arrival_rate, arrival_cv2 + service_cv2
    return 2 * room / spread if spread > 0 else inf * room if room else 0.0


def _log_factorials(numbers: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Of 0, 1, ..., numbers - 1."""
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, numbers)))))
