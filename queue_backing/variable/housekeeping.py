"""Housekeeping: how a variable queue gets its RAM target and mode, and does its work in steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.queue_backing.rates import Rates
from leveret.queue_backing.variable.columns import NO_COLUMNS
from leveret.queue_backing.variable.load_delta import deltas_to_betas
from leveret.queue_backing.variable.paging import reduce_above, reduce_memory_use
from leveret.queue_backing.variable.state import INFINITE, NOBODY, NOTHING, QueueState

if TYPE_CHECKING:
    from leveret.queue_backing.api import QueueMode, Urgency


PAGED_BYTES_MIN: Final = 64 * 1024  # of bodies; less is not worth an index


class Housekeeping(QueueState):
    """The part of ``BackingQueue`` that messages do not pass through."""

    __slots__ = ()

    def ram_duration(self) -> float:
        """Bring the rates up to date; return how many seconds of traffic are in RAM.

        Infinite for a queue that does not page: nothing of it can leave RAM.
        """
        if not self.can_page:
            return INFINITE
        self.update_rates()
        in_ram, before = self.ram_count + len(self.rpa), self.ram_before
        self.ram_before = in_ram
        return self.rates.duration_s(in_ram, before)

    def set_ram_duration_target(self, duration_s: float) -> None:
        """Keep no more than so many seconds of traffic in RAM; a lower target pages at once.

        A queue that has nowhere to page yet begins to when it is asked to, and large enough for that
        to matter.
        """
        if not self.can_page:
            is_large = self.ready_bytes + self.unacked_bytes >= PAGED_BYTES_MIN
            if duration_s == INFINITE or not is_large or not self.begin_paging():
                return
        if self.aim_at(duration_s):
            reduce_memory_use(self)

    def aim_at(self, duration_s: float) -> bool:
        """Set the target and page nothing yet; return whether some may have to go."""
        if not self.can_page:
            return False
        before = self.target
        target = duration_s
        if duration_s != INFINITE:
            target = int(duration_s * self.rates.total())
        self.target = target
        if self.to_lazy:
            return False
        self.reduce_above = reduce_above(target, self.limits.slack)
        return target < before and bool(self.count or self.rpa)

    def set_queue_mode(self, mode: QueueMode) -> None:
        """Change between ``default`` and ``lazy``.

        What must go to disk goes in steps, the first of them in the next turn: there may be many
        levels of a priority queue to tell in this one.
        """
        if mode == ("lazy" if self.to_lazy else self.mode) and self.can_page:
            return
        if mode == "lazy":
            self.to_lazy = True
            if not self.begin_paging():
                return  # it stays in RAM
            self.reduce_above = -1
            if self.count or self.rpa:
                self.bump = True
            else:
                reduce_memory_use(self)
            return
        self.reduce_above = reduce_above(self.target, self.limits.slack)
        if self.to_lazy:
            self.to_lazy = False
            return
        self.mode = "default"
        deltas_to_betas(self)

    def begin_paging(self) -> bool:
        """Open the index of a queue that is not durable, if need be; return whether there is one."""
        if not self.can_page and self.open_index is not None:
            index = self.open_index()
            if index is not None:
                self.index, self.can_page = index, True
                self.bump = bool(self.count or self.rpa)
                self.rates = Rates(self.clock.monotonic_s())
                self.incoming = self.outgoing = self.ack_in = self.ack_out = 0
                self.ram_count, self.ram_bytes = self.count, self.ready_bytes + self.unacked_bytes
                self.rpa_sorted = False
                if self.to_lazy:
                    self.reduce_above = -1
                if self.releasing is not None:
                    self.releasing.index = index
        return self.can_page

    def needs_timeout(self) -> Urgency | None:
        """``timed`` while there is something to page, load or free."""
        is_due = self.bump or self.loading_goes_on or self.releasing
        return "timed" if is_due else None

    def timeout(self) -> None:
        """Do a slice of it."""
        if self.releasing:
            self.releasing.do_some()
        if self.bump or self.loading_goes_on:
            self._go_on()

    def resume(self) -> None:
        """Go on with paging and with what had to be read."""
        if self.waiting:
            self.waiting, self.news = False, True
        self._go_on()

    def resume_later(self) -> None:
        """As ``resume``, but what it has to do is done in steps, none of them now."""
        if self.waiting:
            self.waiting, self.news = False, True
        self.loading_goes_on = self.loading_goes_on or self.rows_awaited
        is_unlimited = self.target == INFINITE and not self.to_lazy
        self.bump = self.bump or (not is_unlimited and bool(self.count or self.rpa))

    def _go_on(self) -> None:
        self.loading_goes_on = False
        if self.rows_awaited:
            self.rows_awaited = False
            if not self.q3 and deltas_to_betas(self) and self.waiting:
                self.waiting, self.news = False, True
        reduce_memory_use(self)

    def take_resident(self) -> bool:
        """Whether what was pending may be there now."""
        news, self.news = self.news, False
        return news

    def handle_pre_hibernate(self) -> None:
        """Let go of empty containers."""
        for name in ("q1", "q2", "q3", "q4"):
            if not getattr(self, name):
                setattr(self, name, NOTHING)
        if not self.columns.messages:
            self.columns = NO_COLUMNS
        self.rpa = self.rpa or NOBODY
        self.dpa = self.dpa or NOBODY
