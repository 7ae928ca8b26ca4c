"""Metric history into rollups, SLOs, incidents, baselines and forecasts, on Spark."""
