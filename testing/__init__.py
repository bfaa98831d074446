"""Test support for Leveret and for services that embed it."""
