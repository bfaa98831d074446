# Encoders: the total is worked out first, then everything is copied into one bytes object.

cdef inline Py_ssize_t framed(Py_ssize_t body, Py_ssize_t part_max) noexcept:
    """Return the size of a body with the overhead of its frames."""
    if part_max == 0 or body <= part_max:
        return body + OVERHEAD_BYTES if body else 0
    return body + (body + part_max - 1) // part_max * OVERHEAD_BYTES


cdef inline uint8_t *put_frame(
    uint8_t *out, uint32_t kind, uint32_t channel, const void *p, Py_ssize_t size
) noexcept:
    out[0] = <uint8_t>kind
    out = put(put32(put16(out + 1, channel), <uint32_t>size), p, size)
    out[0] = FRAME_END
    return out + 1


cdef inline uint8_t *put_content(
    uint8_t *out, uint32_t channel, bytes head, bytes body, Py_ssize_t part_max
) noexcept:
    """Write header and body frames."""
    cdef const char *p = PyBytes_AS_STRING(body)
    cdef Py_ssize_t left = PyBytes_GET_SIZE(body)
    cdef Py_ssize_t count
    out = put_frame(out, FRAME_HEADER, channel, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
    while left:
        count = left if part_max == 0 else min(left, part_max)
        out = put_frame(out, FRAME_BODY, channel, p, count)
        p += count
        left -= count
    return out


cdef Py_ssize_t part_max_of(uint32_t frame_max) except -1:
    """Return how many body bytes a frame holds, 0 for any number."""
    if 0 < frame_max <= OVERHEAD_BYTES:
        raise ValueError(f"frame_max of {frame_max} bytes leaves no room for a body")
    return frame_max - OVERHEAD_BYTES if frame_max else 0


cdef inline bint is_message(object message) noexcept:
    return (
        PyTuple_CheckExact(message)
        and PyTuple_GET_SIZE(message) == 3
        and PyBytes_Check(<object>PyTuple_GET_ITEM(message, 0))  # it may be a BlindOrigin
        and PyBytes_CheckExact(<object>PyTuple_GET_ITEM(message, 1))
        and PyBytes_CheckExact(<object>PyTuple_GET_ITEM(message, 2))
    )


def deliveries(
    uint16_t channel,
    bytes consumer_tag not None,
    uint64_t first_tag,
    Py_ssize_t redelivered,
    uint32_t frame_max,
    list messages not None,
):
    """Return basic.deliver, header and body frames of all messages."""
    cdef Py_ssize_t part_max = part_max_of(frame_max)
    cdef Py_ssize_t tag_size = PyBytes_GET_SIZE(consumer_tag)
    cdef Py_ssize_t fixed = 2 * OVERHEAD_BYTES + 4 + 1 + tag_size + 9
    cdef Py_ssize_t total = 0
    cdef Py_ssize_t index = 0
    cdef uint8_t *out
    cdef bytes origin, head, body, wire
    cdef object message
    if tag_size > 255:
        raise ValueError(f"consumer tag of {tag_size} bytes, limit 255")
    for message in messages:
        if not is_message(message):
            raise TypeError("a message is a tuple of three bytes: origin, head and body")
        total += fixed + PyBytes_GET_SIZE(<object>PyTuple_GET_ITEM(message, 0))
        total += PyBytes_GET_SIZE(<object>PyTuple_GET_ITEM(message, 1))
        total += framed(PyBytes_GET_SIZE(<object>PyTuple_GET_ITEM(message, 2)), part_max)
    wire = PyBytes_FromStringAndSize(NULL, total)
    out = <uint8_t *>PyBytes_AS_STRING(wire)
    for message in messages:
        origin = <bytes>PyTuple_GET_ITEM(message, 0)
        head = <bytes>PyTuple_GET_ITEM(message, 1)
        body = <bytes>PyTuple_GET_ITEM(message, 2)
        out[0] = FRAME_METHOD
        out = put32(put16(out + 1, channel), <uint32_t>(14 + tag_size + PyBytes_GET_SIZE(origin)))
        out = put32(out, BASIC_DELIVER)
        out[0] = <uint8_t>tag_size
        out = put(out + 1, PyBytes_AS_STRING(consumer_tag), tag_size)
        out = put64(out, first_tag + <uint64_t>index)
        out[0] = index < redelivered
        out = put(out + 1, PyBytes_AS_STRING(origin), PyBytes_GET_SIZE(origin))
        out[0] = FRAME_END
        out = put_content(out + 1, channel, head, body, part_max)
        index += 1
    return wire


def content(
    uint16_t channel,
    bytes method not None,
    uint32_t frame_max,
    bytes head not None,
    bytes body not None,
):
    """Return the frames of one content-carrying method."""
    cdef Py_ssize_t part_max = part_max_of(frame_max)
    cdef Py_ssize_t total = 2 * OVERHEAD_BYTES + PyBytes_GET_SIZE(method) + PyBytes_GET_SIZE(head)
    cdef bytes wire
    cdef uint8_t *out
    total += framed(PyBytes_GET_SIZE(body), part_max)
    wire = PyBytes_FromStringAndSize(NULL, total)
    out = <uint8_t *>PyBytes_AS_STRING(wire)
    out = put_frame(
        out, FRAME_METHOD, channel, PyBytes_AS_STRING(method), PyBytes_GET_SIZE(method)
    )
    put_content(out, channel, head, body, part_max)
    return wire


def confirm_frames(uint16_t channel, list answers not None):
    """Return a basic.ack or basic.nack for each answer."""
    cdef bytes wire = PyBytes_FromStringAndSize(NULL, 21 * len(answers))
    cdef uint8_t *out = <uint8_t *>PyBytes_AS_STRING(wire)
    cdef bint is_ack, multiple
    cdef uint64_t tag
    for is_ack, tag, multiple in answers:
        out[0] = FRAME_METHOD
        out = put32(put16(out + 1, channel), 13)
        out = put64(put32(out, BASIC_ACK if is_ack else BASIC_NACK), tag)
        out[0] = multiple if is_ack else multiple | 2
        out[1] = FRAME_END
        out += 2
    return wire
