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

    static int load(const int *flag) { return __atomic_load_n(flag, __ATOMIC_SEQ_CST); }
    static void store(int *flag, int value) { __atomic_store_n(flag, value, __ATOMIC_SEQ_CST); }

    static void count_down(int *left, int descriptor) {
        const uint64_t one = 1;
        if (!__atomic_sub_fetch(left, 1, __ATOMIC_SEQ_CST))
            while (write(descriptor, &one, sizeof one) < 0 && errno == EINTR)
                ;
    }
    """
    ctypedef struct one_call:
        int descriptor
        const char *data
        size_t size
        int64_t offset
    int make_calls(const one_call *calls, int64_t count, int64_t *made, int64_t *sync_ns) nogil
    int load(const int *flag) nogil
    void store(int *flag, int value) nogil
    void count_down(int *left, int descriptor) nogil


cdef class Notifier:
    """Wakes a loop, by a descriptor that it polls, when all expected batches are done."""

    cdef int descriptor
    cdef int left  # atomic

    def __cinit__(self, int descriptor):
        self.descriptor = descriptor

    def expect(self, int count):
        """Wake the loop when so many batches are done."""
        store(&self.left, count)

    def done(self):
        """Count a batch that is done."""
        count_down(&self.left, self.descriptor)


cdef class Caller:
    """Makes system calls on a thread.

    ``submitted`` is locked except from ``submit`` or ``close`` until the thread wakes up. The fields of a batch
    belong to the thread while ``is_busy``, and do not change before ``take_outcome``.
    """

    cdef PyThread_type_lock submitted
    cdef one_call *calls
    cdef int64_t room, count, made, sync_ns
    cdef int error_no
    cdef int is_busy, is_closed  # atomic
    cdef bint is_awaited
    cdef list steps  # whose bytes the calls point to
    cdef object work, result
    cdef Notifier notifier

    def __cinit__(self, Notifier notifier not None):
        self.notifier = notifier
        self.submitted = PyThread_allocate_lock()
        if self.submitted is NULL:
            raise MemoryError()
        PyThread_acquire_lock(self.submitted, WAIT_LOCK)

    def __dealloc__(self):
        if self.submitted is not NULL:
            PyThread_free_lock(self.submitted)
        PyMem_Free(self.calls)

    def submit(self, list steps not None):
        """Have the thread make some calls."""
        cdef Py_ssize_t i
        cdef object data
        cdef int descriptor
        cdef int64_t offset
        self.check()
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
        self.count, self.steps = len(steps), steps
        self.begin()

    def submit_call(self, work not None):
        """Have the thread call a function."""
        self.check()
        self.count, self.work = 0, work
        self.begin()

    cdef int check(self) except -1:
        if self.is_awaited or load(&self.is_closed):
            raise RuntimeError("work was submitted before the last outcome was taken, or after the end")
        return 0

    cdef int make_room(self, int64_t count) except -1:
        cdef one_call *calls
        if count > self.room:
            calls = <one_call *>PyMem_Realloc(self.calls, count * sizeof(one_call))
            if calls is NULL:
                raise MemoryError()
            self.calls, self.room = calls, count
        return 0

    cdef void begin(self) noexcept:
        self.is_awaited = True
        store(&self.is_busy, True)
        PyThread_release_lock(self.submitted)

    def take_outcome(self):
        """Return the outcome of the last work, once."""
        if not self.is_awaited or load(&self.is_busy):
            return None
        self.is_awaited = False
        self.steps = None
        result, self.result = self.result, None
        return self.made, self.error_no, self.sync_ns, result

    def close(self):
        """Let ``run`` end."""
        store(&self.is_closed, True)
        if not load(&self.is_busy):
            PyThread_release_lock(self.submitted)

    def run(self):
        """Make calls until ``close``."""
        cdef bint is_over = False
        cdef object work
        while not is_over:
            with nogil:
                is_over = self.make_batches()
            if not is_over:
                work, self.work = self.work, None
                self.result = work()
                work = None
                is_over = self.finish()

    cdef bint make_batches(self) noexcept nogil:
        """Make the calls of batches until a function must be called; return whether ``close`` has ended it."""
        while True:
            PyThread_acquire_lock(self.submitted, WAIT_LOCK)
            if not load(&self.is_busy):
                return True
            self.error_no = make_calls(self.calls, self.count, &self.made, &self.sync_ns)
            if self.has_work():
                return False
            if self.finish():
                return True

    cdef bint has_work(self) noexcept nogil:
        return <void *>self.work is not NULL and <PyObject *>self.work is not <PyObject *>None

    cdef bint finish(self) noexcept nogil:
        """Count the batch as done; return whether it was the last."""
        store(&self.is_busy, False)
        count_down(&self.notifier.left, self.notifier.descriptor)
        return load(&self.is_closed)
