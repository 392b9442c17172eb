"""GGUF files: damage is seen at once; the conversion happens once, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvdemo.errors import ModelUnavailable
from kvdemo.models.conversion import convert, converted_folder
from kvdemo.models.gguf import check_gguf, read_header
from tests.model_files import write_folder, write_tiny_gguf

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch") / "damaged.gguf"


def unpack(_gguf: Path, folder: Path, _progress: Callable[[str], None]) -> None:
    """A stand-in that writes what a complete folder needs."""
    folder.rmdir()
    write_folder(folder)


def silent(_words: str) -> None:
    pass


def test_the_header_tells_the_size_of_file_and_weights(gguf: Path) -> None:
    header = read_header(gguf)
    assert header.architecture == "llama"
    assert header.expected_bytes == gguf.stat().st_size
    assert header.has_tokenizer
    embeddings = 2 * 259 * 64
    layer = 64 * (64 + 32 + 32 + 64) + 3 * 64 * 128 + 2 * 64
    assert header.num_elements == embeddings + 4 * layer + 64


def test_a_file_cut_anywhere_is_refused_in_one_line(gguf: Path, scratch: Path) -> None:
    whole = gguf.read_bytes()
    for length in [*range(0, 2000, 37), *range(2000, len(whole), 4999), len(whole) - 1]:
        scratch.write_bytes(whole[:length])
        with pytest.raises(ModelUnavailable, match=r"^x is (cut short|too short).*download it again\.$"):
            check_gguf(scratch, "x")


def test_other_content_is_refused(scratch: Path) -> None:
    scratch.write_bytes(b"<html>the page said no</html>" * 10)
    with pytest.raises(ModelUnavailable, match="not a GGUF file"):
        check_gguf(scratch, "x")


@given(position=st.integers(0, 12_000), damage=st.binary(min_size=1, max_size=12))
def test_a_damaged_header_never_raises_anything_else(gguf: Path, scratch: Path, position: int, damage: bytes) -> None:
    whole = bytearray(gguf.read_bytes())
    whole[position : position + len(damage)] = damage
    scratch.write_bytes(whole)
    with contextlib.suppress(ModelUnavailable):
        check_gguf(scratch, "x")


def test_a_converted_file_is_not_converted_again(gguf: Path, tmp_path: Path) -> None:
    first = convert(gguf, tmp_path, unpack=unpack, progress=silent)
    assert converted_folder(gguf, tmp_path) == first

    def never(*_: Any) -> None:
        raise AssertionError

    assert convert(gguf, tmp_path, unpack=never, progress=silent) == first


def test_a_changed_file_is_converted_anew(gguf: Path, tmp_path: Path) -> None:
    copy = tmp_path / "tiny.gguf"
    copy.write_bytes(gguf.read_bytes())
    first = convert(copy, tmp_path, unpack=unpack, progress=silent)
    replace_content(copy)
    assert converted_folder(copy, tmp_path) is None
    assert convert(copy, tmp_path, unpack=unpack, progress=silent) != first


def replace_content(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def test_of_a_file_that_is_replaced_the_newest_conversion_is_kept_and_nobody_elses_is_touched(
    gguf: Path, tmp_path: Path
) -> None:
    mine, other = tmp_path / "mine" / "tiny.gguf", tmp_path / "other" / "tiny.gguf"
    for file in (mine, other):
        file.parent.mkdir()
        file.write_bytes(gguf.read_bytes())
    replace_content(other)
    first = convert(mine, tmp_path, unpack=unpack, progress=silent)
    (first / "made_from.json").unlink()  # as earlier versions left it
    assert convert(mine, tmp_path, unpack=unpack, progress=silent) == first
    others = convert(other, tmp_path, unpack=unpack, progress=silent)
    content = bytearray(mine.read_bytes())
    content[-2] ^= 1
    mine.write_bytes(content)
    second = convert(mine, tmp_path, unpack=unpack, progress=silent)
    left = {path.name for path in (tmp_path / "converted").iterdir()}
    assert left == {name for folder in (others, second) for name in (folder.name, f"{folder.name}.lock")}
    assert converted_folder(other, tmp_path) == others


def test_a_damaged_conversion_is_made_again(gguf: Path, tmp_path: Path) -> None:
    folder = convert(gguf, tmp_path, unpack=unpack, progress=silent)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-3])
    assert converted_folder(gguf, tmp_path) is None
    assert convert(gguf, tmp_path, unpack=unpack, progress=silent) == folder
    assert converted_folder(gguf, tmp_path) == folder


def test_a_failed_conversion_leaves_nothing_behind(gguf: Path, tmp_path: Path) -> None:
    def fail(_gguf: Path, folder: Path, _progress: Callable[[str], None]) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        convert(gguf, tmp_path, unpack=fail, progress=silent)
    assert [path.suffix for path in (tmp_path / "converted").iterdir()] == [".lock"]


def test_a_full_disk_is_one_line_that_names_the_size(gguf: Path, tmp_path: Path) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(ModelUnavailable, match=r"No space left on device.*GB.*KVDEMO_HOME"):
        convert(gguf, tmp_path, unpack=full, progress=silent)


def test_a_home_that_cannot_be_written_is_one_line(gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelUnavailable, match="KVDEMO_HOME"):
        convert(gguf, tmp_path / "file", unpack=unpack, progress=silent)


CHILD = """
    import os, sys
    from pathlib import Path
    from kvdemo.models.conversion import convert
    from tests.unit.test_gguf import unpack

    def slow(gguf, folder, progress):
        unpack(gguf, folder, progress)
        say("unpacking")
        sys.stdin.readline()

    def say(words):
        print(words, flush=True)

    print(convert(Path(sys.argv[1]), Path(sys.argv[2]), unpack=slow, progress=say))
"""


def child(gguf: Path, home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(gguf), str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_killed_in_the_middle_it_starts_again_cleanly(gguf: Path, tmp_path: Path) -> None:
    with child(gguf, tmp_path) as process:
        assert read_line(process) == "unpacking"
        process.send_signal(signal.SIGKILL)
    (left_over,) = (tmp_path / "converted").glob("*.partial-*")
    assert (left_over / "model.safetensors").exists()
    assert converted_folder(gguf, tmp_path) is None

    folder = convert(gguf, tmp_path, unpack=unpack, progress=silent)

    assert converted_folder(gguf, tmp_path) == folder
    assert not left_over.exists()


def test_of_two_processes_one_works_and_both_get_the_folder(gguf: Path, tmp_path: Path) -> None:
    with child(gguf, tmp_path) as first:
        assert read_line(first) == "unpacking"
        with child(gguf, tmp_path) as second:
            assert read_line(second) == "waiting for another process that is unpacking this model"
            first_rest, _ = first.communicate("go on\n")
            second_rest, _ = second.communicate("go on\n")
    folder = converted_folder(gguf, tmp_path)
    assert folder is not None
    assert first_rest.splitlines() == second_rest.splitlines() == [str(folder)]
    assert sorted(os.listdir(tmp_path / "converted")) == [folder.name, f"{folder.name}.lock"]
