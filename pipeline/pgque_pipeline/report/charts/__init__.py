"""Pictures: functions from plain data to SVG. Colours come from the page's style, by class."""
