"""python -m kvdemo watch: somebody's script in this process, observed; compared, in processes of its own.

Standard output is the script's alone; what is said about it goes to standard error, also of a comparison, whose first run is
the one that is heard. With --json - it is the other way round: the document has standard output to itself, up to the end of
the process, and what the script writes goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, NoReturn

from kvdemo.cli import program
from kvdemo.errors import InvalidRequest, KvdemoError

if TYPE_CHECKING:
    from kvdemo.questions.application.spec import ApplicationResult
    from kvdemo.watching.elsewhere import Elsewhere
    from kvdemo.watching.script import Program

__all__ = ["main", "parsed"]

ABOUT = """Run your script unchanged and say what its generate calls do: which cache is used and who decided, what every forward
computed and read, times, memory, and how much of the script is generation. It sees model.generate, generate_batch and continuous
batching, pipelines, and loops of your own over model(...)."""
MORE = """examples:
  kvdemo watch summarise.py --input text.txt
  kvdemo watch --expect cached -m my_package.answer
  kvdemo watch --compare none,as-is --rounds 6 --report report.html summarise.py
  kvdemo watch --compare as-is --compare python=../old/bin/python summarise.py

Your script's output, arguments, exit status and exceptions pass through. What is said about it goes to standard error.
With --json - the document is all of standard output, and what your script writes there goes to standard error."""
REPORTS = (".html", ".htm", ".md")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidRequest("watch", f"{message}. kvdemo watch --help says more.")


def _parser() -> _Parser:
    parser = _Parser(
        prog=f"{program()} watch",
        usage=f"{program()} watch [switches] SCRIPT [ARGS...]\n       {program()} watch [switches] -m MODULE [ARGS...]",
        description=ABOUT,
        epilog=MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("-m", dest="module", metavar="MODULE", help="a module, as python -m runs it, and its arguments")
    parser.add_argument("--expect", metavar="cached|uncached", help="exit 1 when it is not so")
    parser.add_argument("--json", metavar="FILE", help='write the result as JSON; "-" for standard output')
    parser.add_argument("--report", metavar="FILE.html|FILE.md", help="write a report for others")
    parser.add_argument("--csv", metavar="FILE.csv", help="write one row per call")
    parser.add_argument(
        "--compare",
        metavar="WAY,WAY",
        action="append",
        default=[],
        help="run it again and again: as-is, none (the cache off), another key of the strategies table, "
        "python=OTHER/bin/python; the first is the baseline. Its standard input is empty then",
    )
    parser.add_argument("--rounds", metavar="N", default=None, help="of a comparison; default: 6")
    return parser


def parsed(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our own switches, and the program with its arguments: what stands behind the program's name belongs to it."""
    parser = _parser()
    takes = {name: action.nargs != 0 for action in parser._actions for name in action.option_strings}
    at = 0
    while at < len(arguments):
        name, has_value, _ = arguments[at].partition("=")
        if arguments[at] == "-m":
            return parser.parse_args([*arguments[: at + 2]]), list(arguments[at + 2 :])
        if not name.startswith("-") or arguments[at] in ("-", "--"):
            break
        at += 1 if has_value or not takes.get(name, False) else 2
    own, rest = arguments[:at], list(arguments[at:])
    return parser.parse_args(list(own)), rest[1:] if rest[:1] == ["--"] else rest


def main(arguments: Sequence[str]) -> int:
    """Run the command; its exit status: the script's own where that is not 0, else 1 where an expectation is not met."""
    try:
        return _watch(*parsed(arguments))
    except InvalidRequest as error:
        print(f"kvdemo: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KvdemoError as error:
        print(f"kvdemo: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except SystemExit as leaving:  # --help
        return int(leaving.code or 0)
    except KeyboardInterrupt:
        print("kvdemo: stopped", file=sys.stderr)
        return 130


def _watch(given: argparse.Namespace, rest: list[str]) -> int:
    from kvdemo.watching.script import Program

    target = given.module if given.module is not None else rest.pop(0) if rest else ""
    watched = Program(target, rest, module=given.module is not None)
    problem = watched.problem() if target else "name the script to run, or -m and a module"
    if problem is not None:
        raise InvalidRequest("script", problem)
    if given.expect not in (None, "cached", "uncached"):
        raise InvalidRequest("expect", f"{given.expect!r} is not one of cached, uncached")
    if given.json or given.report or given.csv:
        from kvdemo.cli.files import ANY_ENDING, check_targets

        targets = {"json": (given.json, ANY_ENDING), "csv": (given.csv, (".csv",)), "report": (given.report, REPORTS)}
        check_targets(targets, {} if watched.module else {"script": target})
    return _compared(given, watched) if given.compare else _once(given, watched)


def _once(given: argparse.Namespace, watched: Program) -> int:
    """In this process, once."""
    from kvdemo.watching.elsewhere import leave_as, observed
    from kvdemo.watching.words import lines_of

    if given.rounds is not None:
        raise InvalidRequest("rounds", "belongs to --compare")
    with _own_stdout(given.json == "-"):
        seen = observed(watched)
    _say("\n".join(lines_of(seen)))
    status = seen.script.exit_code or 0
    if given.json or given.report or given.csv:
        from kvdemo.questions.application.run import result_of
        from kvdemo.questions.application.spec import ApplicationSpec

        written = _write(given, result_of(ApplicationSpec(watched.name, watched.module), seen))
        status = status or (0 if written else 1)
    if given.json == "-":  # what the script does at the very end is not to stand behind the document
        os.dup2(2, 1)
    return leave_as(status or _expected(given.expect, seen.cached))


def _compared(given: argparse.Namespace, watched: Program) -> int:
    """In processes, in rounds."""
    from kvdemo.cli.ask import verdict_line
    from kvdemo.cli.session import last
    from kvdemo.experiments.pieces import plain
    from kvdemo.questions.application import words
    from kvdemo.questions.application.run import compare_program
    from kvdemo.questions.application.spec import ApplicationSpec
    from kvdemo.questions.application.tables import application_table
    from kvdemo.questions.table import QUESTIONS
    from kvdemo.watching.words import lines_of

    arms = tuple(arm for part in given.compare for arm in _split(part))
    if len(arms) == 1:
        arms = (
            ("none", arms[0]) if arms[0] == "as-is" else (arms[0], "as-is") if arms[0] == "none" else ("as-is", arms[0])
        )
    ways, labels = _ways(arms, watched)
    spec = ApplicationSpec(watched.name, watched.module, tuple(ways), _whole(given.rounds))
    steps = compare_program(
        spec,
        lambda arm, first: _run(ways[arm], labels[arm], heard=first, quiet=given.json == "-"),
        labels,
        clock=time.monotonic,
    )
    result: ApplicationResult = last(steps)
    _say("\n".join(lines_of(result.watched)))
    _say(f"{plain(words.headline(result))}\n{words.scope(result)}\n")
    _print_table(application_table(result))
    _say(verdict_line(result, None, None, QUESTIONS))
    written = _write(given, result)
    if result.stopped_because == "stopped":
        return 130
    failed = any(run.status == "failed" for run in result.runs)
    return int(failed or not written) or _expected(given.expect, result.watched.cached)


def _run(way: Elsewhere, label: str, *, heard: bool, quiet: bool) -> tuple[Any, str]:
    """One process of a comparison. heard: it is the one whose output is passed on; of others a failure's last words are."""
    with _own_stdout(quiet):
        left, last_words = way.run(loud=heard)
    if last_words and not heard:
        _say(f"{label} failed. The last that it said:\n{last_words}")
    return left, last_words


def _say(words: str) -> None:
    """Apart from what the script has written."""
    print(f"\n{words}", file=sys.stderr)


def _split(part: str) -> list[str]:
    """Keys stand between commas; the path of another Python may hold one."""
    return [part] if part.startswith("python=") else [key.strip() for key in part.split(",")]


def _ways(arms: Sequence[str], watched: Program) -> tuple[dict[str, Any], dict[str, str]]:
    """How each arm is run, and what it is called; InvalidRequest for one that cannot be."""
    from kvdemo.watching.elsewhere import Elsewhere, why_not
    from kvdemo.watching.override import label_of

    ways: dict[str, Any] = {}
    labels: dict[str, str] = {}
    for arm in arms:
        if arm.startswith("python="):
            python = arm.removeprefix("python=")
            problem = why_not(python) if python else "name an interpreter: python=OTHER/bin/python"
            if problem is not None:
                raise InvalidRequest("compare", problem)
            # Where an environment lies stays on this machine.
            key = f"python={len([name for name in ways if name.startswith('python=')]) + 1}"
            ways[key], labels[key] = (
                Elsewhere(watched, python),
                f"the other environment{'' if key[-1] == '1' else f' ({key[-1]})'}",
            )
        elif arm == "as-is":
            ways[arm], labels[arm] = Elsewhere(watched), "as it is"
        else:
            labels[arm] = label_of(arm)
            ways[arm] = Elsewhere(watched, cache=arm)
    if len(ways) < len(arms):
        raise InvalidRequest("compare", "each may be chosen once")
    return ways, labels


def _whole(rounds: str | None) -> Any:
    try:
        return 6 if rounds is None else int(rounds)
    except ValueError as error:
        raise InvalidRequest("rounds", "must be a whole number") from error


def _expected(expect: str | None, cached: bool | None) -> int:
    if expect is None or cached is (expect == "cached"):
        return 0
    print(f"kvdemo: expected {expect}, and it is not so", file=sys.stderr)
    return 1


def _write(given: argparse.Namespace, result: ApplicationResult) -> bool:
    from kvdemo.cli.files import write_all
    from kvdemo.questions.documents import any_document

    def page() -> str:
        from kvdemo.report.report import report_html, report_markdown

        return (report_markdown if given.report.lower().endswith(".md") else report_html)(result)

    def rows() -> str:
        from kvdemo.report.spreadsheet import csv_file

        return csv_file(result)

    contents: Mapping[str, Any] = {
        "json": (given.json, lambda: any_document(result)),
        "csv": (given.csv, rows),
        "report": (given.report, page),
    }
    return write_all(contents)


def _print_table(table: Any) -> None:
    from kvdemo.cli.table import print_table

    with redirect_stdout(sys.stderr):
        print_table([table.names, *table.rows])


@contextmanager
def _own_stdout(taken: bool) -> Iterator[None]:
    """taken: inside, whatever this process and its children write to standard output goes to standard error."""
    if not taken:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
