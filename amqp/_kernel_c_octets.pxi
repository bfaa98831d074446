# Numbers of the wire, octets in and out, and the walk over the basic properties.

# Kinds and modes of runs, as in leveret.amqp.kernel (which cannot be imported: it imports this).
cdef enum:
    RUN_PUBLISH = 0
    RUN_ACK = 1
    RUN_METHOD = 2
    RUN_OVERSIZE = 3
    RUN_HEARTBEAT = 4
    RUN_ERROR = 5
    RUN_NONE = 6
    PERSISTENT = 1
    EXAMINE = 2

cdef enum:
    FRAME_METHOD = 1
    FRAME_HEADER = 2
    FRAME_BODY = 3
    FRAME_HEARTBEAT = 8
    FRAME_END = 0xCE
    FRAME_HEAD_BYTES = 7
    OVERHEAD_BYTES = 8
    BASIC = 60
    BASIC_PUBLISH = 60 << 16 | 40
    BASIC_DELIVER = 60 << 16 | 60
    BASIC_ACK = 60 << 16 | 80
    BASIC_NACK = 60 << 16 | 120
    ACK_BYTES = 13
    HEAD_BYTES_MIN = 14
    PROPERTIES_AT = 14

# Basic properties, flag bits.
cdef enum:
    HEADERS = 1 << 13
    DELIVERY_MODE = 1 << 12
    PRIORITY = 1 << 11
    REPLY_TO = 1 << 9
    EXPIRATION = 1 << 8
    TIMESTAMP = 1 << 6
    USER_ID = 1 << 4
    CONTINUATION = 1
    LOOKED_AT = HEADERS | PRIORITY | REPLY_TO | EXPIRATION | USER_ID


cdef inline uint32_t u16(const uint8_t *p) noexcept:
    return <uint32_t>p[0] << 8 | p[1]


cdef inline uint32_t u32(const uint8_t *p) noexcept:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]


cdef inline uint64_t u64(const uint8_t *p) noexcept:
    return <uint64_t>u32(p) << 32 | u32(p + 4)


cdef inline uint8_t *put16(uint8_t *p, uint32_t value) noexcept:
    p[0] = <uint8_t>(value >> 8)
    p[1] = <uint8_t>value
    return p + 2


cdef inline uint8_t *put32(uint8_t *p, uint32_t value) noexcept:
    return put16(put16(p, value >> 16), value)


cdef inline uint8_t *put64(uint8_t *p, uint64_t value) noexcept:
    return put32(put32(p, <uint32_t>(value >> 32)), <uint32_t>value)


cdef inline uint8_t *put(uint8_t *p, const void *source, Py_ssize_t count) noexcept:
    memcpy(p, source, <size_t>count)
    return p + count


cdef inline bytes copied(const uint8_t *p, Py_ssize_t count):
    return PyBytes_FromStringAndSize(<const char *>p, count)


cdef inline bint equals(bytes known, const uint8_t *p, Py_ssize_t count) noexcept:
    return (
        known is not None
        and PyBytes_GET_SIZE(known) == count
        and memcmp(PyBytes_AS_STRING(known), p, <size_t>count) == 0
    )


cdef bint is_publish(const uint8_t *p, Py_ssize_t size) noexcept:
    """Tell whether exchange and routing key fill the method exactly."""
    cdef Py_ssize_t key_at
    if size < 9:
        return False
    key_at = 7 + p[6]
    return key_at < size and key_at + 1 + p[key_at] + 1 == size


cdef int mode_of(const uint8_t *p, Py_ssize_t size) noexcept:
    """Walk the properties of a header and return the mode bits, -1 when they are malformed."""
    cdef uint32_t flags
    cdef uint32_t bit = 1 << 15
    cdef uint64_t at = PROPERTIES_AT
    cdef uint64_t end = <uint64_t>size
    cdef int mode = 0
    if size < HEAD_BYTES_MIN:
        return -1
    flags = u16(p + 12)
    if flags & CONTINUATION:
        return -1
    if flags & LOOKED_AT:
        mode = EXAMINE
    while bit > 2:
        if flags & bit:
            if bit == HEADERS:
                if end - at < 4:
                    return -1
                at += 4 + <uint64_t>u32(p + at)
            elif bit == DELIVERY_MODE or bit == PRIORITY:
                if at >= end:
                    return -1
                if bit == DELIVERY_MODE and p[at] != 1:
                    mode |= PERSISTENT if p[at] == 2 else EXAMINE
                at += 1
            elif bit == TIMESTAMP:
                at += 8
            else:
                if at >= end:
                    return -1
                at += 1 + <uint64_t>p[at]
            if at > end:
                return -1
        bit >>= 1
    return mode if at == end else -1
