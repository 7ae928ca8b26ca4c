"""One table a file: functions from tables to tables that read and write nothing themselves."""
