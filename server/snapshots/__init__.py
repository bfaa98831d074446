"""Snapshots of a data directory: making, listing, checking, restoring and dropping them."""
