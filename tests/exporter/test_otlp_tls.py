"""A collector that takes nothing without TLS, a certificate and a header."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from pgque_exporter.config import OtlpConfig, load_environment
from pgque_exporter.otlp.encode import SnapshotEncoder
from pgque_exporter.otlp.push import make_transport
from pgque_exporter.otlp.transport import DeliveryError
from tests.exporter.harness import snapshot
from tests.support.certificates import Authority
from tests.support.collector import OtlpSink, Tls, run_sink

PROTOCOLS: tuple[Literal["grpc", "http"], ...] = ("grpc", "http")


async def send(config: OtlpConfig) -> None:
    transport = make_transport(config)
    [batch] = SnapshotEncoder({}, "shop").encode(snapshot(1, 2)).data
    try:
        await transport.send(batch.payload, 10)
    finally:
        await transport.close()


def endpoint(sink: OtlpSink, protocol: str) -> str:
    port = (sink.grpc_address if protocol == "grpc" else sink.http_address).partition(":")[2]
    return f"https://localhost:{port}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_only_a_service_with_a_certificate_delivers(
    protocol: Literal["grpc", "http"], tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    authority, stranger = Authority(tmp_path), Authority(tmp_path / "elsewhere")
    ours = authority.issue("ours")
    with run_sink(Tls(*authority.issue("collector"), authority.certificate)) as sink:
        headers = {"Authorization": "Bearer hunter2"}
        to = endpoint(sink, protocol)
        for ca_file, client in (
            (authority.certificate, None),
            (authority.certificate, stranger.issue("theirs")),
            (stranger.certificate, ours),
            (None, ours),
        ):
            refused = OtlpConfig(to, protocol, headers, ca_file=ca_file, client=client)
            with pytest.raises(DeliveryError) as caught:
                asyncio.run(send(refused))
            assert "hunter2" not in str(caught.value)
        assert sink.points() == []

        asyncio.run(send(OtlpConfig(to, protocol, headers, ca_file=authority.certificate, client=ours)))
        assert [point.value for point in sink.points()] == [1, 2]
        assert sink.headers[-1]["authorization"] == "Bearer hunter2"


def test_the_environment_names_all_of_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("ours")
    config = load_environment(
        {
            "PGQUE_DSN": "dbname=x",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector:4317",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": str(authority.certificate),
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": str(certificate),
            "OTEL_EXPORTER_OTLP_CLIENT_KEY": str(key),
        }
    )
    assert config.otlp is not None
    assert (config.otlp.ca_file, config.otlp.client) == (authority.certificate, (certificate, key))
