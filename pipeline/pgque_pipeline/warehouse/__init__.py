"""The folder that holds the tables: what is in force, who may write, what is kept."""
