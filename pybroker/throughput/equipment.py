"""What the containers of a test are made of, and what each may use."""

from __future__ import annotations

from dataclasses import dataclass

# A message costs a server about twice as much as its worker; a container has a quota for itself only.
_WORKER_PART = 1 / 3


@dataclass(frozen=True)
class Equipment:
    """Images and processor quotas.

    Attributes:
        postgres_image: Of PostgreSQL, as the official one; `{version}` stands for the cell's.
        worker_image: With the command `pybroker`, as docker/worker.Dockerfile makes it.
        initiator_cores: Processors of an initiator and its worker together; 0 is no quota.
        target_cores: Of the target and its worker.
    """

    postgres_image: str
    worker_image: str
    initiator_cores: float
    target_cores: float

    def __str__(self) -> str:
        quotas = (
            f"quotas of {self.initiator_cores:g} cores for each initiator and {self.target_cores:g} for the"
            f" target, {_WORKER_PART:.0%} of them for the worker"
            if self.initiator_cores or self.target_cores
            else "no quotas"
        )
        return f"containers of {self.postgres_image} and {self.worker_image}, {quotas}"

    def quotas(self, name: str) -> dict[str, float]:
        """Return the processors of a server and of its worker; nothing where there is no quota."""
        cores = self.target_cores if name == "target" else self.initiator_cores
        parts = {f"{name} server": cores * (1 - _WORKER_PART), f"{name} worker": cores * _WORKER_PART}
        return {who: round(part, 3) for who, part in parts.items()} if cores else {}
