"""Configuration, boot, the embedding API and the command line."""
