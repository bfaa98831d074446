"""The actor runtime: one event loop, Thespian's actor API, OTP's semantics.

From the bottom: ``runtime``; the base classes of actors (``actor``, ``gen_server``, ``service``) and ``credit``;
``links``; ``processes``; ``thespian``. Each imports only the parts named before it, and ``leveret.core``.
"""
