"""A vhost: exchanges, bindings, policies, permissions, and the writing of metadata.

Topology is in RAM; metadata_server makes each change durable before it is answered.
Imports queue, mail, script, settings.
"""
