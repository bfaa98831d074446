"""Dead letters: the source queue writes their headers, publishes them, and waits for the answers of the targets."""
