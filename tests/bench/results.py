"""What was measured so far, kept in a file so that an interrupted run goes on; and what follows from it."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.scenarios import TARGETS
from tests.bench.stage import Sample

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.bench.scenarios import Scenario, Target

# Where the best round's ratio is more than this times the worst's, the median of a few rounds is chance.
STEADY = 1.5


class Measurements:
    """One sample for each scenario and round. What has another `identity` in the file is of another run: it begins anew."""

    def __init__(self, file: Path | None, identity: str) -> None:
        self._file = file
        self._identity = identity
        self._samples: dict[str, Sample] = {}
        if file is not None and file.is_file():
            kept = json.loads(file.read_text())
            if kept["identity"] == identity:
                self._samples = {place: Sample(**sample) for place, sample in kept["samples"].items()}

    def __len__(self) -> int:
        return len(self._samples)

    def has(self, scenario: Scenario, number: int) -> bool:
        """Whether the scenario was measured in the round of this number."""
        return _place(scenario, number) in self._samples

    def add(self, scenario: Scenario, number: int, sample: Sample) -> None:
        """Keep a sample."""
        self._samples[_place(scenario, number)] = sample
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            samples = {place: asdict(kept) for place, kept in self._samples.items()}
            unfinished = self._file.with_suffix(".new")
            unfinished.write_text(json.dumps({"identity": self._identity, "samples": samples}))
            unfinished.replace(self._file)

    def finish(self) -> None:
        """Forget what is kept in the file: the run is complete."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def lines(self, scenarios: Sequence[Scenario], rounds: int) -> list[Line]:
        """Return a line for each scenario."""
        samples: defaultdict[tuple[str, int], list[Sample]] = defaultdict(list)
        for scenario in scenarios:
            for number in range(rounds):
                samples[scenario.key].append(self._samples[_place(scenario, number)])
        return [_line(scenario, samples) for scenario in scenarios]


def _place(scenario: Scenario, number: int) -> str:
    name, clients = scenario.key
    return f"{number} {clients} {name}"


@dataclass(frozen=True)
class Line:
    """A scenario's rates, one a round; what part of the base's rate in the same round each was; and what a message costs."""

    part: str
    name: str
    clients: int
    rates: Sequence[float]
    base: str | None
    ratios: Sequence[float]
    wal_bytes: float | None
    cpu_us: float | None
    is_steady: bool

    @property
    def key(self) -> tuple[str, int]:
        return self.name, self.clients


def _line(scenario: Scenario, samples: dict[tuple[str, int], list[Sample]]) -> Line:
    own = samples[scenario.key]
    base: str | None = None
    ratios: list[float] = []
    if own[0].own_base:
        base, ratios = "its start", [sample.rate / sample.own_base for sample in own if sample.own_base]
    elif scenario.base in samples:
        base = scenario.base[0]
        ratios = [a.rate / b.rate for a, b in zip(own, samples[scenario.base], strict=True)]
    judged = ratios or [sample.rate for sample in own]
    return Line(
        scenario.part,
        *scenario.key,
        [sample.rate for sample in own],
        base,
        ratios,
        _middle([sample.wal_bytes for sample in own]),
        _middle([sample.cpu_us for sample in own]),
        # One round can't say how steady it is.
        len(judged) > 1 and max(judged) <= STEADY * min(judged),
    )


def _middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


@dataclass(frozen=True)
class Verdict:
    """A target, and the ratios that were found; none where one of its lines was not measured."""

    target: Target
    ratios: Sequence[float]

    @property
    def is_reached(self) -> bool | None:
        return median(self.ratios) >= self.target.must if self.ratios else None


def verdicts(lines: Sequence[Line]) -> list[Verdict]:
    """Return what became of each target."""
    by_key = {line.key: line for line in lines}
    found = []
    for target in TARGETS:
        line = by_key.get(target.line)
        base = by_key.get(target.of) if target.of is not None else None
        if line is not None and target.of is None:
            found.append(Verdict(target, line.ratios))
        elif line is not None and base is not None:
            found.append(Verdict(target, [a / b for a, b in zip(line.rates, base.rates, strict=True)]))
        else:
            found.append(Verdict(target, []))
    return found
