# Above this many bytes a body gets a block for the largest message that the broker takes by default: the system provides
# pages as they are filled. A smaller block may lie in the C library's heap, where the body would be copied to grow.
cdef enum:
    LARGE_BODY_BYTES = 1 << 20
    MAPPED_BYTES = 128 << 20
    READ_COST_BYTES = 4096  # of a system call, which may bring one byte


cdef class _Content:
    """A content that is not whole yet: the publish, then its header, then the body as far as it came."""

    cdef bytes method
    cdef bytes origin
    cdef bytes head
    cdef int mode
    cdef uint64_t size
    cdef uint64_t filled
    cdef uint64_t held  # bytes of the body that are still to be freed
    cdef bint swallowed
    cdef bint overrun
    cdef PyObject *body
    cdef Py_ssize_t capacity

    def __dealloc__(self):
        Py_XDECREF(self.body)

    cdef int expect(self, uint64_t size) except -1:
        """Prepare for a frame of that many body bytes; more than was announced never becomes whole."""
        if size > self.size - self.filled:
            self.overrun = True
            self.end()
        return 0

    cdef void end(self):
        """Take no more of the body; what there is of it stays until it is dropped."""
        if not self.swallowed:
            self.swallowed = True
            self.held = self.filled

    cdef uint64_t drop(self, uint64_t bytes_max) except? 0:
        """Free so many bytes of the body at most, the last ones first, and take no more of it; return how many."""
        cdef uint64_t held
        self.end()
        held = self.held
        self.capacity = 0
        if held > bytes_max and self.body != NULL:
            self.held = held - bytes_max
            _PyBytes_Resize(&self.body, <Py_ssize_t>self.held)
            return bytes_max
        self.held = 0
        Py_XDECREF(self.body)
        self.body = NULL
        return held

    cdef int take(self, const uint8_t *p, Py_ssize_t count, Py_ssize_t arrived) except -1:
        """Append to the body; ``arrived`` bytes of the read are at hand, these included."""
        if not self.swallowed and count:
            self.reserve(<Py_ssize_t>self.filled + count, arrived)
            memcpy(bytes_of(self.body) + self.filled, p, <size_t>count)
        self.filled += <uint64_t>count
        return 0

    cdef int reserve(self, Py_ssize_t need, Py_ssize_t more) except -1:
        """Have room for ``need`` bytes; if there is not, for ``more`` behind them as well."""
        cdef uint64_t capacity
        if need <= self.capacity:
            return 0
        capacity = <uint64_t>max(2 * need, need + more)
        if need > LARGE_BODY_BYTES and capacity < MAPPED_BYTES:
            capacity = MAPPED_BYTES
        if capacity > self.size:
            capacity = self.size
        if self.body == NULL:
            self.body = new_bytes(NULL, <Py_ssize_t>capacity)
        else:
            self.capacity = 0
            _PyBytes_Resize(&self.body, <Py_ssize_t>capacity)
        self.capacity = <Py_ssize_t>capacity
        return 0
