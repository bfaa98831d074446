# Sends to many sockets, with the help of a thread; ``leveret/amqp/kernel.py`` explains it.
#
# The caller and the thread take one output after the other, until none is left; then the caller waits for the one that
# the thread still sends. One word has the number of the call and of the outputs that nobody has taken: who changes it
# from n to n - 1 has taken output n - 1, of that call, and a thread that comes late finds that none is left. The caller
# keeps the interpreter's lock, so there is one call at a time.
#
# On a machine whose processors have other work the thread may be interrupted while it sends, and the caller waits for
# it. Then the next calls do without it: at first a few, more each time.

from libc.stdlib cimport realloc

cdef extern from *:
    """
    #include <pthread.h>
    #include <sched.h>
    #include <sys/socket.h>
    #include <time.h>
    #include <unistd.h>
    #ifndef MSG_NOSIGNAL  /* Python ignores SIGPIPE */
    #define MSG_NOSIGNAL 0
    #endif

    enum { SHARED_FROM = 4,  /* outputs that are worth waking the thread */
           LONG_WAIT_NS = 50 * 1000, ALONE_MIN = 16, ALONE_MAX = 4096 };

    typedef struct { int descriptor; const char *bytes; size_t size; ssize_t sent; } output_t;

    static struct {
        uint64_t untaken;  /* number of the call << 32 | outputs */
        uint32_t done;
        output_t *outputs;
        pthread_mutex_t lock;
        pthread_cond_t called;
        int is_called, has_thread;
        pid_t owner;  /* the process of the thread: a fork has none */
        uint32_t alone, alone_next;  /* calls without the thread: still, and after the next long wait */
    } sending = { .alone_next = ALONE_MIN };

    static void send_untaken(void)
    {
        uint64_t untaken = __atomic_load_n(&sending.untaken, __ATOMIC_ACQUIRE);
        while ((uint32_t)untaken) {
            if (!__atomic_compare_exchange_n(&sending.untaken, &untaken, untaken - 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
                continue;
            output_t *output = sending.outputs + (uint32_t)untaken - 1;
            output->sent = send(output->descriptor, output->bytes, output->size, MSG_DONTWAIT | MSG_NOSIGNAL);
            __atomic_add_fetch(&sending.done, 1, __ATOMIC_RELEASE);
            untaken = __atomic_load_n(&sending.untaken, __ATOMIC_ACQUIRE);
        }
    }

    static void *help_sending(void *unused)
    {
        for (;;) {
            pthread_mutex_lock(&sending.lock);
            while (!sending.is_called)
                pthread_cond_wait(&sending.called, &sending.lock);
            sending.is_called = 0;
            pthread_mutex_unlock(&sending.lock);
            send_untaken();
        }
        return unused;
    }

    static int begin_helping(void)  /* 0: there is no thread, nor processors for two */
    {
        pthread_t thread;
        if (sending.owner != getpid()) {
            sending.owner = getpid();
            sending.is_called = 0;
            pthread_mutex_init(&sending.lock, NULL);
            pthread_cond_init(&sending.called, NULL);
            sending.has_thread = sysconf(_SC_NPROCESSORS_ONLN) > 1 && !pthread_create(&thread, NULL, help_sending, NULL)
                && !pthread_detach(thread);
        }
        return sending.has_thread;
    }

    static int64_t now_ns(void)
    {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }

    static void wait_for_thread(uint32_t count)
    {
        int64_t since_ns = now_ns();
        while (__atomic_load_n(&sending.done, __ATOMIC_ACQUIRE) != count)
            sched_yield();
        if (now_ns() - since_ns > LONG_WAIT_NS) {
            sending.alone = sending.alone_next;
            sending.alone_next = sending.alone_next < ALONE_MAX ? sending.alone_next * 2 : ALONE_MAX;
        } else if (sending.alone_next > ALONE_MIN)
            sending.alone_next--;
    }

    static void send_outputs(uint32_t count)
    {
        uint64_t call = (__atomic_load_n(&sending.untaken, __ATOMIC_RELAXED) >> 32) + 1;
        __atomic_store_n(&sending.done, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&sending.untaken, call << 32 | count, __ATOMIC_RELEASE);
        if (sending.alone && count >= SHARED_FROM)
            sending.alone--;
        else if (count >= SHARED_FROM && begin_helping()) {
            pthread_mutex_lock(&sending.lock);
            sending.is_called = 1;
            pthread_cond_signal(&sending.called);
            pthread_mutex_unlock(&sending.lock);
        }
        send_untaken();
        if (__atomic_load_n(&sending.done, __ATOMIC_ACQUIRE) != count)
            wait_for_thread(count);
    }
    """
    ctypedef struct output_t:
        int descriptor
        const char *bytes
        size_t size
        Py_ssize_t sent
    output_t *to_send "sending.outputs"
    void send_outputs(uint32_t count)

cdef Py_ssize_t outputs_room = 0


def send(list descriptors not None, list outputs not None):
    """Send each output to the socket of its descriptor; return what is left of them."""
    global outputs_room, to_send
    cdef Py_ssize_t count = len(outputs), place, sent
    cdef bytes output
    cdef output_t *room
    if len(descriptors) != count:
        raise ValueError("as many descriptors as outputs")
    if count > outputs_room:
        room = <output_t *>realloc(to_send, 2 * count * sizeof(output_t))
        if room is NULL:
            raise MemoryError
        to_send, outputs_room = room, 2 * count
    for place in range(count):
        output = <bytes?>outputs[place]
        to_send[place].descriptor = descriptors[place]
        to_send[place].bytes = PyBytes_AS_STRING(output)
        to_send[place].size = PyBytes_GET_SIZE(output)
    send_outputs(<uint32_t>count)
    left = []
    for place in range(count):
        sent = to_send[place].sent
        if sent != <Py_ssize_t>to_send[place].size:
            left.append((place, max(sent, 0)))
    return left
