"""A worker ends when it is told to, though a task may forget a cancellation, and leaves no task behind."""

from __future__ import annotations

import asyncio

import pytest

from pybroker.workers import cancellation


async def forget(times: int) -> None:
    """Go on after so many cancellations, as a task does that is handed a connection at that moment."""
    for _ in range(times):
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue
    await asyncio.sleep(3600)


def test_a_task_that_forgets_its_cancellation_is_cancelled_again() -> None:
    async def run() -> None:
        tasks = [asyncio.create_task(forget(times)) for times in (0, 1, 2)]
        await asyncio.sleep(0)
        await cancellation.end(tasks)
        assert all(task.cancelled() for task in tasks)

    asyncio.run(run())


def test_who_is_cancelled_while_he_ends_others_leaves_none_of_them_behind() -> None:
    async def run() -> None:
        task = asyncio.create_task(forget(2))
        await asyncio.sleep(0)
        ending = asyncio.create_task(cancellation.end([task]))
        for _ in range(2):
            await asyncio.sleep(0)
            ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        assert task.cancelled()

    asyncio.run(run())


def test_what_is_over_already_is_not_waited_for() -> None:
    async def run() -> None:
        task = asyncio.create_task(asyncio.sleep(0))
        await task
        await cancellation.end([task])
        await cancellation.end([])

    asyncio.run(run())
