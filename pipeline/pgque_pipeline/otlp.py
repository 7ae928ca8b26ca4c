"""OTLP metrics in JSON as Spark reads them: the shape of a line.

Every kind of data point has the same shape here, with NULL for what it hasn't got, so that one explode
serves all of them. 64-bit integers are strings in OTLP's JSON; as numbers they are read too.
"""

from __future__ import annotations

_VALUE = (
    "struct<stringValue:string,intValue:string,doubleValue:string,boolValue:string,"
    "arrayValue:string,kvlistValue:string,bytesValue:string>"
)
_ATTRIBUTES = f"array<struct<key:string,value:{_VALUE}>>"
_POINT = (
    f"struct<attributes:{_ATTRIBUTES},startTimeUnixNano:string,timeUnixNano:string,"
    "asDouble:double,asInt:string,"
    "count:string,sum:double,bucketCounts:array<string>,explicitBounds:array<double>,flags:int>"
)
_POINTS = f"dataPoints:array<{_POINT}>"
_METRIC = (
    f"struct<name:string,unit:string,gauge:struct<{_POINTS}>,"
    f"sum:struct<{_POINTS},aggregationTemporality:string,isMonotonic:boolean>,"
    f"histogram:struct<{_POINTS},aggregationTemporality:string>,"
    f"exponentialHistogram:struct<{_POINTS}>,summary:struct<{_POINTS}>>"
)
_SCOPES = f"array<struct<metrics:array<{_METRIC}>>>"
_RESOURCE_METRICS = f"array<struct<resource:struct<attributes:{_ATTRIBUTES}>,scopeMetrics:{_SCOPES}>>"

# Where a line isn't OTLP's JSON it is kept in this column, and all others are NULL or not to be trusted.
BAD_LINE = "bad_line"
LINE = f"resourceMetrics {_RESOURCE_METRICS}, {BAD_LINE} string"
OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD_LINE}

# A data point's flag that says that there is no value.
NO_RECORDED_VALUE = 1
