"""The log: loggers, counted floods, and the thread that writes the lines."""
