"""For tests of metadata that several nodes share: an etcd in virtual time, and a checker of histories."""
