"""The sdist and the wheel, built and installed as a user would, without network.

The wheel goes into an empty virtual environment. What it depends on is taken from the environment that runs the tests:
exactly the distributions that its own metadata asks for, and theirs, so a dependency that is used but not declared is
missed here. What this does not show: that an index serves those releases, or that other releases work too.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.program import run

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("controlplane", "ext_proc", "headrace", "node_agent", "planner", "xds_server")

# What needs an extra.
OF_EXTRAS = {
    "demo": ("headrace.demo",),
    "planner": (
        "headrace.plan_table",
        "headrace.planning",
        "headrace.simulating",
        "headrace.simulation_table",
        "headrace.workloads",
        "planner.hardware",
        "planner.plan",
        "planner.simulation",
        "planner.sizing",
        "planner.workload",
    ),
}
IMPORT_ALL = """
import importlib, pkgutil, sys
left_out = ("headrace.__main__", *filter(None, sys.argv.pop(1).split(",")))
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    assert package.__file__.startswith(sys.prefix), package.__file__
    for found in pkgutil.walk_packages(package.__path__, name + "."):
        if not found.name.startswith(left_out):
            importlib.import_module(found.name)
"""


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11 has it from 3.11.4
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(source)
    (unpacked,) = source.iterdir()
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, unpacked, cwd=out)
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module", params=["base", "demo", "planner"])
def installed(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """Which extra, and the interpreter of a virtual environment with the wheel and what it depends on."""
    extra = str(request.param)
    home = tmp_path_factory.mktemp(extra)
    venv.EnvBuilder(symlinks=True).create(home / "venv")
    python = home / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=home)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
    (own,) = metadata.distributions(name="headrace", path=[str(site)])
    for distribution in closure(own, extra):
        link_into(site, distribution)
    return extra, python


def closure(distribution: metadata.Distribution, extra: str) -> Iterator[metadata.Distribution]:
    """What the distribution requires with this extra, in this environment, and what that requires in turn."""
    seen: set[tuple[str, str]] = set()
    waiting = [(distribution, extra)]
    while waiting:
        current, chosen = waiting.pop()
        for requirement in map(Requirement, current.requires or ()):
            if requirement.marker and not requirement.marker.evaluate({"extra": chosen}):
                continue
            for wanted in ("", *requirement.extras):
                key = (canonicalize_name(requirement.name), wanted)
                if key not in seen:
                    seen.add(key)
                    found = metadata.distribution(requirement.name)
                    waiting.append((found, wanted))
                    yield found


def link_into(site: Path, distribution: metadata.Distribution) -> None:
    for file in distribution.files or ():
        source = Path(str(distribution.locate_file(file)))
        target = site / file
        if ".." in file.parts or "__pycache__" in file.parts or target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:  # another file system
            shutil.copy(source, target)


def test_the_wheel_holds_the_packages_the_stubs_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    (info,) = {name.split("/")[0] for name in names if name.split("/")[0].endswith(".dist-info")}
    assert {name.split("/")[0] for name in names} == {*PACKAGES, "headrace_protos", info}
    assert not [name for name in names if Path(name).name.startswith(("test_", "conftest")) or name.endswith(".pyc")]
    assert f"{info}/licenses/LICENSE" in names
    assert "xds_server/bootstrap.yaml" in names
    assert {f"{package}/py.typed" for package in (*PACKAGES, "headrace_protos")} <= names
    for proto in (ROOT / "protos").rglob("*.proto"):
        stub = f"headrace_protos/{proto.relative_to(ROOT / 'protos').with_suffix('')}_pb2"
        assert {f"{stub}.py", f"{stub}.pyi", f"{stub}_grpc.py"} <= names
    assert "headrace_protos/envoy/service/ext_proc/v3/external_processor_pb2_grpc.py" in names


def test_the_wheel_holds_every_source_file_of_the_packages(wheel: Path) -> None:
    folders = (ROOT, ROOT / "envoy", ROOT / "node", ROOT / "xds")
    sources = {
        str(path.relative_to(folder))
        for folder in folders
        for package in PACKAGES
        for path in (folder / package).rglob("*.py")
    }
    with zipfile.ZipFile(wheel) as archive:
        assert sources <= set(archive.namelist())


def test_the_sdist_holds_sources_and_no_build_products(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert {
        "Dockerfile",
        "LICENSE",
        "Makefile",
        "README.md",
        "docker-compose.yml",
        "envoy/bootstrap.yaml",
        "hatch_build.py",
        "protos/buf.yaml",
        "protos/generate.py",
        "pyproject.toml",
        "requirements-runtime.lock",
        "requirements.lock",
        "tests/packaging/test_distribution.py",
    } <= names
    products = (".venv", "build/", "dist/", "generated/")
    assert not [name for name in names if name.startswith(products) or "__pycache__" in name]


def test_headrace_says_what_it_does_from_any_folder(installed: tuple[str, Path], tmp_path: Path) -> None:
    _, python = installed
    assert "Usage" in run(python.parent / "headrace", "--help", cwd=tmp_path)
    assert "Usage" in run(python, "-m", "headrace", "--help", cwd=tmp_path)


def test_every_module_of_the_wheel_imports_with_the_declared_dependencies_alone(
    installed: tuple[str, Path], tmp_path: Path
) -> None:
    extra, python = installed
    left_out = ",".join(module for name, modules in OF_EXTRAS.items() if name != extra for module in modules)
    run(python, "-I", "-c", IMPORT_ALL, left_out, *PACKAGES, "headrace_protos", cwd=tmp_path)
