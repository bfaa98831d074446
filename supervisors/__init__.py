"""OTP supervision: child specs, strategies, intensity, orderly stop."""
