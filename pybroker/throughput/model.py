"""What other hardware would give, from what a message cost each role in cells of one and two initiators.

For each role the logarithm of its cost is a plane over the logarithms of initiators and threads, and the
payload. It is fitted once; cells of three initiators are predicted by it and are no part of it. A server's
rate is then what its processors carry, what its worker's one processor carries, and how often its clients
come: each waits for a round trip, for SEND and for a flush.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import scipy

from pybroker.throughput.analysis import ALL_ROLES, ROLES
from pybroker.throughput.estimates import CONFIDENCE, Estimate
from pybroker.throughput.failures import ThroughputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from pybroker.throughput.analysis import Outcome
    from pybroker.throughput.matrix import Cell

# Cells of so many initiators and fewer are what is fitted; beyond are what is predicted.
FITTED_INITIATORS = 2
_KIB = 1024
# A prediction that is off by a larger part of what was measured is worth little.
WELL_PREDICTED = 0.15
# More than the plane has unknowns, so that something is left to tell how far it is off.
_FEWEST = 6


class Hardware(msgspec.Struct, frozen=True):
    """Where the servers are to run, each on a machine of its own.

    Attributes:
        cores: Processors of each server, such as those of the measured machine.
        flush: Seconds that a disk needs to flush.
        round_trip: Seconds from a client to its server and back.
        threads: Test client threads for each initiator.
        payload: Bytes of a message.
    """

    cores: float = 8.0
    flush: float = 0.001
    round_trip: float = 0.0002
    threads: int = 50
    payload: int = 100


class Capacity(msgspec.Struct, frozen=True):
    """What so many initiators give.

    Attributes:
        initiators: How many.
        rate: Messages a second at the target, with the interval of 95 % that the costs leave.
        bound_by: What keeps it from being more.
    """

    initiators: int
    rate: Estimate
    bound_by: str


class Prediction(msgspec.Struct, frozen=True):
    """A cell that the model has not seen.

    Attributes:
        cell: Which.
        predicted: Messages per processor-second of servers and workers.
        measured: The same, as it was.
    """

    cell: Cell
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """How far it is off, as a part of what was measured."""
        return self.predicted / self.measured - 1


class _Plane(msgspec.Struct, frozen=True):
    """A fit of one role: `weights` of [1, log initiators, log threads, KiB]."""

    weights: npt.NDArray[np.float64]
    covariance: npt.NDArray[np.float64]
    variance: float
    wide: float

    def cost(self, where: npt.NDArray[np.float64]) -> tuple[float, float, float]:
        """Return the seconds of a message: lowest, likeliest, highest by the interval of 95 %."""
        middle = float(where @ self.weights)
        error = self.wide * math.sqrt(self.variance + float(where @ self.covariance @ where))
        return math.exp(middle - error), math.exp(middle), math.exp(middle + error)


class Model:
    """The costs of all roles, as a function of initiators, threads and payload.

    Raises:
        ThroughputError: There are too few cells of one and of two initiators.
    """

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        printed = [one for one in outcomes if one.cell.series == "whitepaper" and _is_whole(one)]
        self._later = [one for one in printed if one.cell.initiators > FITTED_INITIATORS]
        fitted = [one for one in printed if one.cell.initiators <= FITTED_INITIATORS]
        if len(fitted) < _FEWEST or {one.cell.initiators for one in fitted} != {1, 2}:
            raise ThroughputError(
                f"A model needs {_FEWEST} cells of one and two initiators with known processor seconds, and"
                f" there are {len(fitted)}: run pybroker throughput --quick into this directory first."
            )
        self.cells = len(fitted)
        self._planes = {role: _fit(role, fitted) for role in ROLES}

    def cost(self, role: str, initiators: int, threads: int, payload: int) -> tuple[float, float, float]:
        """Return the processor seconds of a message: lowest, likeliest, highest."""
        return self._planes[role].cost(_where(initiators, threads, payload))

    def predictions(self) -> list[Prediction]:
        """Return the cells that were not fitted, beside what was measured."""
        found = []
        for one in self._later:
            cell = one.cell
            costs = [self.cost(role, cell.initiators, cell.threads, cell.payload)[1] for role in ROLES]
            found.append(Prediction(cell, 1 / sum(costs), one.per_processor_second[ALL_ROLES]))
        return found

    def capacities(self, hardware: Hardware, initiators: Sequence[int]) -> list[Capacity]:
        """Return what this hardware gives with so many initiators."""
        return [self._capacity(hardware, count) for count in initiators]

    def _capacity(self, hardware: Hardware, count: int) -> Capacity:
        dear, (rate, bound_by), cheap = (self._rate(hardware, count, place) for place in (2, 1, 0))
        return Capacity(count, Estimate(rate, dear[0], cheap[0], self.cells), bound_by)

    def _rate(self, hardware: Hardware, count: int, place: int) -> tuple[float, str]:
        """Return the least of what all parts carry, and which part that is."""
        cost = {role: self.cost(role, count, hardware.threads, hardware.payload)[place] for role in ROLES}
        each = hardware.round_trip + hardware.flush + cost["initiator server"]
        carried = {
            "the initiators' processors": count
            * hardware.cores
            / (cost["initiator server"] + cost["initiator worker"]),
            "the initiators' workers, a processor each": count / cost["initiator worker"],
            "the target's processors": hardware.cores / (cost["target server"] + cost["target worker"]),
            "the target's worker, one processor": 1 / cost["target worker"],
            "clients, who wait for flushes": count * hardware.threads / each,
        }
        least = min(carried, key=lambda part: carried[part])
        return carried[least], least


def _is_whole(one: Outcome) -> bool:
    return ALL_ROLES in one.per_processor_second


def _where(initiators: int, threads: int, payload: int) -> npt.NDArray[np.float64]:
    return np.array([1.0, math.log(initiators), math.log(threads), payload / _KIB])


def _fit(role: str, outcomes: Sequence[Outcome]) -> _Plane:
    places = np.array([_where(one.cell.initiators, one.cell.threads, one.cell.payload) for one in outcomes])
    costs = np.array([-math.log(one.per_processor_second[role]) for one in outcomes])
    # What was the same in all cells weighs nothing: the inverse is the smallest that fits.
    inverse = np.linalg.pinv(places.T @ places)
    weights = inverse @ places.T @ costs
    left = max(1, len(outcomes) - int(np.linalg.matrix_rank(places)))
    variance = float(((costs - places @ weights) ** 2).sum()) / left
    return _Plane(weights, variance * inverse, variance, float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, left)))
