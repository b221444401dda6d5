"""Users without a home: the folders that commands and libraries fall back to."""

from __future__ import annotations

import getpass
import os
import pwd
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines import paths
from pipelines.paths import cache_folder, ensure_user_home

_NAMES = ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME", "XDG_CACHE_HOME", "MPLCONFIGDIR")


@pytest.fixture(autouse=True)
def _container_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A user without an entry in the password file and without variables of a login."""

    def unknown(uid: int) -> object:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    for name in (*_NAMES, "SURPRISE_DATA_FOLDER"):
        # Set first, so that what the code sets is undone.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    paths._private_folder.cache_clear()
    yield
    paths._private_folder.cache_clear()


def test_user_without_home_and_name_gets_both() -> None:
    with pytest.raises(RuntimeError):
        Path.home()
    ensure_user_home()
    assert os.access(Path.home(), os.W_OK)
    assert stat.S_IMODE(Path.home().stat().st_mode) == 0o700
    assert getpass.getuser() == f"user{os.getuid()}"


@pytest.mark.parametrize("home", ["/nonexistent/home", "relative", ""])
def test_home_that_is_no_folder_is_replaced(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", home)
    ensure_user_home()
    assert Path.home().is_dir()


def test_home_that_can_be_read_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    ensure_user_home()
    assert Path.home() == home
    assert cache_folder() == home / ".cache" / "understudy"


def test_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    (tmp_path / f"understudy-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"understudy-{os.getuid()}").chmod(0o777)
    ensure_user_home()
    assert Path.home() != tmp_path / f"understudy-{os.getuid()}"
    assert Path.home().is_dir()


@pytest.mark.pipeline
@pytest.mark.parametrize("home", [None, "/", "/usr"], ids=["unset", "root folder", "read-only"])
def test_command_of_another_user_works(home: str | None, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    own = tmp_path / "own"
    own.mkdir()
    os.chown(own, 12345, 12345)
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o111)
    code = "from pipelines.__main__ import main; import sys; sys.argv[0] = 'understudy'; main()"
    words = ["doctor", "--home", str(own / "home"), "--json"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            user=12345, group=12345, extra_groups=[], cwd=own, capture_output=True, text=True,
            env=environment if home is None else {**environment, "HOME": home}, check=False,
        )  # fmt: skip
    except PermissionError:
        pytest.skip("this Python can't be run by other users")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(own.glob("~*"))
