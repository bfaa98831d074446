"""The operator's commands on a running broker; the control socket serves them as verbs.

One file per subject; ``node_admin`` puts the parts together and lists the verbs.
Imports definitions, snapshots and the parts below them.
"""
