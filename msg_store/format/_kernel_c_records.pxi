# Messages: read out of bytes of a segment, taken and measured.

# The header of a record, as in leveret.msg_store.format.record.
cdef enum:
    CRC_BYTES = 4
    TOTAL_LEN_AT = 4
    MSG_NO_AT = 8
    META_LEN_AT = 24
    BODY_LEN_AT = 28
    FLAGS_AT = 32
    MAGIC_AT = 34
    HEADER_BYTES = 36
    MAGIC = 0x4C56
    FLAGS = 7


cdef inline uint32_t u16(const uint8_t *p) noexcept:
    return p[0] | <uint32_t>p[1] << 8


cdef inline uint32_t u32(const uint8_t *p) noexcept:
    return p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24


cdef inline uint64_t u64(const uint8_t *p) noexcept:
    return u32(p) | <uint64_t>u32(p + 4) << 32


cdef bint is_good(const uint8_t *p, int64_t length, uint64_t msg_no, int kind, uint32_t seed) noexcept:
    """Tell whether a record of a message fills these bytes, at least a header's."""
    return (
        u64(p + MSG_NO_AT) == msg_no
        and u32(p + TOTAL_LEN_AT) == length
        and <int64_t>u32(p + META_LEN_AT) + u32(p + BODY_LEN_AT) + HEADER_BYTES == length
        and u16(p + MAGIC_AT) == MAGIC
        and not u16(p + FLAGS_AT) & ~<uint32_t>FLAGS
        and extended(kind, False, seed, p + CRC_BYTES, length - CRC_BYTES) == u32(p)
    )


def decode_run(
    bytes data not None,
    int64_t start,
    list msg_nos not None,
    list places not None,
    int kind,
    uint32_t seed,
    parts_of,
    dict messages not None,
):
    """Read records of which number and place are known."""
    cdef const uint8_t *octets = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef const uint8_t *record
    cdef const uint8_t *meta = NULL
    cdef int64_t end_of_data = PyBytes_GET_SIZE(data)
    cdef int64_t at, length, meta_len, body_len, last_len = -1
    cdef uint64_t body_bytes = 0
    cdef list others = []
    cdef Py_ssize_t i
    cdef tuple place
    cdef bytes body
    cdef object msg_no, origin = None, head = None
    if kind != CRC32 and kind != CRC32C:
        raise Corrupt(f"checksum kind {kind} is unknown")
    if len(msg_nos) != len(places):
        raise ValueError("numbers and places are not equally many")
    for i in range(len(msg_nos)):
        msg_no = msg_nos[i]
        place = places[i]
        if place is None or len(place) < 3:
            raise ValueError("a place has three numbers at least")
        at = <int64_t>place[1] - start
        length = place[2]
        if length < HEADER_BYTES or at < 0 or length > end_of_data - at:
            others.append((msg_no, place))
            continue
        record = octets + at
        if not is_good(record, length, msg_no, kind, seed):
            others.append((msg_no, place))
            continue
        meta_len = u32(record + META_LEN_AT)
        body_len = u32(record + BODY_LEN_AT)
        if meta_len != last_len or memcmp(record + HEADER_BYTES, meta, meta_len):
            try:
                origin, head = parts_of(
                    PyBytes_FromStringAndSize(<const char *>record + HEADER_BYTES, meta_len)
                )
            except Corrupt:
                others.append((msg_no, place))
                continue
            meta, last_len = record + HEADER_BYTES, meta_len
        body = PyBytes_FromStringAndSize(<const char *>record + HEADER_BYTES + meta_len, body_len)
        messages[msg_no] = (origin, head, body)
        body_bytes += body_len
    return others, body_bytes


cdef inline Py_ssize_t size_of_one(object message) except -1:
    cdef tuple parts = message
    if parts is None or len(parts) != 3:
        raise TypeError("a message is a tuple of three bytes")
    return len(<bytes?>parts[1]) + len(<bytes?>parts[2])


def take(dict contents not None, list keys not None):
    """Take messages out, up to the first that is not there."""
    cdef list taken = []
    cdef Py_ssize_t size_bytes = 0
    cdef PyObject *found
    cdef object message
    for key in keys:
        found = PyDict_GetItem(contents, key)
        if found is NULL:
            break
        message = <object>found
        size_bytes += size_of_one(message)
        taken.append(message)
        PyDict_DelItem(contents, key)
    return taken, size_bytes


def size_of(messages not None):
    """Return the bytes of heads and bodies."""
    cdef Py_ssize_t size_bytes = 0
    for message in messages:
        size_bytes += size_of_one(message)
    return size_bytes
