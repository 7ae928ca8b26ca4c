"""The commands of `pgque-pipeline`, one a file."""
