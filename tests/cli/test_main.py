"""Commands, help and exit codes (DEP-01, DEP-02, DEP-04, PROC-03, PROC-04)."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from rollout_operator import __version__
from rollout_operator.aio.tasks import TaskDied
from rollout_operator.cli.main import COMMANDS, Command, main
from rollout_operator.cli.run import render_usage
from rollout_operator.config.checks import render_flag_table
from rollout_operator.config.flags import FLAGS, Config
from rollout_operator.config.grammar import BOOL
from rollout_operator.model.names import ConfigError, DecodeError, Unreachable
from tests.world.pki import make_pki

Captured = pytest.CaptureFixture[str]

NO_NAMESPACE: Final = "rollout-operator: -kubernetes.namespace has not been specified\n"


def test_without_a_word_the_operator_is_run(capsys: Captured) -> None:
    """DEP-01, DEP-04."""
    assert main([]) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", NO_NAMESPACE)


def test_the_words_of_the_process_count(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(sys, "argv", ["rollout-operator", "version"])

    assert main() == 0
    assert capsys.readouterr().out == f"rollout-operator {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_bad_command_line_is_one_line_that_says_where_help_is(
    command: Command, capsys: Captured
) -> None:
    """PROC-04, DEP-02: it begins as Go's does."""
    assert main([command.name, "-zzzzzz=1"]) == 2

    assert capsys.readouterr().err == (
        f"rollout-operator: flag provided but not defined: -zzzzzz. See {command.help_words}\n"
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_its_help_and_a_row_in_the_help(
    command: Command, capsys: Captured
) -> None:
    assert main([*command.help_words.split()[1:]]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("Usage: rollout-operator")
    assert f"\n  {command.name} " in render_usage()


def run_python(*words: str, **how: Any) -> subprocess.CompletedProcess[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 60, **how}
    return subprocess.run([sys.executable, *words], text=True, check=False, **streams)


@pytest.mark.parametrize(
    ("stream", "words", "code"),
    [
        ("stderr", "-zzzzzz", 2),
        ("stdout", "help", 141),
        ("stdout", "version -help", 141),
        ("stdout", "version", 141),
    ],
)
def test_what_nothing_reads_ends_without_a_traceback(stream: str, words: str, code: int) -> None:
    """PROC-03: such as `rollout-operator help | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    # Else nothing would be left to write at the end.
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}
    command = ("-m", "rollout_operator", *words.split())
    ended = run_python(*command, env=buffered, **{stream: writer})
    os.close(writer)
    assert (ended.returncode, ended.stderr or "") == (code, "")


def test_output_for_which_there_is_no_room_is_an_error_of_one_line() -> None:
    with open("/dev/full", "w") as full:
        ended = run_python("-m", "rollout_operator", "version", stdout=full)
    assert ended.returncode == 1
    assert ended.stderr == "rollout-operator: cannot write the output: No space left on device\n"


def test_a_failure_to_start_is_one_line_and_1() -> None:
    """PROC-03, through the whole program: there is no such kubeconfig."""
    api = ("-kubernetes.api-url=https://127.0.0.1:1", "-kubernetes.config-file=no-such-file")
    words = ("-kubernetes.namespace=prod", *api, "-server.port=0")
    ended = run_python("-m", "rollout_operator", *words)

    assert ended.returncode == 1
    [plain] = [line for line in ended.stderr.splitlines() if not line.startswith("level=")]
    assert plain.startswith("rollout-operator: ")
    assert "no-such-file" in plain


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("end", "code", "line"),
    [
        (0, 0, ""),
        (KeyboardInterrupt(), 130, ""),
        (ConfigError("-server.port: taken"), 1, "-server.port: taken"),
        (Unreachable("no answer"), 1, "no answer"),
        (caused(Unreachable("no answer"), OSError("refused")), 1, "no answer: OSError: refused"),
        (caused(Unreachable("no answer: it"), OSError("it")), 1, "no answer: it"),
        (caused(DecodeError("Pod x: spec: absent"), ValueError("spec")), 1, "Pod x: spec: absent"),
        (caused(TaskDied("pods"), KeyError("x")), 1, "pods has ended: KeyError: 'x'"),
    ],
    ids=repr,
)
def test_what_ends_the_operator_is_said_on_one_line(
    end: int | BaseException, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    """PROC-03, PROC-05, DEP-04: 0 after a clean stop; a part that dies has its traceback logged."""

    def run(config: Config) -> int:
        if isinstance(end, int):
            return end
        raise end

    monkeypatch.setattr("rollout_operator.cli.run.import_operator", lambda: run)
    assert main(["-kubernetes.namespace=prod"]) == code

    *records, said = capfd.readouterr().err.splitlines() or [""]
    assert said == (line and f"rollout-operator: {line}")
    assert len(records) == isinstance(end, TaskDied)
    for record in records:
        assert 'msg="A part of the operator died"' in record
        assert "KeyError: 'x'" in record
        assert "Traceback" in record


def test_help_loads_nothing_of_the_operator() -> None:
    """Help, version and refusals are quick: no server, no client, no event loop."""
    script = (
        "import sys; from rollout_operator.cli.main import main; main(['-h']);"
        "print([name for name in ('asyncio', 'aiohttp', 'prometheus_client', 're2')"
        " if name in sys.modules])"
    )
    assert run_python("-c", script).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("is_full", [False, True])
def test_the_usage_fits_a_terminal(is_full: bool) -> None:
    lines = render_usage(is_full=is_full).splitlines()

    assert max(map(len, lines)) <= 100
    assert all(line == line.rstrip() for line in lines)
    assert lines[0] == "Usage: rollout-operator [flags]"


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_the_usage_shows_every_flag_with_type_and_default(flag: object) -> None:
    known = next(each for each in FLAGS if each is flag)
    default = known.kind.show(known.default)
    word = "" if known.kind is BOOL else f" {known.kind.word}"

    usage = render_usage(is_full=True)
    _, _, after = usage.partition(f"\n  -{known.name}{word}\n")
    entry = " ".join(after.partition("\n  -")[0].split("\n\n")[0].split())
    assert entry.startswith(known.help)
    assert entry.endswith(f"(default {default})") == bool(default)


def test_usage_and_table_speak_of_the_same_flags() -> None:
    rows = render_flag_table().splitlines()[2:]

    assert list_shown(render_usage(is_full=True)) == {row.split("`")[1] for row in rows}
    assert list_shown(render_usage()) == {
        row.split("`")[1] for row in rows if "-help-all" not in row
    }


def test_help_leaves_flags_for_compatibility_and_without_effect_to_help_all() -> None:
    usage, full = render_usage(), render_usage(is_full=True)

    assert list_shown(full) - list_shown(usage) == {
        "-releases.compat",
        "-releases.order",
        "-server.cluster-validation.http.enabled",
        "-server.cluster-validation.http.soft-validation",
        "-server.cluster-validation.http.excluded-paths",
        "-server.cluster-validation.http.excluded-user-agents",
        "-zpdb.pod-ready-annotation-patch-timeout",
    }
    assert usage.splitlines()[-1].startswith("-help-all ")
    assert "-help-all" not in full
    # No heading is left over a section without flags.
    assert re.search(r":\n\n", usage.partition("several counts.")[2]) is None


def list_shown(usage: str) -> set[str]:
    return {line.split()[0] for line in usage.splitlines() if line.startswith("  -")}


def test_the_usage_names_signals_and_exit_codes() -> None:
    usage = render_usage()

    assert "SIGTERM" in usage
    assert "\n  uninstall-webhooks " not in usage
    assert "Exit codes:\n  0 after a clean stop, 1 " in usage


_PROBE: Final = """
import gc, json
from rollout_operator.cli.run import import_operator
before = sum(one["collections"] for one in gc.get_stats())
run = import_operator()
after = sum(one["collections"] for one in gc.get_stats())
print(json.dumps([after - before, gc.isenabled(), gc.get_freeze_count(), run.__module__]))
"""


def test_d51_no_garbage_is_collected_while_the_operator_is_imported() -> None:
    """Nor later what was imported; what comes to be after that is looked through as ever."""
    done = run_python("-c", _PROBE)
    collections, is_enabled, frozen, module = json.loads(done.stdout)
    assert collections == 0
    assert is_enabled
    assert frozen > 50_000
    assert module == "rollout_operator.operator.main"


_LOADED: Final = """
import os, re
from pathlib import Path
before = dict(os.environ)
from rollout_operator.cli.run import import_operator
import_operator()
import ssl, rollout_operator.operator.webhooks
print(os.environ == before)
print(bool(re.findall("cryptography|cffi|stdc\\+\\+", Path("/proc/self/maps").read_text())))
print(ssl.create_default_context().cert_store_stats()["x509_ca"])
"""


@pytest.mark.parametrize("given", [{}, {"SSL_CERT_DIR": "/nowhere"}, {"SSL_CERT_FILE": "CA"}])
def test_d51_libraries_are_imported_lean_and_the_environment_is_left_as_it_was(
    given: dict[str, str], tmp_path: Path
) -> None:
    """The CAs of the system are there for who asks for them later."""
    pki = make_pki(tmp_path)
    environment = {name: os.environ[name] for name in os.environ if "SSL" not in name}
    environment |= {name: value.replace("CA", f"{pki.ca}") for name, value in given.items()}
    is_same, has_more, authorities = run_python("-c", _LOADED, env=environment).stdout.split()
    assert (is_same, has_more) == ("True", "False")
    assert authorities == "1" or "SSL_CERT_FILE" not in given
