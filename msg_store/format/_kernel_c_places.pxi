# Places: read out of the index's values, and joined to runs.

cdef enum:
    LOCATION_BYTES = 20


def locations(list values not None):
    """Read the index's values of messages."""
    cdef const uint8_t *p
    cdef list found = []
    cdef bytes value
    cdef uint32_t number
    cdef uint32_t last[5]
    cdef list objects = [0, 0, 0, 0, 0]  # made of the last, for places have much in common
    cdef Py_ssize_t i
    last[0] = last[1] = last[2] = last[3] = last[4] = 0
    for value in values:
        if value is None or PyBytes_GET_SIZE(value) != LOCATION_BYTES:
            raise struct_error("a place in the index is not 20 bytes long")
        p = <const uint8_t *>PyBytes_AS_STRING(value)
        for i in range(5):
            number = u32(p + 4 * i)
            if number != last[i]:
                last[i] = number
                objects[i] = number
        found.append(tuple(objects))
    return found


def runs(list places not None, int64_t gap_bytes, int64_t join_bytes):
    """Say what can be read at once."""
    cdef list found = []
    cdef Py_ssize_t at, first = 0, count = len(places)
    cdef int64_t number, offset, length, file_no = -1, before = -1, start = 0, end = 0
    cdef tuple place
    for at in range(count):
        place = places[at]
        if place is None or len(place) < 3:
            raise ValueError("a place has three numbers at least")
        number, offset, length = place[0], place[1], place[2]
        if number != file_no or offset - end > gap_bytes or offset + length - start > join_bytes:
            if number < file_no:
                return None
            if number > file_no:
                before = -1
            if at:
                found.append((first, at))
            file_no, first, start = number, at, offset
        if offset < before:
            return None
        before, end = offset, offset + length
    if count:
        found.append((first, count))
    return found
