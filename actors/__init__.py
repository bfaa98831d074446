"""The actor runtime: one event loop, Thespian's actor API, OTP's semantics."""
