"""Which errors are shortages, and what the log says of them."""

from __future__ import annotations

import errno
import logging

import pytest

from leveret.core.system.shortage import ShortageLog, as_os_error, is_shortage, reason_of


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EMFILE, "too many"), True),
        (OSError(errno.ENFILE, "too many"), True),
        (OSError(errno.ENOMEM, "none"), True),
        (OSError(errno.ENOSPC, "full"), True),
        (OSError(errno.EDQUOT, "full"), True),
        (MemoryError(), True),
        (OSError(errno.EIO, "gone"), False),
        (OSError(errno.EROFS, "read-only"), False),
        (OSError("without a number"), False),
        (ValueError(), False),
        (None, False),
    ],
)
def test_what_is_a_shortage(error: Exception | None, expected: bool) -> None:
    assert is_shortage(error) == expected


def test_a_lack_of_memory_is_an_error_of_the_system_with_its_number() -> None:
    assert is_shortage(as_os_error(MemoryError()))
    assert reason_of(as_os_error(MemoryError())) == reason_of(MemoryError()) == "ENOMEM"
    assert reason_of(None) == ""


def test_waiting_is_logged_when_it_begins_when_its_reason_changes_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    waits = ShortageLog("writing", "/data/store")
    files, disk = OSError(errno.EMFILE, "too many"), OSError(errno.ENOSPC, "full")

    changes = [waits.note(each) for each in (None, files, files, disk, disk, None, None)]

    assert changes == [False, True, False, False, False, True, False]
    assert [text.split(" part=")[0] for text in caplog.messages] == [
        "store short of a resource, tries again",
        "store short of a resource, tries again",
        "store resumed",
    ]
    assert "reason=EMFILE" in caplog.messages[0]
    assert "ulimit -n" in caplog.messages[0]
    assert "reason=ENOSPC" in caplog.messages[1]
