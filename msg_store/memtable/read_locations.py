"""Places of messages that were read from the index in passing, for those who ack the messages soon.

What is acked was mostly read from the disk just before, and for that its place was looked up in the
index. The ack needs it again: where the bytes are that become garbage, and how many rows there are. So
it is kept, as long as it is certainly what the index would say and nothing above the index (``tables``)
says otherwise. It is a cache: who does not find a place here asks the index.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from leveret.msg_store.format.rows import Location
from leveret.msg_store.memtable.read_view import ReadView

COUNT_MAX: Final = 20_000  # some 5 MB; above that it begins anew


class ReadLocations(dict[int, Location]):
    """By message; ``Memtables`` takes out of it what it changes."""

    def learn(self, view: ReadView, found: Mapping[int, Location], owed: AbstractSet[int]) -> None:
        """Take what was read from the index.

        Args:
            view: made before it was read; what its generations speak of is not taken, since the index
                may have had it before they were written to it, or after.
            found: what the index had.
            owed: messages of which a change is durable that no generation has yet.
        """
        numbers = found.keys()
        above = [each for each in (*view.spoken_of(numbers), owed) if not each.isdisjoint(numbers)]
        if above:
            found = {no: at for no, at in found.items() if not any(no in each for each in above)}
        if len(self) + len(found) > COUNT_MAX:
            self.clear()
        self.update(found)
