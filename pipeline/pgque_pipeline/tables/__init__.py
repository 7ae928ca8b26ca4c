"""One table a file: functions from DataFrame to DataFrame that read and write nothing themselves."""
