"""Test support for Leveret and for services that embed it.

``pytest_plugin`` has the fixtures, over ``broker`` (a broker on a thread of its own), ``vhost``, ``chaos`` and
``virtual_time``; ``broker_process`` is a broker for ``kill -9``, ``relays`` cut and delay the connections between
processes, ``history`` checks the events that clients saw.
``virtual_clock`` and ``manual_clock`` replace the machine's time.
May import every package; no package imports this one.
"""
