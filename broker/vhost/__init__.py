"""A vhost: exchanges, bindings, policies, permissions, and the writing of metadata.

``states`` says whether a vhost serves. The topology is in RAM; ``metadata_writer`` has each change on disk before it
is answered, through the actor in ``metadata_server``.
May import ``queue`` and the modules of ``broker`` itself.
"""
