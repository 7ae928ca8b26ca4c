from __future__ import annotations

import re
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from pgque_exporter.config import Config, Limits, Listen, load_environment, load_file, misspelt
from pgque_exporter.errors import UserError

GOOD = """\
listen: 10.0.0.1:9000
interval: 30s
stale_after: 2m
log_level: debug
targets:
  - dsn: host=db1 dbname=shop user=monitor
  - name: billing
    dsn: postgresql://monitor@db2/billing
    interval: 1m
    timeout: 500ms
    packs: [special]
otlp:
  endpoint: https://collector:4317/
  protocol: grpc
  headers: {authorization: Bearer abc}
  timeout: 3s
  temporality: delta
  queue_points: 50000
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "exporter.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def error_of(folder: Path, text: str) -> str:
    with pytest.raises(UserError) as caught:
        load_file(write(folder, text))
    return str(caught.value).replace(str(folder), "")


def test_a_full_file_becomes_a_config(tmp_path: Path) -> None:
    config = load_file(write(tmp_path, GOOD))
    assert config.listen == Listen("10.0.0.1", 9000)
    shop, billing = config.targets
    assert (shop.name, shop.interval, shop.timeout, shop.stale_after) == ("shop", 30.0, 10.0, 120.0)
    assert (billing.name, billing.interval, billing.timeout) == ("billing", 60.0, 0.5)
    assert billing.packs == ("special",)
    assert config.otlp is not None
    assert (config.otlp.endpoint, config.otlp.protocol) == ("https://collector:4317", "grpc")
    assert (config.otlp.timeout, config.otlp.headers) == (3.0, {"authorization": "Bearer abc"})
    assert (config.otlp.temporality, config.otlp.queue_points) == ("delta", 50_000)


def test_limits_are_those_of_each_target_and_of_all(tmp_path: Path) -> None:
    config = load_file(write(tmp_path, f"{TARGET}limits:\n  series: 5000\n  label_length: 100\n"))
    assert config.limits == config.targets[0].limits == Limits(series=5000, label_length=100)
    assert load_file(write(tmp_path, TARGET)).limits == Limits()


def test_defaults_follow_from_the_interval(tmp_path: Path) -> None:
    config = load_file(write(tmp_path, "interval: 2s\ntargets:\n  - dsn: dbname=shop\n"))
    assert (config.targets[0].timeout, config.targets[0].stale_after) == (2.0, 8.0)
    assert config.listen == Listen("127.0.0.1", 9718)
    assert config.otlp is None


def test_what_a_slow_poll_found_stays_until_the_next_slow_poll_ends(tmp_path: Path) -> None:
    config = load_file(write(tmp_path, "interval: 1s\ntimeout: 10s\ntargets:\n  - dsn: dbname=shop\n"))
    assert config.targets[0].stale_after == 21.0


def test_secrets_are_not_in_the_representation(tmp_path: Path) -> None:
    text = GOOD.replace("user=monitor", "user=monitor password=hunter2")
    assert "hunter2" not in repr(load_file(write(tmp_path, text)))
    assert "abc" not in repr(load_file(write(tmp_path, GOOD)))


TARGET = "targets:\n  - dsn: dbname=shop\n"

OTLP = TARGET + "otlp:\n  endpoint: http://c\n"

# One mistake each: the text, the line to be named, and what the message says.
MISTAKES = {
    "unknown key": (TARGET + "intervall: 15s\n", 3, "unknown key 'intervall'. Did you mean interval?"),
    "unknown target key": (TARGET + "    user: x\n", 3, "unknown key 'user'. Known here: discover, dsn"),
    "unknown otlp key": (TARGET + "otlp:\n  endpoint: http://c\n  tls: x\n", 5, "unknown key 'tls'"),
    "not a mapping": ("- 1\n", 1, "the configuration must hold `key: value` lines"),
    "empty file": ("", 1, "targets is missing"),
    "no targets": ("interval: 15s\ntargets: []\n", 2, "targets needs at least one entry"),
    "targets no list": ("targets: 5\n", 1, "targets must be a list"),
    "target no mapping": ("targets:\n  - dbname=shop\n", 2, "targets must hold `key: value` lines"),
    "no dsn": ("interval: 15s\ntargets:\n  - name: shop\n", 3, "dsn is missing"),
    "dsn no text": ("targets:\n  - name: a\n    dsn: 5\n", 3, "dsn must be text"),
    "bad dsn": (
        "targets:\n  - name: a\n    dsn: postgresql://h:1:2/%zz\n",
        3,
        "not a libpq connection string",
    ),
    "plain @ in password": ("targets:\n  - dsn: postgresql://u:p@ss@h/d\n", 2, "host or dbname has an @"),
    "number for a duration": (f"interval: 15\n{TARGET}", 1, "'15' is not a duration. Write a number with"),
    "bad duration": (TARGET + "    timeout: 5 sec\n", 3, "timeout: '5 sec' is not a duration"),
    "duration too long": (f"interval: 25h\n{TARGET}", 1, "'25h' is out of range"),
    "zero duration": (f"\ninterval: 0s\n{TARGET}", 2, "'0s' is out of range"),
    "number as a key": (f"5: x\n{TARGET}", 1, "unknown key 5. Known here: archive, health_listen, "),
    "number as a target's key": (TARGET + "    5: x\n", 3, "unknown key 5. Known here: discover, dsn"),
    "stale before the next poll ends": (
        f"stale_after: 24s\n{TARGET}",
        1,
        "stale_after is shorter than interval and timeout of 'shop' together",
    ),
    "port too high": (f"listen: 127.0.0.1:70000\n{TARGET}", 1, "'70000' is not a port"),
    "port no number": (f"listen: 127.0.0.1:http\n{TARGET}", 1, "'http' is not a port"),
    "health port no number": (f"health_listen: 127.0.0.1:x\n{TARGET}", 1, "health_listen: 'x' is not a port"),
    "web_config no text": (f"web_config: 5\n{TARGET}", 1, "web_config must be text"),
    "no host": (f"listen: 9718\n{TARGET}", 1, "is not host:port"),
    "bare ipv6": (f"listen: ::1:9718\n{TARGET}", 1, "is not host:port"),
    "name twice": (
        "targets:\n  - {name: a, dsn: dbname=x}\n  - name: a\n    dsn: dbname=y\n",
        3,
        "a target named 'a' exists already",
    ),
    "database twice": (
        f"{TARGET}  - dsn: host=other dbname=shop\n",
        3,
        "a target named 'shop' exists already",
    ),
    "empty name": ("targets:\n  - dsn: dbname=x\n    name: ''\n", 3, "must have 1 to 200 printable"),
    "half a character": (
        'targets:\n  - dsn: dbname=x\n    name: "\\ud800"\n',
        3,
        "must have 1 to 200 printable",
    ),
    "password file missing": (
        TARGET + "    password_file: /no/such\n",
        3,
        "can't read /no/such: No such file",
    ),
    "packs no list": (TARGET + "    packs: special\n", 3, "packs must be a list"),
    "endpoint without scheme": (TARGET + "otlp:\n  endpoint: collector:4317\n", 4, "endpoint is not a URL"),
    "endpoint with password": (
        TARGET + "otlp:\n  endpoint: http://u:p@c\n",
        4,
        "must not hold a user or password",
    ),
    "protocol": (
        TARGET + "otlp:\n  endpoint: http://c\n  protocol: http/json\n",
        5,
        "protocol must be 'grpc' or 'http'",
    ),
    "header with a line end": (
        TARGET + 'otlp:\n  endpoint: http://c\n  headers: {a: "x\\ny"}\n',
        5,
        "characters that headers can't have",
    ),
    "header no text": (
        TARGET + "otlp:\n  endpoint: http://c\n  headers:\n    a: 5\n",
        6,
        "otlp.headers.a must be text, in quotes",
    ),
    "header's name no text": (
        TARGET + "otlp:\n  endpoint: http://c\n  headers:\n    5: a\n",
        6,
        "otlp.headers.5 must be text, in quotes",
    ),
    "ca file missing": (
        TARGET + "otlp:\n  endpoint: https://c\n  ca_file: /no/such\n",
        5,
        "can't read /no/such",
    ),
    "ca file without a certificate": (
        TARGET + "otlp:\n  endpoint: https://c\n  ca_file: /dev/null\n",
        5,
        "/dev/null holds no certificate. Name a file in PEM form",
    ),
    "temporality": (
        TARGET + "otlp:\n  endpoint: http://c\n  temporality: lowmemory\n",
        5,
        "temporality must be 'cumulative' or 'delta'",
    ),
    **{
        f"queue_points {text}": (
            TARGET + f"otlp:\n  endpoint: http://c\n  queue_points: {text}\n",
            5,
            "is not a number from 5,000 to 10,000,000. A point takes",
        )
        for text in ("4999", "10000001", "many", "true", "1e6")
    },
    "certificate without a key": (
        TARGET + "otlp:\n  endpoint: https://c\n  cert_file: /dev/null\n",
        5,
        "cert_file and key_file belong together",
    ),
    "key without a certificate": (
        TARGET + "otlp:\n  endpoint: https://c\n  key_file: /dev/null\n",
        5,
        "cert_file and key_file belong together",
    ),
    "certificate without TLS": (
        TARGET + "otlp:\n  endpoint: http://c\n  cert_file: /dev/null\n  key_file: /dev/null\n",
        5,
        "cert_file is of use with TLS only",
    ),
    "no certificate of ours": (
        TARGET + "otlp:\n  endpoint: https://c\n  cert_file: /dev/null\n  key_file: /dev/null\n",
        5,
        "cert_file and key_file are no certificate and its key",
    ),
    "limits no mapping": (f"{TARGET}limits: 5\n", 3, "limits must hold `key: value` lines"),
    "unknown limit": (f"{TARGET}limits:\n  serie: 5\n", 4, "unknown key 'serie'. Did you mean series?"),
    "limit no number": (f"{TARGET}limits:\n  series: '5'\n", 4, "series must be a whole number"),
    "limit of nothing": (f"{TARGET}limits:\n  labels: 0\n", 4, "labels must be at least 1"),
    "limit without end": (
        f"{TARGET}limits:\n  label_length: 1000000000\n",
        4,
        "label_length must be at most 100,000,000",
    ),
    "log level": (f"log_level: loud\n{TARGET}", 1, "log_level must be 'debug', 'info', 'warning' or 'error'"),
    "key twice": (f"{TARGET}interval: 1s\ninterval: 2s\n", 4, "'interval' stands here a second time"),
    "bad syntax": ("targets: [\n", 2, "not valid YAML"),
    "tab": ("targets:\n\t- dsn: x\n", 2, "not valid YAML"),
    "label no text": (TARGET + "    labels:\n      env: 5\n", 4, "labels.env must be text, in quotes"),
    "label's name": (TARGET + "    labels: {1st: x}\n", 3, "'1st' can't be the name of a label"),
    "label of Prometheus": (TARGET + "    labels: {__name__: x}\n", 3, "can't be the name of a label"),
    "label of ours": (
        TARGET + "    labels:\n      env: x\n      queue: y\n",
        5,
        "the label 'queue' is the service's own",
    ),
    "label empty": (TARGET + "    labels: {env: ''}\n", 3, "label 'env' must have 1 to 200 printable"),
    "discover neither": (TARGET + "    discover: yes please\n", 3, "discover must hold `key: value` lines"),
    "discover nameless": (TARGET + "    discover: true\n", 3, "a target with discover needs a name"),
    "unknown discover key": (
        TARGET + "    name: x\n    discover:\n      includes: [a]\n",
        5,
        "unknown key 'includes'. Did you mean include?",
    ),
    "discover interval": (
        TARGET + "    name: x\n    discover: {interval: 5}\n",
        4,
        "interval: '5' is not a duration",
    ),
    "two histories": (
        "targets:\n  - {dsn: dbname=a, history: true}\n  - {dsn: dbname=b, history: true}\n",
        3,
        "history is for one database",
    ),
    "history of a whole server": (
        "targets:\n  - dsn: dbname=a\n    history: true\n    discover: true\n",
        3,
        "history is for one database",
    ),
    "archive without a folder": (TARGET + "archive:\n  compress: true\n", 3, "directory is missing"),
    "archive nowhere": (TARGET + "archive:\n  directory: ''\n", 4, "directory is empty"),
    "archive's size": (TARGET + "archive:\n  directory: a\n  max_size: 10GB\n", 5, "'10GB' is not a size"),
    "archive's files too small": (
        TARGET + "archive:\n  directory: a\n  rotate_size: 1KiB\n",
        5,
        "rotate_size is below 1MiB",
    ),
    "archive too small": (
        TARGET + "archive:\n  directory: a\n  max_size: 100MiB\n",
        5,
        "max_size is less than two files of rotate_size",
    ),
    "leader without otlp": (
        TARGET + "leader:\n  dsn: dbname=x\n",
        3,
        "leader decides who pushes or archives, and otlp and archive are missing",
    ),
    "leader without dsn": (OTLP + "leader:\n  name: x\n", 5, "dsn is missing"),
    "leader's dsn": (OTLP + "leader:\n  dsn: nonsense\n", 6, "the dsn is not a libpq connection string"),
    "leader's lease": (OTLP + "leader:\n  dsn: dbname=x\n  lease: 500ms\n", 7, "lease is shorter than 1s"),
    "leader's password file": (
        OTLP + "leader:\n  dsn: dbname=x\n  password_file: /no/such\n",
        7,
        "can't read /no/such",
    ),
    "unknown leader key": (OTLP + "leader:\n  dsn: dbname=x\n  leas: 5s\n", 7, "Did you mean lease?"),
    "target files no list": ("target_files: a.yaml\n", 1, "target_files must be a list"),
    "value like a tag": (TARGET + "    name: !hunter2 x\n", 3, "a value begins with ! or *"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_named_with_file_and_line(mistake: str, tmp_path: Path) -> None:
    text, line, message = MISTAKES[mistake]
    error = error_of(tmp_path, text)
    assert error.startswith(f"/exporter.yaml:{line}: ")
    assert message in error
    assert "\n" not in error
    assert "hunter2" not in error


def with_target_files(folder: Path, **files: str) -> Path:
    """A configuration that names `targets.d/*.yaml`, and such files."""
    (folder / "targets.d").mkdir()
    for name, text in files.items():
        (folder / "targets.d" / f"{name}.yaml").write_text(text, encoding="utf-8")
    return write(folder, "interval: 30s\ntarget_files: [targets.d/*.yaml]\n")


def test_targets_come_from_files_and_globs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = with_target_files(
        tmp_path,
        b="- dsn: dbname=second\n- {dsn: dbname=third, interval: 1m, timeout: 2s}\n",
        a="- {dsn: dbname=first, labels: {team: blue, env: prod}}\n",
        empty="# nothing yet\n",
    )
    monkeypatch.chdir("/")  # the pattern is relative to the file that it stands in
    config = load_file(path)
    assert [(one.name, one.interval) for one in config.targets] == [
        ("first", 30.0), ("second", 30.0), ("third", 60.0),
    ]  # fmt: skip
    assert config.targets[0].labels == (("env", "prod"), ("team", "blue"))
    assert config.targets[2].timeout == 2.0
    assert config.files is not None
    names = [file.name for file in config.files.all()]
    assert names == ["exporter.yaml", "a.yaml", "b.yaml", "empty.yaml"]


def test_no_file_of_a_pattern_is_no_mistake_and_a_named_one_missing_is(tmp_path: Path) -> None:
    assert load_file(write(tmp_path, "target_files: [targets.d/*.yaml]\n")).targets == ()
    error = error_of(tmp_path, "target_files: [targets.yaml]\n")
    assert error.startswith("/targets.yaml: can't read the targets: No such file")


# One mistake each in the file b.yaml: text, line, and what is said.
TARGET_FILE_MISTAKES = {
    "no list": ("dsn: dbname=x\n", 1, "targets must be a list"),
    "unknown key": ("- dsn: dbname=x\n  pack: y\n", 2, "unknown key 'pack'. Did you mean packs?"),
    "no dsn": ("- dsn: dbname=x\n- name: y\n", 2, "dsn is missing"),
    "bad dsn": ("- name: x\n  dsn: nonsense\n", 2, "the dsn is not a libpq connection string"),
    "same name in another file": ("- dsn: dbname=x\n- dsn: dbname=shop\n", 2, "a target named 'shop' exists"),
    "syntax": ("- [\n", 2, "not valid YAML"),
}


@pytest.mark.parametrize("mistake", TARGET_FILE_MISTAKES)
def test_a_mistake_in_a_file_of_targets_is_named_with_that_file(mistake: str, tmp_path: Path) -> None:
    text, line, message = TARGET_FILE_MISTAKES[mistake]
    path = with_target_files(tmp_path, a="- dsn: dbname=shop\n", b=text)
    with pytest.raises(UserError) as caught:
        load_file(path)
    error = str(caught.value).replace(str(tmp_path), "")
    assert error.startswith(f"/targets.d/b.yaml:{line}: ")
    assert message in error


def test_a_server_to_search_hands_its_settings_to_its_databases(tmp_path: Path) -> None:
    config = load_file(
        write(
            tmp_path,
            "targets:\n  - name: db1\n    dsn: postgresql://monitor@db1:5433/postgres?sslmode=require\n"
            "    interval: 30s\n    labels: {env: prod}\n"
            "    discover: {include: ['shop*', billing], exclude: ['*_test'], interval: 5m}\n"
            "  - {name: db2, dsn: host=db2, discover: true}\n"
            "  - {name: db3, dsn: host=db3, discover: false}\n",
        )
    )
    assert [target.name for target in config.targets] == ["db3"]
    first, second = config.discoveries
    assert (first.name, first.interval, second.interval) == ("db1", 300.0, 60.0)
    chosen = [name for name in ("shop", "shop_eu", "shop_test", "billing", "Billing") if first.wants(name)]
    assert chosen == ["shop", "shop_eu", "billing"]
    assert second.wants("anything")
    target = first.target("shop_eu")
    assert target is not None
    assert (target.name, target.interval, target.labels) == ("db1/shop_eu", 30.0, (("env", "prod"),))
    parts = conninfo_to_dict(target.dsn)
    assert (parts["dbname"], parts["host"], parts["sslmode"]) == ("shop_eu", "db1", "require")
    assert first.target("line\nbreak") is None


def test_a_dsn_is_never_quoted(tmp_path: Path) -> None:
    for dsn in (
        "postgresql://u:hunter2%zz@h/d",
        "postgresql://u:hun@ter2@h/d",
        "'password=hunter2 nonsense'",
        "postgresql://u@h/d?password=hunter2&x=1",
        "password='hunter2",
    ):
        error = error_of(tmp_path, f'targets:\n  - dsn: "{dsn}"\n')
        assert "hun" not in error
        assert "ter2" not in error


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.yaml: can't read the configuration: No such file"):
        load_file(tmp_path / "nowhere.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not UTF-8"):
        load_file(binary)


def test_a_self_containing_document_is_refused_and_not_followed_for_ever(tmp_path: Path) -> None:
    assert error_of(tmp_path, "targets: &x [*x]\n").startswith("/exporter.yaml:1: ")


def environment(**variables: str) -> Config:
    return load_environment(variables)


def test_the_environment_alone_is_enough_for_one_database(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("x")
    config = environment(
        PGQUE_DSN="host=db dbname=shop",
        PGQUE_PASSWORD_FILE=str(secret),
        PGQUE_LISTEN="[::1]:9000",
        PGQUE_INTERVAL="1m",
        PGQUE_TIMEOUT="2s",
        PGQUE_STALE_AFTER="90s",
        OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4318",
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
        OTEL_EXPORTER_OTLP_HEADERS="api-key=a%20b,tenant=x",
        OTEL_EXPORTER_OTLP_TIMEOUT="2500",
    )
    [target] = config.targets
    assert (target.name, target.interval, target.timeout, target.stale_after) == ("shop", 60.0, 2.0, 90.0)
    assert target.password_file == secret
    assert config.listen == Listen("::1", 9000)
    assert config.otlp is not None
    assert (config.otlp.protocol, config.otlp.timeout) == ("http", 2.5)
    assert config.otlp.headers == {"api-key": "a b", "tenant": "x"}
    assert (config.otlp.temporality, config.otlp.queue_points) == ("cumulative", 200_000)


@pytest.mark.parametrize(
    ("preference", "temporality"),
    [("delta", "delta"), ("DELTA", "delta"), ("Cumulative", "cumulative"), ("LowMemory", "cumulative")],
)
def test_the_temporality_preference_in_any_case(preference: str, temporality: str) -> None:
    config = environment(
        PGQUE_DSN="dbname=x",
        OTEL_EXPORTER_OTLP_ENDPOINT="http://c",
        OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=preference,
    )
    assert config.otlp is not None
    assert config.otlp.temporality == temporality


def test_libpq_variables_fill_what_the_dsn_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGDATABASE", "warehouse")
    assert environment(PGQUE_DSN="", PGHOST="db").targets[0].name == "warehouse"
    assert environment(PGHOST="db").targets[0].name == "warehouse"
    assert environment(PGQUE_DSN="dbname=shop").targets[0].name == "shop"
    monkeypatch.delenv("PGDATABASE")
    assert environment(PGQUE_DSN="user=monitor").targets[0].name == "monitor"
    assert environment(PGQUE_DSN="service=reporting").targets[0].name == "reporting"


def test_the_dsn_option_comes_before_the_variable() -> None:
    config = load_environment({"PGQUE_DSN": "dbname=one"}, dsn="dbname=two")
    assert config.targets[0].name == "two"


def test_an_empty_dsn_is_none() -> None:
    with pytest.raises(UserError, match="no database is given"):
        environment(PGQUE_DSN="", PGUSER="monitor")
    with pytest.raises(UserError, match="--dsn: the dsn is empty"):
        load_environment({"PGQUE_DSN": "dbname=one", "PGHOST": "db"}, dsn="")


def test_the_hint_names_the_variables_that_count() -> None:
    with pytest.raises(UserError) as caught:
        environment()
    named = re.findall(r"\bPG(?!QUE)[A-Z]+", str(caught.value))
    assert named
    for variable in named:
        assert environment(**{variable: "x"}).targets


def test_a_misspelt_variable_is_named_and_others_are_left_alone() -> None:
    environ = dict.fromkeys(
        (
            "PGQUE_INTERVALL", "PGQUE_PASSWORD", "PGQUE_STALE", "PGQUE_INTERVAL", "INTERVALL",
            "PGQUE_SERVICE_HOST", "PGQUE_SERVICE_PORT_HTTP", "PGQUE_PORT", "PGQUE_PORT_9718_TCP_ADDR",
            "PGQUE_EXPORTER_SERVICE_HOST", "PGQUE_EXPORTER_PORT",
        ),
        "1",
    )  # fmt: skip
    assert misspelt(environ) == [
        "unknown variable PGQUE_INTERVALL. Did you mean PGQUE_INTERVAL?",
        "unknown variable PGQUE_PASSWORD. Did you mean PGQUE_PASSWORD_FILE?",
        "unknown variable PGQUE_STALE. Did you mean PGQUE_STALE_AFTER?",
    ]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "no database is given. Set PGQUE_DSN"),
        ({"PGQUE_DSN": "nonsense"}, "PGQUE_DSN: the dsn is not"),
        ({"PGQUE_DSN": "dbname=x", "PGQUE_INTERVAL": "1"}, "PGQUE_INTERVAL: interval: '1' is not a duration"),
        (
            {"PGQUE_DSN": "dbname=x", "PGQUE_TIMEOUT": "1 day"},
            "PGQUE_TIMEOUT: timeout: '1 day' is not a duration",
        ),
        ({"PGQUE_DSN": "dbname=x", "PGQUE_LISTEN": "x"}, "PGQUE_LISTEN: listen: 'x' is not host:port"),
        ({"PGQUE_DSN": "dbname=x", "PGQUE_PASSWORD_FILE": "/no"}, "PGQUE_PASSWORD_FILE: can't read /no"),
        (
            {"PGQUE_DSN": "dbname=x", "OTEL_EXPORTER_OTLP_ENDPOINT": "c:4317"},
            "OTEL_EXPORTER_OTLP_ENDPOINT: endpoint is",
        ),
        (
            {"PGQUE_DSN": "dbname=x", "OTEL_EXPORTER_OTLP_TIMEOUT": "10s"},
            "OTEL_EXPORTER_OTLP_TIMEOUT: '10s' is not",
        ),
        (
            {"PGQUE_DSN": "dbname=x", "OTEL_EXPORTER_OTLP_HEADERS": "a"},
            "OTEL_EXPORTER_OTLP_HEADERS: headers can't",
        ),
        (
            {
                "PGQUE_DSN": "dbname=x",
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "udp",
            },
            "OTEL_EXPORTER_OTLP_PROTOCOL: protocol must be",
        ),
        (
            {
                "PGQUE_DSN": "dbname=x",
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c",
                "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "sometimes",
            },
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE: temporality must be",
        ),
    ],
)
def test_a_bad_variable_is_named(variables: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_environment(variables)
    assert str(caught.value).startswith(message)
