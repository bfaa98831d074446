"""The writing of metadata: scripts ask for it (``metadata_writer``), an actor does it (``metadata_server``)."""
