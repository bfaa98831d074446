# Rows of queues, and the index's keys and values: big endian keys, little endian values.

cdef enum:
    ROW_KEY_BYTES = 12
    ROW_BYTES = 21
    LOCATION_KEY_BYTES = 8


cdef inline void put_u32(uint8_t *p, uint32_t number) noexcept:
    p[0], p[1], p[2], p[3] = number, number >> 8, number >> 16, number >> 24


cdef inline void put_u64(uint8_t *p, uint64_t number) noexcept:
    put_u32(p, <uint32_t>number)
    put_u32(p + 4, <uint32_t>(number >> 32))


cdef inline void put_key_u32(uint8_t *p, uint32_t number) noexcept:
    p[0], p[1], p[2], p[3] = number >> 24, number >> 16, number >> 8, number


cdef inline void put_key_u64(uint8_t *p, uint64_t number) noexcept:
    put_key_u32(p, <uint32_t>(number >> 32))
    put_key_u32(p + 4, <uint32_t>number)


cdef inline bytes room(Py_ssize_t size_bytes):
    return PyBytes_FromStringAndSize(NULL, size_bytes)


cdef inline uint8_t *octets_of(bytes value) noexcept:
    return <uint8_t *>PyBytes_AS_STRING(value)


cdef inline tuple fields_of(object row, Py_ssize_t count):
    if not isinstance(row, tuple) or len(row) != count:
        raise TypeError(f"{count} numbers are wanted")
    return row


def total(list places not None):
    """Return log counts, bodies, and by segment the bytes of records."""
    cdef dict record_bytes = {}
    cdef tuple place
    cdef object file_no, last_no = None
    cdef int64_t row_count = 0, size_bytes = 0, sum_bytes = 0, number
    for each in places:
        place = fields_of(each, 5)
        file_no = place[0]
        if file_no != last_no:
            if last_no is not None:
                record_bytes[last_no] = record_bytes.get(last_no, 0) + sum_bytes
            last_no, sum_bytes = file_no, 0
        number = place[2]
        sum_bytes += number
        number = place[3]
        size_bytes += number
        number = place[4]
        row_count += number
    if last_no is not None:
        record_bytes[last_no] = record_bytes.get(last_no, 0) + sum_bytes
    return row_count, size_bytes, record_bytes


def rows(list values not None, uint64_t first_seq):
    """Read the index's values of rows at seqs in a row."""
    cdef const uint8_t *p
    cdef list found = []
    cdef bytes value
    cdef uint64_t seq = first_seq
    cdef uint32_t number, last_size = 0
    cdef object size = 0  # the last, for many are equal
    for value in values:
        if value is None or PyBytes_GET_SIZE(value) != ROW_BYTES:
            raise struct_error("a row in the index is not 21 bytes long")
        p = octets_of(value)
        number = u32(p + 8)
        if number != last_size:
            last_size = number
            size = number
        found.append((seq, u64(p), size, u64(p + 12), p[20]))
        seq += 1
    return found


def entries(list rows not None, bint persistent):
    """Make entries of a queue of rows."""
    cdef list found = []
    cdef tuple row
    cdef object kind = persistent
    for each in rows:
        row = fields_of(each, 5)
        found.append((row[0], None, row[3], kind, row[1], row[2], True, True))
    return found


def bytes_of(entries not None):
    """Return the sizes of entries."""
    cdef int64_t size_bytes = 0, size
    for each in entries:
        size = fields_of(each, 8)[5]
        size_bytes += size
    return size_bytes


def row_items(uint32_t queue_no, list rows not None):
    """Make keys and values of rows."""
    cdef list items = []
    cdef tuple row
    cdef bytes key, value
    cdef uint8_t *p
    cdef uint8_t flags
    for each in rows:
        row = fields_of(each, 5)
        key, value = room(ROW_KEY_BYTES), room(ROW_BYTES)
        p = octets_of(key)
        put_key_u32(p, queue_no)
        put_key_u64(p + 4, row[0])
        p = octets_of(value)
        put_u64(p, row[1])
        put_u32(p + 8, row[2])
        put_u64(p + 12, row[3])
        flags = row[4]
        p[20] = flags
        items.append((key, value))
    return items


def location_items(list places not None):
    """Make keys and values of the messages that have a place."""
    cdef list items = []
    cdef tuple pair, place
    cdef bytes key, value
    cdef uint8_t *p
    cdef Py_ssize_t i
    for each in places:
        pair = fields_of(each, 2)
        if pair[1] is None:
            continue
        place = fields_of(pair[1], 5)
        key, value = room(LOCATION_KEY_BYTES), room(LOCATION_BYTES)
        put_key_u64(octets_of(key), pair[0])
        p = octets_of(value)
        for i in range(5):
            put_u32(p + 4 * i, place[i])
        items.append((key, value))
    return items
