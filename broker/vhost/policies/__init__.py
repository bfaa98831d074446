"""The policies of a vhost: which apply to a queue or exchange (``policies``), and which are valid at all."""
