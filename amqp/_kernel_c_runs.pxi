# Runs of messages between nodes: sizes, heads and bodies copied into one bytes object, and back.

cdef inline bint is_same(object one, object other) noexcept:
    """Tell whether two bytes objects are equal, the first difference ends it."""
    return one is other or (
        PyBytes_GET_SIZE(one) == PyBytes_GET_SIZE(other)
        and memcmp(PyBytes_AS_STRING(one), PyBytes_AS_STRING(other), <size_t>PyBytes_GET_SIZE(one)) == 0
    )


cdef inline uint8_t *put_bytes(uint8_t *out, object some) noexcept:
    return put(out, PyBytes_AS_STRING(some), PyBytes_GET_SIZE(some))


cdef Py_ssize_t part_bytes(list messages, Py_ssize_t part) except -1:
    """Return the bytes of one part of all messages."""
    cdef Py_ssize_t total = 0
    cdef object message
    for message in messages:
        if not is_message(message):
            raise TypeError("a message is a tuple of three bytes: origin, head and body")
        total += PyBytes_GET_SIZE(<object>PyTuple_GET_ITEM(message, part))
    return total


def head_bytes(list messages not None):
    """Return the bytes of the heads of messages."""
    return part_bytes(messages, 1)


def body_bytes(list messages not None):
    """Return the bytes of the bodies of messages."""
    return part_bytes(messages, 2)


def pack_run(list messages not None, bint bodies=True):
    """Return the origins of messages, and their heads and bodies as bytes; without ``bodies`` only their sizes."""
    cdef Py_ssize_t count = len(messages)
    cdef Py_ssize_t shown = 0
    cdef Py_ssize_t heads_size = 0
    cdef Py_ssize_t bodies_size = 0
    cdef bint shares_origin = True
    cdef bint shares_head = True
    cdef object message, origin, head
    cdef object first_origin = None
    cdef object first_head = None
    cdef bytes packed
    cdef list origins
    cdef uint8_t *out
    for message in messages:
        if not is_message(message):
            raise TypeError("a message is a tuple of three bytes: origin, head and body")
        origin = <object>PyTuple_GET_ITEM(message, 0)
        head = <object>PyTuple_GET_ITEM(message, 1)
        if first_head is None:
            first_origin, first_head = origin, head
        shares_origin = shares_origin and origin is first_origin
        shares_head = shares_head and is_same(head, first_head)
        heads_size += PyBytes_GET_SIZE(head)
        bodies_size += PyBytes_GET_SIZE(<object>PyTuple_GET_ITEM(message, 2))
    shown = min(1, count) if shares_head else count
    if shown < count:
        heads_size = PyBytes_GET_SIZE(first_head)
    packed = PyBytes_FromStringAndSize(
        NULL, 8 + 4 * (shown + count) + heads_size + (bodies_size if bodies else 0)
    )
    out = put32(put32(<uint8_t *>PyBytes_AS_STRING(packed), <uint32_t>count), <uint32_t>shown)
    for message in messages[:shown]:
        out = put32(out, <uint32_t>PyBytes_GET_SIZE(<object>PyTuple_GET_ITEM(message, 1)))
    for message in messages:
        out = put32(out, <uint32_t>PyBytes_GET_SIZE(<object>PyTuple_GET_ITEM(message, 2)))
    for message in messages[:shown]:
        out = put_bytes(out, <object>PyTuple_GET_ITEM(message, 1))
    if bodies:
        for message in messages:
            out = put_bytes(out, <object>PyTuple_GET_ITEM(message, 2))
    if shares_origin:
        origins = [first_origin] if count else []
    else:
        origins = [<object>PyTuple_GET_ITEM(message, 0) for message in messages]
    return origins, packed


def unpack_run(list origins not None, packed not None):
    """Return the messages of such values; ValueError: they do not fit together."""
    cdef Py_buffer view
    PyObject_GetBuffer(packed, &view, PyBUF_SIMPLE)
    try:
        return cut_run(origins, <const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef list cut_run(list origins, const uint8_t *data, Py_ssize_t size):
    cdef Py_ssize_t known = len(origins)
    cdef Py_ssize_t count, shown, number, length, start, head_at, body_at
    cdef object origin = None
    cdef object head = None
    cdef list messages = []
    if size < 8:
        raise ValueError(f"a run whose sizes are cut off, in {size} bytes")
    count, shown = u32(data), u32(data + 4)
    start = 8 + 4 * (count + shown)
    if start > size:
        raise ValueError(f"a run whose sizes are cut off, in {size} bytes")
    head_at = body_at = start
    for number in range(shown):
        body_at += u32(data + 8 + 4 * number)
    length = body_at
    for number in range(shown, shown + count):
        length += u32(data + 8 + 4 * number)
    if (
        length != size
        or not (shown == count or (shown == 1 and count > 0))
        or not (known == count or (known == 1 and count > 0))
    ):
        raise ValueError(
            f"a run of {length} bytes, {count} bodies, {shown} heads and {known} origins,"
            f" in {size} bytes"
        )
    for number in range(count):
        if number < known:
            origin = origins[number]
        if number < shown:
            length = u32(data + 8 + 4 * number)
            head = copied(data + head_at, length)
            head_at += length
        length = u32(data + 8 + 4 * (shown + number))
        messages.append((origin, head, copied(data + body_at, length)))
        body_at += length
    return messages
