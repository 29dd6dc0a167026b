"""Who is calling: credentials become a principal, and a request's caller.

Imported by middleware, routes and the console. Imports settings, and nothing of the routes."""
