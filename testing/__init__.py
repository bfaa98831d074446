"""For tests of Leveret and of services that embed it."""
