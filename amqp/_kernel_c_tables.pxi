# Field tables: both ways in one pass, of any depth up to the ceiling, by recursion on the C stack.

cdef enum:
    U32_BYTES = 4
    GROWTH_BYTES = 512

cdef int DEPTH_MAX = TABLE_DEPTH_MAX
cdef int64_t FIELDS_MAX = TABLE_FIELDS_MAX
cdef Py_ssize_t SHORTSTR_MAX = SHORTSTR_BYTES_MAX
cdef dict LETTERS = {ord(letter): letter for letter in "tbBsuIilLfdDSxATFV"}


cdef class _Fields:
    """Reads the fields of one table; ``left`` more of them may come."""

    cdef const uint8_t *p
    cdef Py_ssize_t at
    cdef int64_t left

    cdef int need(self, Py_ssize_t count, Py_ssize_t end) except -1:
        if count > end - self.at:
            raise frame_errors.malformed_table()
        return 0

    cdef Py_ssize_t length(self, Py_ssize_t end) except -1:
        """Read a length of four bytes, and check that as many bytes follow."""
        cdef Py_ssize_t count
        self.need(U32_BYTES, end)
        count = <Py_ssize_t>u32(self.p + self.at)
        self.at += U32_BYTES
        self.need(count, end)
        return count

    cdef dict table(self, Py_ssize_t end, int depth):
        cdef dict fields = {}
        cdef str name
        cdef Py_ssize_t size
        while self.at < end:
            size = self.p[self.at]
            self.at += 1
            self.need(size, end)
            name = PyUnicode_DecodeUTF8(<const char *>self.p + self.at, size, "surrogateescape")
            self.at += size
            PyDict_SetDefault(fields, name, self.field(end, depth))
        return fields

    cdef list array(self, Py_ssize_t end, int depth):
        cdef list fields = []
        while self.at < end:
            fields.append(self.field(end, depth))
        return fields

    cdef tuple field(self, Py_ssize_t end, int depth):
        """Read a letter and what it stands for."""
        cdef uint8_t letter
        cdef Py_ssize_t count
        cdef object value
        self.left -= 1
        if self.left < 0:
            raise frame_errors.malformed_table()
        self.need(1, end)
        letter = self.p[self.at]
        self.at += 1
        if letter == c"S" or letter == c"x":
            count = self.length(end)
            value = copied(self.p + self.at, count)
            self.at += count
        elif letter == c"F" or letter == c"A":
            if depth == 0:
                raise frame_errors.malformed_table()
            count = self.length(end)
            if letter == c"F":
                value = self.table(self.at + count, depth - 1)
            else:
                value = self.array(self.at + count, depth - 1)
        elif letter == c"V":
            value = None
        else:
            count = width_of(letter)
            if count == 0:
                raise frame_errors.malformed_table()
            self.need(count, end)
            value = fixed(letter, self.p + self.at)
            self.at += count
        return LETTERS[letter], value


cdef int width_of(uint8_t letter) noexcept:
    """Return how many bytes the values of a letter have, 0 if they have no fixed size."""
    if letter == c"t" or letter == c"b" or letter == c"B":
        return 1
    if letter == c"s" or letter == c"u":
        return 2
    if letter == c"I" or letter == c"i" or letter == c"f":
        return 4
    if letter == c"l" or letter == c"L" or letter == c"d" or letter == c"T":
        return 8
    return 5 if letter == c"D" else 0


cdef object fixed(uint8_t letter, const uint8_t *p):
    """Return the value of a letter with a fixed size."""
    cdef uint32_t bits
    cdef uint64_t long_bits
    cdef float single
    cdef double number
    if letter == c"t":
        return p[0] != 0
    if letter == c"b":
        return <int8_t>p[0]
    if letter == c"B":
        return p[0]
    if letter == c"s":
        return <int16_t>u16(p)
    if letter == c"u":
        return <uint16_t>u16(p)
    if letter == c"I":
        return <int32_t>u32(p)
    if letter == c"i":
        return u32(p)
    if letter == c"T":
        return u64(p)
    if letter == c"f":
        bits = u32(p)
        memcpy(&single, &bits, sizeof(single))
        return <double>single
    if letter == c"d":
        long_bits = u64(p)
        memcpy(&number, &long_bits, sizeof(number))
        return number
    if letter == c"D":
        return p[0], u32(p + 1)
    return <int64_t>u64(p)


def read_fields(bytes data not None, Py_ssize_t start, Py_ssize_t end):
    """Return the table whose fields fill ``data[start:end]``."""
    cdef _Fields fields = _Fields()
    fields.p = <const uint8_t *>PyBytes_AS_STRING(data)
    fields.at = start
    fields.left = FIELDS_MAX
    if start < 0 or end > PyBytes_GET_SIZE(data):
        raise frame_errors.malformed_table()
    return fields.table(end, DEPTH_MAX)


cdef class _Written:
    """The bytes of a table in the making."""

    cdef uint8_t *p
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef uint8_t long_letter

    def __dealloc__(self):
        PyMem_Free(self.p)

    cdef uint8_t *more(self, Py_ssize_t count) except NULL:
        """Return where the next ``count`` bytes belong."""
        cdef uint8_t *place
        if self.size + count > self.capacity:
            self.capacity = 2 * (self.size + count) + GROWTH_BYTES
            place = <uint8_t *>PyMem_Realloc(self.p, <size_t>self.capacity)
            if place == NULL:
                raise MemoryError
            self.p = place
        place = self.p + self.size
        self.size += count
        return place

    cdef int table(self, dict fields, int depth) except -1:
        cdef Py_ssize_t start = self.size
        cdef object name, field
        self.more(U32_BYTES)
        for name, field in fields.items():
            self.name(name)
            self.field(field, depth)
        put32(self.p + start, <uint32_t>(self.size - start - U32_BYTES))
        return 0

    cdef int array(self, list fields, int depth) except -1:
        cdef Py_ssize_t start = self.size
        cdef object field
        self.more(U32_BYTES)
        for field in fields:
            self.field(field, depth)
        put32(self.p + start, <uint32_t>(self.size - start - U32_BYTES))
        return 0

    cdef int name(self, str name) except -1:
        cdef bytes key = PyUnicode_AsEncodedString(name, "utf-8", "surrogateescape")
        cdef Py_ssize_t size = PyBytes_GET_SIZE(key)
        cdef uint8_t *out
        if size > SHORTSTR_MAX:
            raise SyntaxError_(f"table key of {size} bytes")
        out = self.more(1 + size)
        out[0] = <uint8_t>size
        put(out + 1, PyBytes_AS_STRING(key), size)
        return 0

    cdef int field(self, tuple field, int depth) except -1:
        cdef object name, value
        cdef uint8_t letter
        cdef Py_ssize_t count
        cdef uint8_t *out
        name, value = field
        letter = ord(name)
        out = self.more(1)
        out[0] = self.long_letter if letter == c"L" else letter
        if letter == c"S" or letter == c"x":
            if not PyBytes_Check(value):
                raise TypeError(f"letter {name!r} is for bytes, not {type(value).__name__}")
            count = PyBytes_GET_SIZE(value)
            put(put32(self.more(U32_BYTES + count), <uint32_t>count), PyBytes_AS_STRING(value), count)
        elif letter == c"F" or letter == c"A":
            if depth == 0:
                raise frame_errors.malformed_table()
            if letter == c"F":
                self.table(value, depth - 1)
            else:
                self.array(value, depth - 1)
        elif letter != c"V":
            put_fixed(self.more(width_of(letter)), letter, value)
        return 0


cdef inline object whole(object value):
    """Return a whole number: others would be cut."""
    if not PyLong_Check(value):
        raise TypeError(f"{type(value).__name__} is not a whole number")
    return value


cdef int put_fixed(uint8_t *out, uint8_t letter, object value) except -1:
    """Write the value of a letter with a fixed size."""
    cdef uint32_t bits
    cdef uint64_t long_bits
    cdef float single
    cdef double number
    if letter == c"t":
        out[0] = bool(value)
    elif letter == c"b":
        out[0] = <uint8_t><int8_t>whole(value)
    elif letter == c"B":
        out[0] = <uint8_t>whole(value)
    elif letter == c"s":
        put16(out, <uint16_t><int16_t>whole(value))
    elif letter == c"u":
        put16(out, <uint16_t>whole(value))
    elif letter == c"I":
        put32(out, <uint32_t><int32_t>whole(value))
    elif letter == c"i":
        put32(out, <uint32_t>whole(value))
    elif letter == c"l" or letter == c"L":
        put64(out, <uint64_t><int64_t>whole(value))
    elif letter == c"T":
        put64(out, <uint64_t>whole(value))
    elif letter == c"f":
        number = value
        single = <float>number
        if isinf(single) and not isinf(number):
            raise OverflowError("float too large to pack with f format")
        memcpy(&bits, &single, sizeof(bits))
        put32(out, bits)
    elif letter == c"d":
        number = value
        memcpy(&long_bits, &number, sizeof(long_bits))
        put64(out, long_bits)
    elif letter == c"D":
        scale, unscaled = value
        out[0] = <uint8_t>whole(scale)
        put32(out + 1, <uint32_t>whole(unscaled))
    else:
        raise TypeError(f"no letter {chr(letter)!r}")
    return 0


def write_fields(dict table not None, str long_letter not None):
    """Return a table's bytes, its length first; letter ``L`` is written as ``long_letter``."""
    cdef _Written written = _Written()
    written.long_letter = <uint8_t>ord(long_letter)
    written.table(table, DEPTH_MAX)
    return copied(written.p, written.size)
