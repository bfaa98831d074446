# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, binding=False, infer_types=False
"""The store's kernel in Cython; the contract is in ``leveret/msg_store/format/kernel.py``.

Out of a batch it makes the messages that queues hand out, and for each just the tuple and its body:
origin and head are shared with the message before as long as ``memcmp`` finds the meta equal, and
numbers of places that are equal to those before are the same objects.

The files ``_kernel_c_*.pxi`` are parts of this module. ``SOURCE_HASH`` is the SHA-256 of this file and
those, in the order of their names; ``setup.py`` puts it in.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_DelItem, PyDict_GetItem
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from cpython.pythread cimport (
    PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock, PyThread_release_lock,
    PyThread_type_lock, WAIT_LOCK,
)
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from struct import error as struct_error

from leveret.msg_store.format.errors import Corrupt

cdef extern from *:
    """
    #ifndef KERNEL_SOURCE_HASH
    #define KERNEL_SOURCE_HASH ""
    #endif
    """
    const char *KERNEL_SOURCE_HASH

SOURCE_HASH = KERNEL_SOURCE_HASH.decode("ascii")

include "_kernel_c_calls.pxi"
include "_kernel_c_checksum.pxi"
include "_kernel_c_records.pxi"
include "_kernel_c_places.pxi"
include "_kernel_c_rows.pxi"
