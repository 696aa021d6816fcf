"""Which command line is started for which queue: a TOML file, read strictly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

if TYPE_CHECKING:
    from pathlib import Path


class ConfigurationError(Exception):
    """The file can't be read, or says something that can't be done; the text names it."""


class ApplicationConfiguration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command line for a queue.

    Attributes:
        queue: the queue's name.
        command: the program and its arguments; no shell looks at them.
        database: the queue's database, where notifications come from several; any by default.
        schema: the schema of the queue's view; any by default.
        directory: where the command runs; the activator's own directory by default.
        minimum_instances: so many processes run all the time.
        maximum_instances: never more.
    """

    queue: Annotated[str, msgspec.Meta(min_length=1)]
    command: Annotated[list[str], msgspec.Meta(min_length=1)]
    database: str | None = None
    schema: str | None = None
    directory: str | None = None
    minimum_instances: Annotated[int, msgspec.Meta(ge=0)] = 0
    maximum_instances: Annotated[int, msgspec.Meta(ge=1)] = 1


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file.

    Attributes:
        notification_queue: the queue that the event notifications arrive in.
        application: the command lines.
    """

    notification_queue: Annotated[str, msgspec.Meta(min_length=1)]
    application: Annotated[list[ApplicationConfiguration], msgspec.Meta(min_length=1)]


def read(path: Path) -> Configuration:
    """Read the file.

    Raises:
        ConfigurationError: it can't be read, is no TOML, or holds something unknown or impossible.
    """
    try:
        configuration = msgspec.toml.decode(path.read_bytes(), type=Configuration)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    for application in configuration.application:
        if application.minimum_instances > application.maximum_instances:
            raise ConfigurationError(
                f"{path}: the queue {application.queue} has minimum_instances {application.minimum_instances}"
                f" above maximum_instances {application.maximum_instances}"
            )
    return configuration
