# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, binding=False, infer_types=False
"""The codec kernel in Cython over C pointers; the contract is in ``leveret/amqp/kernel.py``.

Nearly all bytes that a broker reads are publishes that lie whole in one read: method,
header and one body frame behind each other. ``_publish`` takes such a triple at one go and makes two
Python objects of it, the body and the tuple: raw method, origin and head are shared with the message
before when ``memcmp`` finds them equal. Acks have a loop of their own. All other bytes
(cut, in several frames, interleaved with other channels, wrong) go through ``_frame``, frame by frame,
and only that path knows errors: ``_publish`` answers 0 and leaves them to it.

An unfinished frame at the end of a read is kept in one of two forms. The payload of a body frame that is due
streams straight into the bytes object under construction (``_Content``), which grows with the bytes received
and uses no memory for a size that is only announced. The beginning of any other frame is copied to ``_part`` and completed
from the next read; the rest of that read is scanned in place.

The files ``_kernel_c_*.pxi`` are parts of this module. ``SOURCE_HASH`` is the SHA-256 of this file and
those, in the order of their names; ``setup.py`` puts it in.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_Check,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.dict cimport PyDict_SetDefault
from cpython.long cimport PyLong_Check
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_AsEncodedString, PyUnicode_DecodeUTF8
from libc.math cimport isinf
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from posix.uio cimport iovec, readv

from leveret.amqp import frame_errors
from leveret.amqp.errors import HardError, SyntaxError_
from leveret.core.limits import SHORTSTR_BYTES_MAX, TABLE_DEPTH_MAX, TABLE_FIELDS_MAX

cdef extern from *:
    """
    #ifndef KERNEL_SOURCE_HASH
    #define KERNEL_SOURCE_HASH ""
    #endif
    """
    const char *KERNEL_SOURCE_HASH

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **, Py_ssize_t) except -1
    PyObject *new_bytes "PyBytes_FromStringAndSize" (const char *, Py_ssize_t) except NULL
    char *bytes_of "PyBytes_AS_STRING" (PyObject *)

SOURCE_HASH = KERNEL_SOURCE_HASH.decode("ascii")

include "_kernel_c_octets.pxi"
include "_kernel_c_content.pxi"


cdef class Scanner:
    """Cuts what a socket gave into runs.

    Args:
        frame_max: largest frame in bytes, 0 for no limit.
        message_max: largest body in bytes.
    """

    cdef public uint32_t frame_max
    cdef public bint stepwise
    cdef readonly uint64_t message_max
    cdef bint _failed
    # What the publish before had, to share it.
    cdef bytes _method
    cdef bytes _origin
    cdef bytes _head
    cdef int _mode
    cdef uint64_t _body_size
    # The run that may still grow; only during a scan.
    cdef list _runs
    cdef int _run
    cdef uint32_t _run_channel
    cdef int _run_mode
    cdef bytes _run_method
    cdef list _items
    cdef readonly uint32_t frames
    # Unfinished frames and contents.
    cdef dict _contents
    cdef bytes _held
    cdef uint8_t *_part
    cdef Py_ssize_t _part_len
    cdef Py_ssize_t _part_capacity
    cdef _Content _stream
    cdef uint32_t _stream_channel
    cdef uint32_t _stream_size
    cdef uint32_t _stream_left
    cdef uint8_t _snippet[16]

    def __init__(self, uint32_t frame_max, uint64_t message_max):
        self.frame_max = frame_max
        self.message_max = message_max
        self._contents = {}

    def __dealloc__(self):
        PyMem_Free(self._part)

    @property
    def pending(self):
        return () if self._failed else tuple(self._contents)

    @property
    def buffered(self):
        cdef _Content content
        cdef Py_ssize_t count = self._part_len
        if self._held is not None:
            count += PyBytes_GET_SIZE(self._held)
        if self._stream is not None:
            count += FRAME_HEAD_BYTES
        for content in self._contents.values():
            count += <Py_ssize_t>(content.held if content.swallowed else content.filled)
        return count

    @property
    def awaited(self):
        if self._stream is None or self._stream.swallowed:
            return 0
        return self._stream.size - self._stream.filled

    def swallow(self, uint64_t bytes_max=<uint64_t>-1):
        cdef _Content content
        cdef uint64_t dropped = 0
        for content in self._contents.values():
            if dropped >= bytes_max:
                break
            dropped += content.drop(bytes_max - dropped)

    def scan(self, data not None):
        cdef list runs = []
        cdef const uint8_t *p
        cdef Py_buffer view
        cdef bint is_view = not PyBytes_CheckExact(data)
        if self._failed:
            return runs
        if self._held is not None:
            data = self._held + data
            self._held = None
            is_view = False
        if is_view:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            try:
                return self._scan(runs, <const uint8_t *>view.buf, view.len)
            finally:
                PyBuffer_Release(&view)
        p = <const uint8_t *>PyBytes_AS_STRING(data)
        return self._scan(runs, p, PyBytes_GET_SIZE(data))

    def read_body(self, int descriptor, Py_ssize_t bytes_max):
        cdef list runs = []
        cdef uint8_t behind[OVERHEAD_BYTES]  # the end octet of a frame, the head of the next
        cdef iovec parts[2]
        cdef uint32_t done, left
        cdef Py_ssize_t count, wanted
        cdef _Content content
        while bytes_max > 0 and self.awaited:
            content, left = self._stream, self._stream_left
            count = LARGE_BODY_BYTES if content.size <= LARGE_BODY_BYTES else 0  # all of it at once
            content.reserve(<Py_ssize_t>content.filled + left, count)
            parts[0].iov_base = bytes_of(content.body) + content.filled
            parts[0].iov_len = left
            parts[1].iov_base = behind
            parts[1].iov_len = OVERHEAD_BYTES if content.filled + left < content.size else 1
            wanted = <Py_ssize_t>(left + parts[1].iov_len)
            count = readv(descriptor, parts, 2)
            if count <= 0:  # the transport will find the end of the stream, or the error
                break
            bytes_max -= max(count, <Py_ssize_t>READ_COST_BYTES)
            done = self._stream_size - left
            if done < 16:
                memcpy(
                    self._snippet + done,
                    parts[0].iov_base,
                    <size_t>min(min(count, <Py_ssize_t>left), <Py_ssize_t>(16 - done)),
                )
            content.filled += <uint64_t>min(count, <Py_ssize_t>left)
            self._stream_left -= <uint32_t>min(count, <Py_ssize_t>left)
            if count > left:
                self._scan(runs, behind, count - left)
            if count < wanted:
                break
        return runs

    cdef list _scan(self, list runs, const uint8_t *p, Py_ssize_t size):
        cdef const uint8_t *end = p + size
        self._runs = runs
        self._run = RUN_NONE
        self.frames = 0
        try:
            p = self._resume(p, end)
            p = self._frames(p, end)
            self._keep(p, end)
        except HardError as error:
            self._fail()
            runs.append((RUN_ERROR, error.with_traceback(None)))
        finally:
            self._runs = self._items = self._run_method = None
        return runs

    # -- whole frames -----------------------------------------------------------------------------

    cdef const uint8_t *_frames(self, const uint8_t *p, const uint8_t *end) except NULL:
        """Take all whole frames from ``p`` on and return where the first unfinished one starts."""
        cdef uint32_t channel, size
        cdef const uint8_t *after
        while end - p >= OVERHEAD_BYTES:
            if self.stepwise and self._runs:
                break
            channel = u16(p + 1)
            size = u32(p + 3)
            if self.frame_max and size > self.frame_max:
                self._refuse_size(p)
            if size > end - p - OVERHEAD_BYTES:
                break
            if p[FRAME_HEAD_BYTES + size] != FRAME_END:
                self._refuse_end(p[0], p + FRAME_HEAD_BYTES, size, p[FRAME_HEAD_BYTES + size])
            if p[0] == FRAME_METHOD and size >= 9 and channel:
                after = self._fast(p, end, channel, size)
                if after != p:
                    p = after
                    continue
            self._frame(p[0], channel, p + FRAME_HEAD_BYTES, size, end - p)
            p += OVERHEAD_BYTES + <Py_ssize_t>size
        return p

    cdef inline const uint8_t *_fast(
        self, const uint8_t *p, const uint8_t *end, uint32_t channel, uint32_t size
    ) except NULL:
        """Take a whole publish or a row of acks; return ``p`` itself when it is neither."""
        cdef uint32_t ids = u32(p + FRAME_HEAD_BYTES)
        if self._contents and channel in self._contents:
            return p
        if ids == BASIC_PUBLISH:
            return self._publish(p, end, channel, size)
        if ids == BASIC_ACK and size == ACK_BYTES:
            return self._acks(p, end, channel)
        return p

    cdef const uint8_t *_publish(
        self, const uint8_t *p, const uint8_t *end, uint32_t channel, uint32_t size
    ) except NULL:
        cdef const uint8_t *head = p + OVERHEAD_BYTES + size
        cdef const uint8_t *body
        cdef uint32_t head_size
        cdef uint64_t body_size
        if end - head < OVERHEAD_BYTES + HEAD_BYTES_MIN or head[0] != FRAME_HEADER:
            return p
        head_size = u32(head + 3)
        if (
            u16(head + 1) != channel
            or head_size > end - head - OVERHEAD_BYTES
            or (self.frame_max and head_size > self.frame_max)
            or head[FRAME_HEAD_BYTES + head_size] != FRAME_END
            or not self._know_method(p + FRAME_HEAD_BYTES, size)
            or not self._know_head(head + FRAME_HEAD_BYTES, head_size)
        ):
            return p
        body = head + OVERHEAD_BYTES + head_size
        body_size = self._body_size
        if body_size == 0:
            self._emit(channel, self._method, self._mode, (self._origin, self._head, b""))
            return body
        if (
            end - body < OVERHEAD_BYTES
            or body[0] != FRAME_BODY
            or u16(body + 1) != channel
            or u32(body + 3) != body_size
            or body_size > <uint64_t>(end - body - OVERHEAD_BYTES)
            or (self.frame_max and body_size > self.frame_max)
            or body[FRAME_HEAD_BYTES + body_size] != FRAME_END
        ):
            return p
        body += FRAME_HEAD_BYTES
        self._emit(
            channel,
            self._method,
            self._mode,
            (self._origin, self._head, copied(body, <Py_ssize_t>body_size)),
        )
        return body + body_size + 1

    cdef inline bint _know_method(self, const uint8_t *p, Py_ssize_t size) except -1:
        """Have ``_method`` and ``_origin`` stand for this publish; False when it is malformed."""
        if not equals(self._method, p, size):
            if not is_publish(p, size):
                return False
            self._method = copied(p, size)
            self._origin = copied(p + 6, size - 7)
        return True

    cdef inline bint _know_head(self, const uint8_t *p, Py_ssize_t size) except -1:
        """Have ``_head``, ``_mode``, ``_body_size`` stand for this header; False when it is special."""
        cdef int mode
        if not equals(self._head, p, size):
            if size < HEAD_BYTES_MIN or u32(p) != BASIC << 16 or u64(p + 4) > self.message_max:
                return False
            mode = mode_of(p, size)
            if mode < 0:
                return False
            self._head = copied(p, size)
            self._mode = mode
            self._body_size = u64(p + 4)
        return True

    cdef const uint8_t *_acks(
        self, const uint8_t *p, const uint8_t *end, uint32_t channel
    ) except NULL:
        cdef const uint8_t *first = p
        cdef list tags
        if p[19] & 1:
            return p
        if self._run != RUN_ACK or self._run_channel != channel:
            self._items = []
            self._runs.append((RUN_ACK, channel, self._items))
            self._run = RUN_ACK
            self._run_channel = channel
        tags = self._items
        while True:
            tags.append(u64(p + 11))
            p += 21
            if (
                end - p < 21
                or memcmp(p, first, 11) != 0
                or p[19] & 1
                or p[20] != FRAME_END
                or self.stepwise
            ):
                return p

    cdef inline int _emit(self, uint32_t channel, bytes method, int mode, tuple message) except -1:
        """Add a whole message to the run, or begin one."""
        if (
            self._run != RUN_PUBLISH
            or self._run_channel != channel
            or self._run_mode != mode
            or (self._run_method is not method and self._run_method != method)
        ):
            self._items = []
            self._runs.append((RUN_PUBLISH, channel, method, mode, self._items))
            self._run = RUN_PUBLISH
            self._run_channel = channel
            self._run_mode = mode
            self._run_method = method
        self._items.append(message)
        return 0

    # -- frame by frame ---------------------------------------------------------------------------

    cdef int _frame(
        self, uint32_t kind, uint32_t channel, const uint8_t *p, uint32_t size, Py_ssize_t arrived
    ) except -1:
        self.frames += 1
        if kind == FRAME_METHOD and size >= 4:
            self._on_method(channel, p, size)
        elif kind == FRAME_HEADER and size >= 12 and channel:
            self._on_header(channel, p, size)
        elif kind == FRAME_BODY and channel:
            self._on_body(channel, p, size, arrived)
        elif kind == FRAME_HEARTBEAT and size == 0 and channel == 0:
            self._runs.append((RUN_HEARTBEAT,))
            self._run = RUN_NONE
        elif (
            (kind == FRAME_HEADER and size >= 12)
            or kind == FRAME_BODY
            or (kind == FRAME_HEARTBEAT and size == 0)
        ):
            raise frame_errors.unexpected_frame(kind, copied(p, size))
        else:
            raise frame_errors.unknown_frame(kind, copied(p, size))
        return 0

    cdef int _on_method(self, uint32_t channel, const uint8_t *p, uint32_t size) except -1:
        cdef uint32_t ids = u32(p)
        cdef _Content content = self._contents.get(channel)
        if content is not None:
            self._refuse_in_content(content)
        if ids == BASIC_ACK and size == ACK_BYTES and channel and not p[12] & 1:
            self._acks(p - FRAME_HEAD_BYTES, p - FRAME_HEAD_BYTES, channel)
        elif ids == BASIC_PUBLISH and channel:
            if not self._know_method(p, size):
                raise frame_errors.cannot_decode(ids, copied(p + 4, size - 4))
            content = _Content.__new__(_Content)
            content.method = self._method
            content.origin = self._origin
            self._contents[channel] = content
        else:
            self._runs.append((RUN_METHOD, channel, ids, copied(p + 4, size - 4)))
            self._run = RUN_NONE
        return 0

    cdef int _on_header(self, uint32_t channel, const uint8_t *p, uint32_t size) except -1:
        cdef _Content content = self._contents.get(channel)
        if content is None or content.head is not None:
            self._refuse_in_content(content)
        if u16(p + 2):
            self._refuse_in_content(content)
        if u16(p) != BASIC:
            raise frame_errors.other_header(u16(p))
        content.size = u64(p + 4)
        if self._know_head(p, size):
            content.head = self._head
            content.mode = self._mode
        else:
            if mode_of(p, size) < 0:
                raise frame_errors.malformed_properties()
            content.head = b""
            content.swallowed = True
        if content.size == 0:
            self._complete(channel, content)
        return 0

    cdef int _on_body(
        self, uint32_t channel, const uint8_t *p, uint32_t size, Py_ssize_t arrived
    ) except -1:
        cdef _Content content = self._contents.get(channel)
        if content is None or content.head is None:
            self._refuse_in_content(content)
        content.expect(size)
        content.take(p, size, arrived)
        if content.filled == content.size and not content.overrun:
            self._complete(channel, content)
        return 0

    cdef int _complete(self, uint32_t channel, _Content content) except -1:
        del self._contents[channel]
        if content.swallowed:
            self._runs.append((RUN_OVERSIZE, channel, content.method, content.size))
            self._run = RUN_NONE
        else:
            body = b"" if content.body == NULL else <bytes>content.body
            message = (content.origin, content.head, body)
            self._emit(channel, content.method, content.mode, message)
        return 0

    # -- what a read left unfinished --------------------------------------------------------------

    cdef const uint8_t *_resume(self, const uint8_t *p, const uint8_t *end) except NULL:
        """Complete the frame that the reads before cut, as far as this one goes."""
        cdef uint32_t size
        if self._stream is not None:
            return self._pour(p, end)
        if self._part_len == 0:
            return p
        if self._part_len < FRAME_HEAD_BYTES:
            p = self._fill(p, end, FRAME_HEAD_BYTES)
            if self._part_len < FRAME_HEAD_BYTES:
                return p
            if self._begin(self._part):
                self._part_len = 0
                return self._pour(p, end)
        size = u32(self._part + 3)
        p = self._fill(p, end, OVERHEAD_BYTES + <Py_ssize_t>size)
        if self._part_len == OVERHEAD_BYTES + <Py_ssize_t>size:
            self._frames(self._part, self._part + self._part_len)
            self._part_len = 0
            if self._part_capacity > 65536:
                PyMem_Free(self._part)
                self._part = NULL
                self._part_capacity = 0
        return p

    cdef int _keep(self, const uint8_t *p, const uint8_t *end) except -1:
        """Keep the rest of a read."""
        if p == end:
            return 0
        if self.stepwise and self._runs:
            self._held = copied(p, end - p)
        elif end - p >= FRAME_HEAD_BYTES and self._begin(p):
            self._pour(p + FRAME_HEAD_BYTES, end)
        else:
            self._fill(p, end, self._part_len + (end - p))
        return 0

    cdef const uint8_t *_fill(
        self, const uint8_t *p, const uint8_t *end, Py_ssize_t until
    ) except NULL:
        """Move bytes to ``_part`` until it has that many."""
        cdef Py_ssize_t count = min(until - self._part_len, end - p)
        cdef Py_ssize_t need = self._part_len + count
        cdef void *part
        if need > self._part_capacity:
            part = PyMem_Realloc(self._part, <size_t>(2 * need))
            if part == NULL:
                raise MemoryError
            self._part = <uint8_t *>part
            self._part_capacity = 2 * need
        memcpy(self._part + self._part_len, p, <size_t>count)
        self._part_len = need
        return p + count

    cdef bint _begin(self, const uint8_t *p) except -1:
        """Check the size in the first seven bytes of a frame; if its body bytes are due, stream them."""
        cdef uint32_t size = u32(p + 3)
        cdef uint32_t channel = u16(p + 1)
        cdef _Content content
        if self.frame_max and size > self.frame_max:
            self._refuse_size(p)
        if p[0] != FRAME_BODY:
            return False
        content = self._contents.get(channel)
        if content is None or content.head is None:
            return False
        content.expect(size)
        self._stream = content
        self._stream_channel = channel
        self._stream_size = self._stream_left = size
        return True

    cdef const uint8_t *_pour(self, const uint8_t *p, const uint8_t *end) except NULL:
        """Stream body bytes; behind them comes the end octet."""
        cdef uint32_t done = self._stream_size - self._stream_left
        cdef Py_ssize_t count = min(<Py_ssize_t>self._stream_left, end - p)
        cdef _Content content = self._stream
        if done < 16:
            memcpy(self._snippet + done, p, <size_t>min(count, <Py_ssize_t>(16 - done)))
        content.take(p, count, end - p)
        self._stream_left -= <uint32_t>count
        p += count
        if p == end:
            return p
        if p[0] != FRAME_END:
            self._refuse_end(FRAME_BODY, self._snippet, self._stream_size, p[0])
        self._stream = None
        if content.filled == content.size and not content.overrun:
            self._complete(self._stream_channel, content)
        return p + 1

    # -- refusals ---------------------------------------------------------------------------------

    cdef int _fail(self) except -1:
        cdef _Content content
        self._failed = True
        for content in self._contents.values():
            content.end()
        self._stream = self._held = None
        self._method = self._origin = self._head = None
        self._part_len = self._part_capacity = 0
        PyMem_Free(self._part)
        self._part = NULL
        return 0

    cdef int _refuse_in_content(self, _Content content) except -1:
        """Raise the error that names the frame due on the channel."""
        if content is None:
            raise frame_errors.no_method()
        if content.head is None:
            raise frame_errors.no_header()
        raise frame_errors.no_body()

    cdef int _refuse_size(self, const uint8_t *p) except -1:
        raise frame_errors.frame_too_large(p[0], u32(p + 3), self.frame_max)

    cdef int _refuse_end(
        self, uint32_t kind, const uint8_t *p, uint32_t size, uint32_t octet
    ) except -1:
        """``p`` needs no more than the first 16 bytes; the text shows whether there were more."""
        cdef bytes shown = copied(p, min(size, 17))
        raise frame_errors.bad_end(kind, shown, octet)


include "_kernel_c_encoders.pxi"
include "_kernel_c_runs.pxi"
include "_kernel_c_sending.pxi"
include "_kernel_c_tables.pxi"
