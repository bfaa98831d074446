# Writes and syncs, made on a thread that needs the interpreter's lock only to say that they are done.

cdef extern from *:
    """
    #include <errno.h>
    #include <stdint.h>
    #include <time.h>
    #include <unistd.h>

    #ifdef __APPLE__
    #define fdatasync fsync  /* which is not asked for there: core.files */
    #endif

    typedef struct {
        int descriptor;
        const char *data;  /* NULL: a sync */
        size_t size;
        int64_t offset;    /* negative: at the end */
    } one_call;

    static int64_t now_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    }

    static int write_all(const one_call *call) {
        size_t at = 0;
        while (at < call->size) {
            ssize_t written = call->offset < 0
                ? write(call->descriptor, call->data + at, call->size - at)
                : pwrite(call->descriptor, call->data + at, call->size - at, call->offset + (int64_t)at);
            if (written > 0)
                at += (size_t)written;
            else if (!written)
                return EIO;
            else if (errno != EINTR)
                return errno;
        }
        return 0;
    }

    /* Make calls up to the first that fails; return its error. */
    static int make_calls(const one_call *calls, int64_t count, int64_t *made, int64_t *sync_ns) {
        for (*made = *sync_ns = 0; *made < count; ++*made) {
            const one_call *call = calls + *made;
            int error = 0;
            if (call->data)
                error = write_all(call);
            else {
                int64_t began_ns = now_ns();
                while (fdatasync(call->descriptor))
                    if (errno != EINTR) {
                        error = errno;
                        break;
                    }
                *sync_ns += now_ns() - began_ns;
            }
            if (error)
                return error;
        }
        return 0;
    }
    """
    ctypedef struct one_call:
        int descriptor
        const char *data
        size_t size
        int64_t offset
    int make_calls(const one_call *calls, int64_t count, int64_t *made, int64_t *sync_ns) nogil


cdef class Caller:
    """Makes system calls on a thread.

    ``given`` is locked but for the moment between ``give`` or ``close`` and the thread's taking notice. All
    else is changed under the interpreter's lock, and belongs to the thread as long as ``is_busy``.
    """

    cdef PyThread_type_lock given
    cdef one_call *calls
    cdef int64_t room, count
    cdef list steps  # whose bytes the calls point to
    cdef object item
    cdef bint is_busy, is_closed

    def __cinit__(self):
        self.given = PyThread_allocate_lock()
        if self.given is NULL:
            raise MemoryError()
        PyThread_acquire_lock(self.given, WAIT_LOCK)

    def __dealloc__(self):
        if self.given is not NULL:
            PyThread_free_lock(self.given)
        PyMem_Free(self.calls)

    def give(self, list steps not None, object item):
        """Have the thread make some calls."""
        cdef Py_ssize_t i
        cdef object data
        cdef int descriptor
        cdef int64_t offset
        if self.is_busy or self.is_closed:
            raise RuntimeError("calls were given before the last ones were done, or after the end")
        self.make_room(len(steps))
        for i in range(len(steps)):
            descriptor, data, offset = steps[i]
            self.calls[i].descriptor = descriptor
            self.calls[i].offset = offset
            if data is None:
                self.calls[i].data = NULL
            else:
                self.calls[i].data = PyBytes_AS_STRING(<bytes?>data)
                self.calls[i].size = PyBytes_GET_SIZE(data)
        self.count, self.steps, self.item, self.is_busy = len(steps), steps, item, True
        PyThread_release_lock(self.given)

    cdef int make_room(self, int64_t count) except -1:
        cdef one_call *calls
        if count > self.room:
            calls = <one_call *>PyMem_Realloc(self.calls, count * sizeof(one_call))
            if calls is NULL:
                raise MemoryError()
            self.calls, self.room = calls, count
        return 0

    def close(self):
        """Let ``run`` end."""
        self.is_closed = True
        if not self.is_busy:
            PyThread_release_lock(self.given)

    def run(self, done not None):
        """Make calls until ``close``."""
        cdef int64_t made = 0, sync_ns = 0
        cdef int error
        cdef object item
        while not self.is_closed:
            with nogil:
                PyThread_acquire_lock(self.given, WAIT_LOCK)
                error = make_calls(self.calls, self.count, &made, &sync_ns)
            if not self.is_busy:
                return
            item, self.item, self.steps = self.item, None, None
            self.count, self.is_busy = 0, False
            done(item, made, error, sync_ns)
            item = None
