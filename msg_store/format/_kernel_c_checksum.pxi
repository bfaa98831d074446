# CRC-32C and CRC-32: eight bytes at a time through tables, or by the processor's instruction.

# Kinds, as in leveret.msg_store.format.file_header.
cdef enum:
    CRC32 = 1
    CRC32C = 2

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #if defined(__GNUC__) && defined(__x86_64__)
    #define KERNEL_HAS_CRC32C 1
    static int processor_has_crc32c(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("sse4.2");
    }
    __attribute__((target("sse4.2")))
    static uint32_t processor_crc32c(uint32_t crc, const uint8_t *at, size_t count) {
        uint64_t sum = crc;
        for (; count >= 8; at += 8, count -= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            sum = __builtin_ia32_crc32di(sum, word);
        }
        crc = (uint32_t)sum;
        for (; count; at++, count--)
            crc = __builtin_ia32_crc32qi(crc, *at);
        return crc;
    }
    #else
    static int processor_has_crc32c(void) { return 0; }
    static uint32_t processor_crc32c(uint32_t crc, const uint8_t *at, size_t count) {
        (void)at; (void)count;
        return crc;
    }
    #endif

    typedef uint32_t crc_tables[8][256];

    static void crc_tables_fill(crc_tables tables, uint32_t polynomial) {
        for (uint32_t octet = 0; octet < 256; octet++) {
            uint32_t crc = octet;
            for (int bit = 0; bit < 8; bit++)
                crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
            tables[0][octet] = crc;
        }
        for (int octet = 0; octet < 256; octet++)
            for (int table = 1; table < 8; table++)
                tables[table][octet] = tables[table - 1][octet] >> 8
                    ^ tables[0][tables[table - 1][octet] & 0xFF];
    }

    static uint32_t tables_crc(crc_tables t, uint32_t crc, const uint8_t *at, size_t count) {
        for (; count >= 8; at += 8, count -= 8)
            crc = t[7][(crc ^ at[0]) & 0xFF] ^ t[6][(crc >> 8 ^ at[1]) & 0xFF]
                ^ t[5][(crc >> 16 ^ at[2]) & 0xFF] ^ t[4][crc >> 24 ^ at[3]]
                ^ t[3][at[4]] ^ t[2][at[5]] ^ t[1][at[6]] ^ t[0][at[7]];
        for (; count; at++, count--)
            crc = crc >> 8 ^ t[0][(crc ^ *at) & 0xFF];
        return crc;
    }
    """
    ctypedef uint32_t crc_tables[8][256]
    bint processor_has_crc32c()
    uint32_t processor_crc32c(uint32_t crc, const uint8_t *at, size_t count) nogil
    void crc_tables_fill(crc_tables tables, uint32_t polynomial)
    uint32_t tables_crc(crc_tables tables, uint32_t crc, const uint8_t *at, size_t count) nogil

cdef crc_tables crc32_tables
cdef crc_tables crc32c_tables
crc_tables_fill(crc32_tables, 0xEDB88320)
crc_tables_fill(crc32c_tables, 0x82F63B78)
cdef bint has_instruction = processor_has_crc32c()


cdef uint32_t extended(int kind, bint by_table, uint32_t crc, const uint8_t *at, size_t count) noexcept:
    """Return the checksum ``crc`` extended by ``count`` bytes."""
    crc = ~crc
    if kind == CRC32:
        crc = tables_crc(crc32_tables, crc, at, count)
    elif by_table or not has_instruction:
        crc = tables_crc(crc32c_tables, crc, at, count)
    else:
        crc = processor_crc32c(crc, at, count)
    return ~crc


def checksum(int kind, uint32_t crc, bytes data, bint by_table=False):
    """Return ``crc`` extended by ``data``; for tests of both ways."""
    return extended(kind, by_table, crc, <const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


def checksums(const uint8_t[::1] data, int kind, uint32_t seed, begins, ends):
    """Compute the checksums of many parts of a buffer."""
    cdef const int64_t[::1] firsts = memoryview(begins).cast("B").cast("q")
    cdef const int64_t[::1] lasts = memoryview(ends).cast("B").cast("q")
    cdef Py_ssize_t place, count = firsts.shape[0], size = data.shape[0]
    cdef bint by_table = not has_instruction
    if kind != 1 and kind != 2:  # CRC32, CRC32C
        raise Corrupt(f"checksum kind {kind} is unknown")
    if lasts.shape[0] != count:
        raise ValueError(f"{count} offsets, and {lasts.shape[0]} ends")
    result = PyBytes_FromStringAndSize(NULL, count * 4)
    cdef uint32_t *sums = <uint32_t *>PyBytes_AS_STRING(result)
    for place in range(count):
        if not 0 <= firsts[place] <= lasts[place] <= size:
            raise ValueError(f"bytes {firsts[place]} to {lasts[place]} of {size}")
        if firsts[place] == lasts[place]:
            sums[place] = seed
        else:
            sums[place] = extended(
                kind, by_table, seed, &data[firsts[place]], lasts[place] - firsts[place]
            )
    return result
