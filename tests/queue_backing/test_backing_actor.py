"""The backing actor: housekeeping is done in turns of its own."""

from __future__ import annotations

from leveret.actors.ref import Ref
from leveret.actors.runtime import Runtime
from leveret.queue_backing.backing_actor import BackingActor
from leveret.queue_backing.memory_queue import RELEASE_SLICE, MemoryQueue
from leveret.testing.virtual_clock import VirtualClock


class Home:
    """What an amqqueue's entry is to its backing actor."""

    backing: Ref | None = None


def test_two_that_free_many_messages_do_it_in_turns() -> None:
    freed: list[MemoryQueue] = []

    class Noting(MemoryQueue):
        __slots__ = ()

        def timeout(self) -> None:
            freed.append(self)
            super().timeout()

    runtime = Runtime(clock=VirtualClock())
    refs = [runtime.spawn(BackingActor, lambda _: Noting(), Home()) for _ in range(2)]
    messages = [(b"", b"", b"x")] * (4 * RELEASE_SLICE)
    for ref in refs:
        runtime.invoke_inline(ref, "run", "publish", messages, False)
        runtime.invoke_inline(ref, "run", "purge")
    runtime.run_until_idle()

    one, two = freed[:2]
    assert one is not two
    assert freed == [one, two] * (len(freed) // 2)
    assert len(freed) >= 8
