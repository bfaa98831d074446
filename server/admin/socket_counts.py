"""What the kernel counts of a connection's socket, for list_connections.

Nothing is counted on the way of a message: Linux keeps these figures anyway (``struct tcp_info``).
Other systems have no such figures, and the columns are empty there.
"""

from __future__ import annotations

import socket
import sys
from struct import Struct
from typing import Final

_SEGMENTS: Final = Struct("=II")  # data_segs_in, data_segs_out
_SEGMENTS_AT: Final = 152
_RECEIVED: Final = Struct("=Q")
_RECEIVED_AT: Final = 128
_SENT: Final = Struct("=QQ")  # bytes_sent, bytes_retrans
_SENT_AT: Final = 200
_BYTES: Final = _SENT_AT + _SENT.size


def socket_counts(descriptor: int) -> dict[str, int]:
    """Return ``recv_oct``, ``recv_cnt``, ``send_oct``, ``send_cnt`` of a TCP socket.

    Packets are those with data. Empty when the system does not tell, or the socket is closed.
    """
    if sys.platform != "linux" or descriptor < 0:
        return {}
    try:
        with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as copy:
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES)
    except OSError:
        return {}
    if len(info) < _BYTES:  # before Linux 4.19
        return {}
    packets_in, packets_out = _SEGMENTS.unpack_from(info, _SEGMENTS_AT)
    sent, again = _SENT.unpack_from(info, _SENT_AT)
    return {
        "recv_oct": _RECEIVED.unpack_from(info, _RECEIVED_AT)[0],
        "recv_cnt": packets_in,
        "send_oct": sent - again,
        "send_cnt": packets_out,
    }
