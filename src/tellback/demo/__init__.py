"""What `tellback demo` shows: an agent with routes, and a made-up user whose memory one can look around in."""
