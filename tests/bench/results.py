"""What was measured so far, kept in a file so that an interrupted run goes on; and what follows from it."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.stage import Sample
from tests.bench.waits import RUNNING, in_words, percent

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.bench.loads import Scenario
    from tests.bench.scenarios import Target

# Where the best round's ratio is more than this times the worst's, the median of a few rounds is chance.
STEADY = 1.5
# What other programs may use of the processors; a measurement with more is made once more.
DISTURBED = 0.15
# How the name of a figure begins of which the greatest counts.
MOST = "most "
UNSTEADY = f"?: one round only, or rounds that differ by more than a factor of {STEADY}; not a result"
# Clients need processors too: where servers and workers use this part of them, there are none left.
BUSY = 0.7


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
    """A scenario's rates, one a round; what part of the base's rate in the same round each was; and what a message costs.

    `wal`, `cpu`, `worker`: bytes and microseconds a message, one a round. `waits` is what its sessions were seen doing, each as a part of all that was seen.
    """

    part: str
    name: str
    clients: int
    rates: Sequence[float]
    base: str | None
    ratios: Sequence[float]
    wal_bytes: float | None
    cpu_us: float | None
    is_steady: bool
    worker_us: float | None = None
    wal: Sequence[float] = ()
    cpu: Sequence[float] = ()
    worker: Sequence[float] = ()
    waits: dict[str, float] = field(default_factory=dict)
    notes: dict[str, float] = field(default_factory=dict)
    # The rate in each second, where it may fall.
    curve: Sequence[float] = ()
    # What part of all processors other programs used, one a round.
    others: Sequence[float] = ()

    @property
    def is_disturbed(self) -> bool:
        """Whether other programs used more of the processors than a result bears."""
        return max(self.others, default=0.0) > DISTURBED

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
    wal, cpu, worker = (
        [value for value in values if value is not None]
        for values in zip(
            *((sample.wal_bytes, sample.cpu_us, sample.worker_us) for sample in own), strict=True
        )
    )
    judged = ratios or [sample.rate for sample in own]
    return Line(
        scenario.part,
        *scenario.key,
        [sample.rate for sample in own],
        base,
        ratios,
        _middle(wal),
        _middle(cpu),
        # One round can't say how steady it is.
        len(judged) > 1 and max(judged) <= STEADY * min(judged),
        _middle(worker),
        wal,
        cpu,
        worker,
        _middles([sample.waits for sample in own]),
        _notes([sample.notes for sample in own]),
        [median(rates) for rates in zip(*(sample.curve for sample in own), strict=False)],
        [sample.others for sample in own],
    )


def _notes(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the notes of all rounds as one: medians, but the most where a note is of the most."""
    most = {name: max(notes.get(name, 0.0) for notes in found) for notes in found for name in notes}
    return {name: most[name] if name.startswith(MOST) else middle for name, middle in _middles(found).items()}


def _middles(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median of each name's figures, the greatest first; a name that a round doesn't have is nought there."""
    names = {name: None for figures in found for name in figures}
    middles = {name: median(figures.get(name, 0.0) for figures in found) for name in names}
    return dict(sorted(middles.items(), key=lambda item: -item[1]))


def _middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None


@dataclass(frozen=True)
class Verdict:
    """A target, and what was found; nothing where one of its lines was not measured.

    `bound` says what bounds the line, where the target was missed. `doubt` says why the figures allow no verdict.
    """

    target: Target
    found: Sequence[float]
    bound: str = ""
    doubt: str = ""

    @property
    def is_reached(self) -> bool | None:
        return self._meets(self.target.must)

    @property
    def is_hoped_for(self) -> bool | None:
        return None if self.target.aim is None else self._meets(self.target.aim)

    @property
    def is_steady(self) -> bool:
        """Whether the rounds agree."""
        return len(self.found) > 1 and max(self.found) <= STEADY * min(self.found)

    @property
    def of_aim(self) -> float | None:
        """What part of the aim was found; of a cost, the aim as a part of what was found."""
        if self.target.aim is None or not self.found:
            return None
        middle = median(self.found)
        if self.target.figure == "rate":
            return middle / self.target.aim
        return self.target.aim / middle if middle else 1.0

    def _meets(self, demand: float) -> bool | None:
        if not self.found:
            return None
        if self.target.figure == "rate":
            return median(self.found) >= demand
        return median(self.found) <= demand


def verdicts(
    lines: Sequence[Line], targets: Sequence[Target], cores: int, *, in_memory: bool = False
) -> list[Verdict]:
    """Return what became of each target, on a machine of so many cores."""
    by_key = {line.key: line for line in lines}
    found = []
    for target in targets:
        line = by_key.get(target.line)
        base = by_key.get(target.of) if target.of is not None else None
        figures: Sequence[float] = []
        if line is not None and target.of is None:
            figures = _own_figures(line, target.figure)
        elif line is not None and base is not None:
            pairs = (
                zip(line.rates, base.rates, strict=True)
                if target.figure == "rate"
                else zip(line.wal, base.wal, strict=True)
            )
            figures = [a / b for a, b in pairs]
        doubt = "in memory" if in_memory else _doubt(target, figures, [each for each in (line, base) if each])
        verdict = Verdict(target, figures, doubt=doubt)
        if line is not None and verdict.is_reached is False:
            verdict = replace(verdict, bound=_bound(line, base, cores))
        found.append(verdict)
    return found


def _doubt(target: Target, figures: Sequence[float], lines: Sequence[Line]) -> str:
    """Say why the figures allow no verdict, if they don't."""
    # The greatest ever seen says what it says.
    if not figures or target.figure.startswith(MOST):
        return ""
    if target.figure == "rate" and any(line.is_disturbed for line in lines):
        return "disturbed"
    if len(figures) == 1:
        return "one round"
    if min(figures) < target.must < max(figures):
        return "between"
    # What was missed in each round was missed.
    found = Verdict(target, figures)
    return "not steady" if found.is_reached and not found.is_steady else ""


def _own_figures(line: Line, figure: str) -> Sequence[float]:
    if figure == "rate":
        return line.ratios
    if figure == "wal_bytes":
        return line.wal
    return [line.notes[figure]] if figure in line.notes else []


def _bound(line: Line, base: Line | None, cores: int) -> str:
    """Say what a message costs here and there, how busy the processors were, and what its sessions were seen doing."""
    said = []
    busy = 0.0
    if line.cpu_us is not None:
        servers = line.cpu_us * median(line.rates) / 1e6
        workers = (line.worker_us or 0.0) * median(line.rates) / 1e6
        busy = (servers + workers) / cores
        text = f"{line.cpu_us:,.0f} µs of the servers' processors a message"
        if base is not None and base.cpu_us:
            text += f", {line.cpu_us / base.cpu_us:.1f} times as many as {base.name}"
        text += f"; they used {servers:.1f} of {cores} cores"
        said.append(text + (f", the workers {workers:.1f}" if line.worker_us is not None else ""))
    seen = ", ".join(f"{in_words(name)} {percent(share)}" for name, share in list(line.waits.items())[:3])
    if seen:
        said.append(f"sessions at work: {seen}")
    return "; ".join([_cause(line, busy), *said])


def _cause(line: Line, busy: float) -> str:
    waiting = next((name for name in line.waits if name != RUNNING), None)
    if busy >= BUSY:
        return "the processors"
    if waiting is not None and line.waits[waiting] > line.waits.get(RUNNING, 0.0):
        return f"waiting, most for {in_words(waiting)}"
    if line.clients == 1:
        return "one client, who waits for each answer"
    return "processors and waiting, in turns"
