"""A server over HTTP, with the surface of the in-process handles."""
