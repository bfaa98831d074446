"""Test support for guaranteed multicast.

``network`` simulates links and nodes and ``store`` a faulty store of records, in virtual time; ``ring`` runs members
on them, and ``schedules`` joins, leaves, crashes and cuts them at random. ``history`` records what members did and
judges it; ``recording`` does so in files, for members in several processes, and ``check`` is the command that judges
these.
"""
