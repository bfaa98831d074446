"""What the operating system gives and takes: memory, files, descriptors, mounts."""
