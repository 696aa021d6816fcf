"""A batch without some of its dialogs, and one cut into batches of few dialogs, with the answers; no I/O."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from pybroker.workers.transport.protocol import arrays, wire
from pybroker.workers.transport.protocol.rows import Delivered, Securities

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pybroker.workers.transport.protocol.faults import TransportError

_DIALOG_ANSWERS = {
    "next_numbers": arrays.BIGINT,
    "fault_codes": arrays.INTEGER,
    "fault_texts": arrays.TEXT,
    "fault_is_final": arrays.BOOLEAN,
}


def picked(batch: wire.Batch, places: Sequence[int]) -> wire.Batch:
    """Return an opened batch with only the dialogs at these places, from 0.

    Raises:
        ArrayError: The batch is malformed.
    """
    (only,) = _parts(batch, [places])
    return only


def cut(batch: wire.Batch, securities: Securities, most: int) -> Iterator[tuple[wire.Batch, Securities]]:
    """Yield an opened batch in batches of at most so many dialogs, each with how its dialogs are secured.

    Raises:
        ArrayError: The batch is malformed.
    """
    count = arrays.element_count(batch.conversation_ids, arrays.UUID)
    if count <= most:
        yield batch, securities
        return
    kinds, far_users = (
        arrays.to_elements(column, arrays.TEXT) for column in (securities.kinds, securities.far_users)
    )
    keys = arrays.to_elements(securities.session_keys, arrays.BYTEA)
    runs = [range(first, min(first + most, count)) for first in range(0, count, most)]
    for run, part in zip(runs, _parts(batch, runs), strict=True):
        its = slice(run.start, run.stop)
        yield (
            part,
            Securities(
                arrays.from_elements(kinds[its], arrays.TEXT),
                arrays.from_elements(far_users[its], arrays.TEXT),
                arrays.from_elements(keys[its], arrays.BYTEA),
            ),
        )


def joined(answers: Sequence[Delivered]) -> Delivered:
    """Return what became of a batch, from what became of its parts.

    Raises:
        ArrayError: An answer is malformed.
    """
    if len(answers) == 1:
        return answers[0]
    columns = [
        arrays.from_elements(
            [element for each in answers for element in arrays.to_elements(getattr(each, name), kind)], kind
        )
        for name, kind in _DIALOG_ANSWERS.items()
    ]
    return Delivered(columns[0], columns[1], columns[2], columns[3])


def refused(fault: TransportError) -> Delivered:
    """Return what became of a dialog that was not taken, and is to be sent again."""
    return Delivered(
        arrays.from_elements([None], arrays.BIGINT),
        arrays.from_integers([-fault.number], arrays.INTEGER),
        arrays.from_texts([str(fault)]),
        arrays.from_elements([b"\0"], arrays.BOOLEAN),
    )


def _parts(batch: wire.Batch, runs: Sequence[Sequence[int]]) -> Iterator[wire.Batch]:
    """Yield the dialogs of each run; every column is taken apart once, however many runs there are."""
    dialogs = wire.dialog_columns(batch)
    dialog_index = arrays.to_integers(batch.dialog_index, arrays.INTEGER)
    type_index = arrays.to_integers(batch.type_index, arrays.INTEGER)
    type_names = arrays.to_elements(batch.type_names, arrays.TEXT)
    numbers = arrays.to_elements(batch.sequence_numbers, arrays.BIGINT)
    bodies = arrays.to_elements(batch.bodies, arrays.BYTEA)
    times = wire.message_times(batch)
    places_of = defaultdict[int, list[int]](list)
    for place, dialog in enumerate(dialog_index):
        places_of[dialog - 1].append(place)
    for run in runs:
        new_places = {dialog: place for place, dialog in enumerate(run, 1)}
        messages = sorted(place for dialog in run for place in places_of[dialog])
        # Those that are used: each part would look up all of them.
        used = dict.fromkeys(type_index[place] for place in messages)
        types = {old: new for new, old in enumerate(used, 1)}
        yield msgspec.structs.replace(
            batch,
            **wire.columns_of_dialogs([[column[place] for place in run] for column in dialogs]),
            type_names=arrays.from_elements([type_names[old - 1] for old in used], arrays.TEXT),
            dialog_index=arrays.from_integers(
                [new_places[dialog_index[place] - 1] for place in messages], arrays.INTEGER
            ),
            type_index=arrays.from_integers([types[type_index[place]] for place in messages], arrays.INTEGER),
            sequence_numbers=arrays.from_elements([numbers[place] for place in messages], arrays.BIGINT),
            kinds="".join(batch.kinds[place] for place in messages),
            bodies=arrays.from_elements([bodies[place] for place in messages], arrays.BYTEA),
            sent_at=arrays.from_elements([times[place] for place in messages], arrays.TIMESTAMPTZ)
            if batch.sent_at
            else b"",
            # Their places are the whole batch's.
            traceparents=[],
        )
