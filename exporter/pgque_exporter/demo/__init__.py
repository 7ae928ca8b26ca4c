"""The demo: an embedded PostgreSQL, a queue load a person recognises, and the service beside it."""
