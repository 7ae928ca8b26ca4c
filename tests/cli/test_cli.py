"""The command line as a person meets it: exit codes, one clear line, no secrets."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pgque_exporter import __version__
from tests.cli.conftest import Run
from tests.exporter.harness import ToyPack, get, silent_server
from tests.support.database import Database, wait_until


def test_version_and_help(run: Run) -> None:
    assert run("--version") == (0, f"pgque-exporter {__version__}\n", "")
    code, out, _ = run("--help")
    assert code == 0
    for command in ("run", "check", "status", "ticker", "sql", "demo"):
        assert command in out
    assert run()[0] == 2
    assert run("nonsense")[0] == 2
    assert run("check", "--nonsense")[0] == 2


def test_a_command_loads_nothing_of_the_others() -> None:
    code = (
        "import sys; from pgque_exporter import cli, command_line as c; c.parser_of(cli.PROGRAM, ['check']); "
        "print('uvicorn' in sys.modules, 'grpc' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False False\n"


def test_check_reports_what_it_found(run: Run, database: Database) -> None:
    toy = ToyPack(database.connect())
    toy.add("pgque.queue.depth", 1, queue="q")
    toy.add("no.such.metric", 1, queue="q")
    toy.add_health("q", "lag", "critical", "three hours behind")
    code, out, err = run("check", "--dsn", database.dsn())
    assert (code, err) == (0, "")
    assert out.startswith(f"{database.name}: ok (")
    assert "pack     toy 7.1, pack 0.2 in schema toy_observability: 10 series" in out
    assert "metric   pgque.queue.depth: 1" in out
    assert "dropped  1 rows: unknown_metric" in out
    assert "critical q lag: three hours behind" in out
    code, out, _ = run("check", "--json", "--dsn", database.dsn())
    report = json.loads(out)
    assert (code, report["ok"]) == (0, True)
    [one] = report["targets"]
    assert one["packs"][0]["engine"] == "toy"
    assert one["metrics"]["pgque.queue.depth"] == 1
    assert one["dropped"]["unknown_metric"] == 1


def test_each_trouble_has_one_clear_line(
    run: Run, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = database.cluster
    monitor = f"m_{database.name}"
    connection = database.connect()
    connection.execute(f"create role {monitor} login")
    connection.execute("create table public.pad ()")
    with socket.create_server(("127.0.0.1", 0)) as server:
        free_port = server.getsockname()[1]
    cases = [
        (f"host=127.0.0.1 port={free_port} dbname=x user=x", "connection: ", "Check host and port"),
        ("host=no-such-host.invalid dbname=x user=x", "connection: ", "Check host and port"),
        (
            cluster.dsn(dbname="no_such_database"),
            'database "no_such_database" does not exist',
            "Check dbname",
        ),
        (cluster.dsn(user="no_such_user"), 'role "no_such_user" does not exist', "Check the user"),
        (database.dsn(), "contract: no pack is installed", "Run `pgque-exporter sql install`"),
    ]
    for dsn, message, remedy in cases:
        code, out, err = run("check", "--dsn", dsn)
        assert (code, err) == (1, "")
        [line] = [line for line in out.splitlines() if "error" in line]
        assert message in line
        assert remedy.lower() in line.lower()
    ToyPack(connection)
    connection.execute("revoke all on all functions in schema toy_observability from public")
    code, out, _ = run("check", "--dsn", database.dsn(user=monitor))
    assert code == 1
    assert f"permission: the user {monitor} may not call the functions of pack 'toy_observability'" in out
    assert f"grant pgque_monitor to {monitor}" in out
    connection.execute(f"drop role {monitor}")
    monkeypatch.setenv("PGQUE_TIMEOUT", "300ms")
    with silent_server() as port:
        code, out, _ = run("check", "--dsn", f"host=127.0.0.1 port={port} dbname=x user=x")
    assert code == 1
    assert "timeout: no answer within 0.3 s" in out


def test_bad_configuration_is_exit_code_2_and_one_line(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("targets:\n  - dsn: dbname=x\nintervall: 5s\n")
    for command in ("run", "check"):
        code, out, err = run(command, "--config", str(path))
        assert (code, out) == (2, "")
        line = f"{path}:3: unknown key 'intervall'. Did you mean interval?"
        assert err == f"pgque-exporter: error: {line}\n"
        assert run(command)[0] == 2
        assert run(command, "--config", "x", "--dsn", "y")[0] == 2


def test_a_wrong_web_configuration_ends_run_and_check(run: Run, tmp_path: Path) -> None:
    web = tmp_path / "web.yaml"
    web.write_text("basic_auth_users:\n  a: hunter2\n")
    path = tmp_path / "exporter.yaml"
    path.write_text(f"web_config: {web}\nlisten: 127.0.0.1:0\ntargets:\n  - dsn: host=127.0.0.1 port=1\n")
    wrong = f"pgque-exporter: error: {web}:2: the password of 'a' is no bcrypt hash. "
    for words in (["run"], ["check"]):
        code, out, err = run(*words, "--config", str(path))
        assert (code, out) == (2, "")
        assert err.startswith(wrong)
        assert "hunter2" not in err
    path.write_text("listen: 127.0.0.1:0\ntargets:\n  - dsn: host=127.0.0.1 port=1\n")
    code, _, err = run("run", "--config", str(path), "--web-config", str(web))
    assert code == 2
    assert err.startswith(wrong)


def test_a_misspelt_variable_is_a_warning(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGQUE_INTERVALL", "5s")
    _, out, err = run("check", "--json", "--dsn", "host=127.0.0.1 port=1 dbname=x user=x")
    warning = "unknown variable PGQUE_INTERVALL. Did you mean PGQUE_INTERVAL?"
    assert err == f"pgque-exporter: warning: {warning}\n"
    assert json.loads(out)["ok"] is False


HIDDEN = "hunter2"
LEAKY = [
    f"postgresql://u:{HIDDEN}@127.0.0.1:1/d",
    f"postgresql://u:{HIDDEN}%zz@127.0.0.1:1/d",
    f"postgresql://u:x@{HIDDEN}@127.0.0.1:1/d",
    f"postgresql://u:x/{HIDDEN}@127.0.0.1:1/d",
    f"postgresql://u:{HIDDEN}/x@127.0.0.1:1/d",
    f"postgresql://u:{HIDDEN}#x@127.0.0.1:1/d",
    f"postgresql://u:x:{HIDDEN}@127.0.0.1:1/d",
    f"postgresql://127.0.0.1:1/d?user=u&password={HIDDEN}",
    f"postgresql://127.0.0.1:1/d?user=u&pasword={HIDDEN}",
    f"host=127.0.0.1 port=1 dbname=d user=u password={HIDDEN}",
    f"host=127.0.0.1 port=1 dbname=d user=u password='{HIDDEN}",
    f"host=127.0.0.1 port=1 dbname=d user=u password=x {HIDDEN}",
    f"host=127.0.0.1 port=1 dbname=d user=u password='x \\'{HIDDEN}'",
    f"host=127.0.0.1 port=1 dbname=d user=u password {HIDDEN}",
    f"host=127.0.0.1 port=1 dbname=d user=u pass={HIDDEN}",
]


@pytest.mark.parametrize("dsn", LEAKY)
@pytest.mark.parametrize("options", [(), ("--json",), ("--debug",)])
def test_check_never_shows_a_password(run: Run, dsn: str, options: tuple[str, ...]) -> None:
    code, out, err = run("check", *options, "--dsn", dsn)
    assert code in (1, 2)
    assert HIDDEN not in out + err
    assert out or err


SERVICE = [sys.executable, "-m", "pgque_exporter", "run"]


def start(folder: Path, text: str, *options: str) -> tuple[subprocess.Popen[str], Path]:
    path = folder / "exporter.yaml"
    path.write_text(text)
    log = folder / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [*SERVICE, "--config", str(path), *options], stderr=file, stdout=file, text=True
        )
    return process, log


def url_in(log: Path) -> str:
    wait_until(lambda: "listening on " in log.read_text(), what="the service listens")
    return log.read_text().partition("listening on ")[2].partition(",")[0]


def test_run_never_logs_a_password(tmp_path: Path) -> None:
    targets = "".join(
        f"  - {{name: t{number}, dsn: {json.dumps(dsn)}}}\n"
        for number, dsn in enumerate(LEAKY)
        if number in (0, 6, 7, 9, 12)  # the others are refused before the service starts
    )
    process, log = start(tmp_path, f"listen: 127.0.0.1:0\ntargets:\n{targets}", "--debug")
    try:
        url = url_in(log)
        wait_until(lambda: get(f"{url}/readyz").status == 200, what="all polled")
        pages = "".join(get(url + path).text for path in ("/", "/metrics", "/healthz", "/api/v1/status"))
    finally:
        process.terminate()
        process.wait(10)
    assert HIDDEN not in pages
    assert HIDDEN not in log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_sigterm_with_a_silent_database_and_a_silent_collector(tmp_path: Path, protocol: str) -> None:
    with silent_server() as database, silent_server() as collector:
        text = (
            f"listen: 127.0.0.1:0\ntimeout: 10s\ntargets:\n"
            f"  - dsn: host=127.0.0.1 port={database} dbname=x user=x\n"
            f"otlp: {{endpoint: 'http://127.0.0.1:{collector}', protocol: {protocol}, timeout: 60s}}\n"
        )
        process, log = start(tmp_path, text)
        url = url_in(log)
        client = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
        with client:
            client.sendall(b"GET /metrics HTTP/1.1\r\n")  # half a request
            time.sleep(0.5)
            started = time.monotonic()
            process.terminate()
            assert process.wait(15) == 0
        assert time.monotonic() - started < 5
        assert "Traceback" not in log.read_text()


def test_ctrl_c_ends_with_130_and_without_a_traceback(tmp_path: Path) -> None:
    process, log = start(
        tmp_path, "listen: 127.0.0.1:0\ntargets:\n  - dsn: host=127.0.0.1 port=1 dbname=x user=x\n"
    )
    url_in(log)
    process.send_signal(signal.SIGINT)
    assert process.wait(15) == 130
    assert "Traceback" not in log.read_text()


def test_a_busy_port_is_one_line_with_a_remedy(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        path = tmp_path / "exporter.yaml"
        path.write_text(f"listen: 127.0.0.1:{port}\ntargets:\n  - dsn: dbname=x\n")
        result = subprocess.run([*SERVICE, "--config", str(path)], capture_output=True, text=True, timeout=30)
    assert result.returncode == 2
    assert result.stderr == (
        f"pgque-exporter: error: listen: 127.0.0.1:{port} is in use by another program. "
        "Stop it, or choose another address with `listen` or PGQUE_LISTEN\n"
    )
