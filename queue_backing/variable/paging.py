"""Paging: how a variable queue gets below its RAM target.

Four transitions, each bounded by a *quota*:

* ``_limit_ram_acks``: unacked messages give up their contents, the youngest first.
* ``_alphas_to_betas``: Q1's head becomes Q3's tail (Q2's, when there is a delta), then Q4's tail
  becomes Q3's head. Contents of transients go to the store, as far as it gives credit; persistent
  ones are there already. A persistent message is at once a gamma, its row is in the index.
* ``PagedParts.push_to_delta``: Q3's tail, but nothing of its head's segment, then Q2's head get their rows
  and leave RAM. So delta grows downwards from Q3 and upwards from Q2.

Messages far from being delivered go first and furthest. A content comes back only when it is fetched.

``permitted_betas`` makes the betas fewer as the queue outgrows its target: of B messages behind the
alphas, B * B / (B + target) belong into delta.

One call makes one bounded step; ``pages_next_turn`` asks for another, except when the store has no credit:
then its ``resume`` is the next turn. Source: ``rabbit_variable_queue:reduce_memory_use/1``, 3.10.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.core.entry import CONTENT_ON_DISK, MESSAGE, SIZE
from leveret.queue_backing.variable.ram_target import INFINITE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leveret.core.entry import Entry
    from leveret.queue_backing.api import QueueMode
    from leveret.queue_backing.variable.queue import VariableQueue


# Paging out fewer is not worth an index. A small message costs 120 bytes in RAM, as much as its position alone.
PAGED_BYTES_MIN: Final = 64 * 1024  # of bodies
PAGED_MESSAGES_MIN: Final = 16 * 1024


def aim_at(queue: VariableQueue, duration_s: float) -> bool:
    """Set the target, and page nothing yet; return whether messages may have to be paged out.

    A queue without an index gets one when there is a target and its messages are large or many enough to matter.
    """
    if not queue.can_page:
        is_large = (
            queue.ready_bytes + queue.pending.size_bytes >= PAGED_BYTES_MIN
            or queue.count + len(queue.pending.in_ram) >= PAGED_MESSAGES_MIN
        )
        if duration_s == INFINITE or not is_large or not queue.begin_paging():
            return False
    is_lower = queue.ram.aim_at(duration_s)
    if queue.to_lazy:
        return False
    queue.ram.look_at_target()
    return is_lower and bool(queue.count or queue.pending.in_ram)


def set_mode(queue: VariableQueue, mode: QueueMode) -> None:
    """Change between ``default`` and ``lazy``.

    Messages are paged out in steps, the first in the next turn: in this turn all levels of a priority queue
    may have to change their mode. A queue that gets no index stays in RAM.
    """
    if mode == ("lazy" if queue.to_lazy else queue.mode) and queue.can_page:
        return
    was_on_the_way, queue.to_lazy = queue.to_lazy, mode == "lazy"
    if mode == "lazy":
        if queue.begin_paging():
            queue.ram.look_always()
            queue.pages_next_turn = bool(queue.count or queue.pending.in_ram)
            if not queue.pages_next_turn:
                reduce_memory_use(queue)
    elif queue.can_page:
        queue.ram.look_at_target()
        if not was_on_the_way:
            queue.mode = "default"
            queue.paged.load()


def go_on(queue: VariableQueue) -> None:
    """Do the next step of loading and paging."""
    paged = queue.paged
    if paged.loading_goes_on:
        paged.loading_goes_on = False
    if paged.rows_awaited:
        paged.rows_awaited = False
        if not paged.q3 and paged.load():
            paged.note_fetch_ready()
    reduce_memory_use(queue)


def excess(current: int, permitted: float) -> int:
    """Return by how much ``current`` is more than permitted."""
    return 0 if permitted >= current else int(current - permitted)


def permitted_betas(queue: VariableQueue, target: float) -> float:
    """Return how many entries Q2 and Q3 may hold."""
    if not queue.count:
        return INFINITE
    if queue.mode == "lazy":
        return target
    segment = queue.paged.limits.segment
    if target == 0:
        return min(len(queue.paged.q3), segment)
    behind = queue.count - len(queue.q1) - queue.len_q4()
    return max(segment, behind - behind * behind // (behind + int(target)))


def reduce_memory_use(queue: VariableQueue) -> None:
    """Make one step towards the target; ``pages_next_turn`` says afterwards if the next may follow."""
    queue.pages_next_turn = False
    target = 0.0 if queue.to_lazy else queue.ram.target
    if target == INFINITE or not queue.can_page:
        return
    paged, unacked = queue.use_paged(), queue.pending
    if queue.mode == "lazy":
        _reduce_lazy(queue, target)
        return
    io_batch = 0 if queue.to_lazy else paged.limits.io_batch
    step = paged.limits.step
    too_many = excess(queue.ram_count + len(unacked.in_ram), target)
    left, blocked = _page_contents(queue, min(too_many, step), target)
    # Part of the quota may have gone to messages of Q4 whose contents are on disk only.
    goes_on = left == 0 and queue.ram_count + len(unacked.in_ram) > target
    too_many = excess(len(paged.q2) + len(paged.q3), permitted_betas(queue, target))
    if too_many and too_many >= io_batch:
        paged.push_to_delta(min(too_many, step), is_lazy=False)
        goes_on = goes_on or too_many > step
    queue.pages_next_turn = goes_on and not blocked
    if queue.to_lazy:
        _finish_to_lazy(queue, blocked)


def _page_contents(queue: VariableQueue, quota: int, target: float) -> tuple[int, bool]:
    """Return the quota left, and whether the store has no credit."""
    if not quota:
        return 0, False
    transitions = (_limit_ram_acks, _alphas_to_betas)
    if not queue.ram.rates.acks_grow_faster():
        transitions = (_alphas_to_betas, _limit_ram_acks)
    for transition in transitions:
        quota, blocked = transition(queue, quota, target)
        if blocked:
            return quota, True
    return quota, False


def _reduce_lazy(queue: VariableQueue, target: float) -> None:
    paged = queue.paged
    step = paged.limits.step
    unacked = excess(queue.ram_count + len(queue.pending.in_ram), target)
    blocked = False
    if unacked:
        _, blocked = _limit_ram_acks(queue, min(unacked, step), target)
    betas = excess(len(paged.q3), permitted_betas(queue, target))
    if paged.keeps_q3_head:
        betas = 0  # or contents being read would be forgotten before they arrive, again and again
    if betas:
        paged.push_to_delta(min(betas, step), is_lazy=True)
    queue.pages_next_turn = betas > step or (unacked > step and not blocked)


def _finish_to_lazy(queue: VariableQueue, blocked: bool) -> None:
    if queue.q4 and not queue.ram_count:
        _push_absent(queue)
    if queue.q1 or queue.paged.q2 or queue.q4 or queue.columns.messages:
        queue.pages_next_turn = not blocked
        return
    queue.mode, queue.to_lazy = "lazy", False
    queue.uses_columns = False
    queue.pages_next_turn = (
        not blocked
    )  # unacked messages and betas may be more than a lazy queue keeps
    queue.ram.look_at_target()


# Contents.


def page_out(queue: VariableQueue, entries: list[Entry], must: bool = False) -> list[Entry]:
    """Page out contents that are not on disk; remove the entries beyond the credit and return them."""
    missing = [entry for entry in entries if not entry[CONTENT_ON_DISK]]
    taken = queue.index.page_out(missing, must) if missing else 0
    if taken:
        queue.has_stored = True
        queue.use_paged().writes += taken
    if taken == len(missing):
        return []
    done = entries.index(missing[taken])
    rest = entries[done:]
    del entries[done:]
    return rest


def write_through(queue: VariableQueue, entries: list[Entry]) -> list[Entry]:
    """Write contents and rows of transients that stay in RAM all the same; return them so marked."""
    page_out(queue, entries, must=True)
    queue.index.add([(*entry[:-1], True) for entry in entries])
    return [(*entry[: SIZE + 1], True, True) for entry in entries]


def _limit_ram_acks(queue: VariableQueue, quota: int, target: float) -> tuple[int, bool]:
    """Trim the youngest unacked messages; return the quota left and whether credit ran out."""
    pending = queue.pending
    if not pending.in_ram:
        return quota, False
    batch = pending.take_youngest(quota)
    rest = page_out(queue, batch)
    pending.put_back(rest)
    pending.add_on_disk(queue.paged.trim(batch), 0)
    return quota - len(batch), bool(rest)


def _alphas_to_betas(queue: VariableQueue, quota: int, target: float) -> tuple[int, bool]:
    """Trim Q1's head, then Q4's tail; return the quota left and whether credit ran out."""
    paged, columns = queue.paged, queue.columns
    put_back: Callable[[Iterable[Entry]], None]
    while quota and queue.ram_count > target:
        count = min(quota, excess(queue.ram_count, target))
        if queue.q1:
            batch = [queue.q1.popleft() for _ in range(min(count, len(queue.q1)))]
            put_back, push = queue.q1.extendleft, paged.append
        elif columns.messages:
            batch = columns.take_youngest(min(count, len(columns.messages)))
            put_back, push = columns.put_back, paged.prepend
        else:
            batch = [queue.q4.pop() for _ in range(min(count, len(queue.q4)))]
            put_back, push = queue.q4.extend, paged.prepend
        rest = page_out(queue, batch)
        if rest:
            put_back(reversed(rest))
        if queue.absent:
            queue.absent -= sum(entry[MESSAGE] is None for entry in batch)
        push(batch)
        quota -= len(batch)
        if rest:
            return quota, True
    return quota, False


def _push_absent(queue: VariableQueue) -> None:
    """Push Q4's tail to Q3, when all of Q4 is without content."""
    take = queue.q4.pop
    batch = [take() for _ in range(min(queue.paged.limits.step, len(queue.q4)))]
    queue.absent -= len(batch)
    queue.paged.prepend(batch)
