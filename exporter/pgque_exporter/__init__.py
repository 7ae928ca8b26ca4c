"""PgQue Exporter: see, chart and page on every queue that lives in PostgreSQL."""

__version__ = "0.1.0"
