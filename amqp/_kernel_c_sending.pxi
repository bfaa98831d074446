# Sends to many sockets; ``leveret/amqp/kernel.py`` explains them.

cdef extern from *:
    """
    #include <sys/socket.h>
    #ifndef MSG_NOSIGNAL  /* Python ignores SIGPIPE */
    #define MSG_NOSIGNAL 0
    #endif
    """
    Py_ssize_t socket_send "send" (int, const char *, size_t, int)
    int MSG_DONTWAIT, MSG_NOSIGNAL


def send(list descriptors not None, list outputs not None):
    """Send ``outputs[n]`` to the socket ``descriptors[n]``; return the outputs that were not sent whole."""
    cdef Py_ssize_t place, sent
    cdef bytes output
    if len(descriptors) != len(outputs):
        raise ValueError("there are not as many descriptors as outputs")
    left = []
    for place in range(len(outputs)):
        output = outputs[place]
        sent = socket_send(
            descriptors[place], PyBytes_AS_STRING(output), PyBytes_GET_SIZE(output), MSG_DONTWAIT | MSG_NOSIGNAL
        )
        if sent != PyBytes_GET_SIZE(output):
            left.append((place, max(sent, 0)))
    return left
