"""Checking all that a store at rest holds: every row has its message, every message its rows.

Each message is read once, where the index says, and its checksum and number are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from leveret.msg_store.format.rows import IndexDamaged, IndexRow, Location
from leveret.msg_store.offline.store_image import StoreImage
from leveret.msg_store.reading.verify import check


@dataclass(slots=True)
class Checked:
    """What was found.

    Attributes:
        rows: how many were looked at, in all queues.
        messages: how many were read.
        size_bytes: of their records.
        wrong: by queue number, the seqs whose message cannot be read, and why.
        problems: what else is not as it should be.
    """

    rows: int = 0
    messages: int = 0
    size_bytes: int = 0
    wrong: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Nothing is wrong."""
        return not self.wrong and not self.problems


class ImageCheck:
    """Looks through an image. Use ``run`` once.

    Args:
        image: a store at rest.
        advance: told now and then how many rows were looked at since.
    """

    def __init__(self, image: StoreImage, advance: Callable[[int], None] = lambda _: None) -> None:
        self._image = image
        self._advance = advance
        self._checked = Checked()
        self._bad: dict[int, str] = {}
        self._seen: Counter[int] = Counter()  # rows of messages that several queues hold
        self._counts: dict[int, int] = {}

    def run(self) -> Checked:
        """Look through all queues."""
        checked, image = self._checked, self._image
        try:
            for queue_no in sorted(image.queues):
                self._queue(queue_no)
            self._compare()
        except IndexDamaged as error:
            checked.problems.append(str(error))
        return checked

    def _queue(self, queue_no: int) -> None:
        count = size_bytes = 0
        for rows in self._image.rows(queue_no):
            self._rows(queue_no, rows)
            count += len(rows)
            size_bytes += sum(row[2] for row in rows)
            self._checked.rows += len(rows)
            self._advance(len(rows))
        terms = self._image.queues[queue_no]
        if (count, size_bytes) != (terms.messages, terms.size_bytes):
            self._checked.problems.append(
                f"queue {queue_no} has {count} rows of {size_bytes} bytes, "
                f"{terms.messages} of {terms.size_bytes} expected"
            )

    def _rows(self, queue_no: int, rows: list[IndexRow]) -> None:
        places = self._image.places(row[1] for row in rows)
        self._read({no: place for no, place in places.items() if no not in self._seen})
        wrong = self._checked.wrong
        for seq, msg_no, body_bytes, _, _ in rows:
            place = places.get(msg_no)
            if place is None:
                why = "the index does not know where it lies"
            elif place[3] != body_bytes:
                why = f"a body of {place[3]} bytes, {body_bytes} expected"
            else:
                why = self._bad.get(msg_no, "")
                if place[4] != 1:
                    self._seen[msg_no] += 1
                    self._counts[msg_no] = place[4]
            if why:
                wrong.setdefault(queue_no, []).append((seq, why))

    def _read(self, places: dict[int, Location]) -> None:
        self._bad |= check(self._image.paths, places)
        self._checked.messages += len(places)
        self._checked.size_bytes += sum(place[2] for place in places.values())

    def _compare(self) -> None:
        """Compare messages with their rows, as a whole and where there are several."""
        problems = self._checked.problems
        uneven = [no for no, count in self._counts.items() if self._seen[no] != count]
        if uneven:
            problems.append(f"{len(uneven)} messages have not as many rows as they are counted")
        count = self._image.message_count
        if not self._checked.wrong and count != self._checked.messages:
            problems.append(f"{count} messages are known, {self._checked.messages} have rows")
