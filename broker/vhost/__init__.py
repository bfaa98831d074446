"""A vhost: exchanges, bindings, policies, permissions, and the writing of metadata.

``states`` says whether a vhost serves. The topology is in RAM; ``metadata`` writes each change to disk before it
is answered. ``auth`` and ``policies`` are permissions and policies.
May import ``queue`` and the modules of ``broker`` itself.
"""
