#!/bin/sh
# Build the OpenTelemetry Collector by its own builder, from the modules that go.mod and go.sum here pin.
#
#     deploy/collector/build.sh [FOLDER]      makes FOLDER/otelcol (default: ./otelcol)
#
# After a change of builder.yaml: PIN=1 deploy/collector/build.sh, which pins anew what it finds.
set -eu

builder=go.opentelemetry.io/collector/cmd/builder@v0.116.0

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:-.}"
cd "${1:-.}"
if ! command -v go >/dev/null; then
    echo "build.sh: there is no Go here; run the container that README.md names instead" >&2
    exit 1
fi

rm -rf source
if [ -n "${PIN:-}" ]; then
    go run "$builder" --config "$here/builder.yaml" --skip-compilation
    cp source/go.mod source/go.sum "$here/"
else
    go run "$builder" --config "$here/builder.yaml" --skip-compilation --skip-get-modules
    cp "$here/go.mod" "$here/go.sum" source/
fi
(cd source && go build -mod=readonly -buildvcs=false -trimpath -ldflags='-s -w' -o ../otelcol .)
rm -rf source
./otelcol --version
