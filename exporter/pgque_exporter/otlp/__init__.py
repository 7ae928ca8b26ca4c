"""Pushing snapshots to a collector by the OpenTelemetry protocol, over gRPC or HTTP."""
