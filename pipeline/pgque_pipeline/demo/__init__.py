"""A generated history of the demo's four stories: weeks of metrics in seconds, for the pipeline to read."""
