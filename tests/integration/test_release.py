"""The wheel and the source distribution: complete, and installable into an empty environment.

Unlike other tests, this one installs packages with pip.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import tellback

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tellback"
GENERATED = ("__pycache__", ".mypy_cache")
CHAT = """
from tellback import Tellback

with Tellback("memory.db", model="offline") as tb:
    maya = tb.user("maya")
    first = maya.chat("I moved to Lisbon in March.")
    maya.conversations.close(first.conversation_id)
    second = maya.chat("Where do I live now, in Lisbon?")
    assert "Lisbon" in second.text, second.text
    assert second.atoms_used[0].source_conversation_id == first.conversation_id, second.atoms_used
"""

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # exclude the checkout
    words = [str(part) for part in command]
    completed = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the source distribution, and the wheel from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ".")
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return wheel, sdist


def source_files() -> set[str]:
    files = (path for path in PACKAGE.rglob("*") if path.is_file() and not set(path.parts) & set(GENERATED))
    return {str(path.relative_to(PACKAGE.parent)) for path in files}


@pytest.mark.timeout(300)
def test_wheel_and_sdist_contain_the_version_and_every_file_of_the_package(distributions: tuple[Path, Path]) -> None:
    wheel, sdist = distributions
    assert wheel.name == f"tellback-{tellback.__version__}-py3-none-any.whl"
    assert sdist.name == f"tellback-{tellback.__version__}.tar.gz"
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert in_wheel == source_files()
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in source_files()} <= in_sdist
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= in_sdist


@pytest.mark.timeout(600)
def test_the_wheel_and_the_sdist_work_in_an_empty_environment(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    wheel, sdist = distributions
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    options = ("--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt")
    (tmp_path / "chat.py").write_text(CHAT)
    for arguments in ([f"{wheel}[cli]"], ["--force-reinstall", "--no-deps", sdist]):
        run(python, "-m", "pip", "install", *options, *arguments)
        run(python, "-W", "error", "chat.py", cwd=tmp_path)
        assert run(tmp_path / "venv" / "bin" / "tellback", "--version").strip() == f"tellback {tellback.__version__}"


def test_the_changelog_has_a_section_for_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert f"\n## [{tellback.__version__}]" in text


def test_the_version_is_declared_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/tellback/__init__.py"
