"""The report: what the tables tell, as one HTML page for people."""
