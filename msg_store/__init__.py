"""Messages on disk: shared segments (.rdq), one journal, group commit, recovery."""
