# Everything a newcomer runs. `make demo` and `make test` set up what they need in .venv and .tools.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo demo-history test lint lock generate pictures bench-sql bench-exporter bench-instrument bench-engine \
  bench-pipeline clean

demo: $(VENV)/.demo
	@exec $(BIN)/pgque-exporter demo

# Four generated weeks of the demo's stories through the pipeline, and the report on them.
demo-history: $(VENV)/.pipeline
	@exec $(BIN)/pgque-pipeline demo

test: $(VENV)/.dev
	@exec $(BIN)/python tests/run.py

lint: $(VENV)/.dev
	@exec $(BIN)/python tests/run.py --lint-only

# Files made from other files: SQL install files, the metric tables in the docs, dashboards, alerts.
generate: $(VENV)/.dev
	$(BIN)/python sql/build.py
	$(BIN)/python docs/build.py
	$(BIN)/python dashboards/build.py
	$(BIN)/python alerts/build.py

# Every dashboard over some minutes of the demo, drawn by Grafana's libraries in a headless browser, and the
# report on the demo's generated weeks.
pictures: $(VENV)/.dev
	@$(BIN)/python dashboards/pictures/take.py
	@exec $(BIN)/python dashboards/pictures/take_report.py

# What a poll costs the database, beside the specification's SQL.
bench-sql: $(VENV)/.dev
	@exec $(BIN)/python bench/observability.py

# What the service costs and how fast it answers: while series come and go, while a database suffers, and
# beside another exporter.
bench-exporter: $(VENV)/.dev
	@code=0; for part in memory faults; do $(BIN)/python bench/exporter_$$part.py || code=1; done; \
	  $(BIN)/python bench/exporter.py && exit $$code

# What the instrumentation costs the engine's users.
bench-instrument: $(VENV)/.dev
	@exec $(BIN)/python bench/instrumentation.py

# What the engine costs beside PgQ.
bench-engine: $(VENV)/.dev
	@exec $(BIN)/python bench/engine.py

# What the pipeline costs beside DuckDB and Polars, and how long a stream takes to show a point.
bench-pipeline: $(VENV)/.dev $(VENV)/.bench
	@$(BIN)/python bench/pipeline_stream.py
	@exec $(BIN)/python bench/pipeline.py

# Refresh the pinned versions from pyproject.toml.
lock: $(VENV)/.dev
	for extra in demo pipeline bench dev; do $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header --extra $$extra \
	  --output-file requirements/$$extra.txt pyproject.toml requirements/build.in; done

clean:
	rm -rf $(VENV) .tools

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: requirements/demo.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --require-hashes --requirement requirements/demo.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.pipeline: requirements/pipeline.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --require-hashes --requirement requirements/pipeline.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.bench: requirements/bench.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --require-hashes --requirement requirements/bench.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.demo
	$(BIN)/pip install --quiet --require-hashes --requirement requirements/dev.txt
	@touch $@
