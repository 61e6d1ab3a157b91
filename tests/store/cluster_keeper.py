"""Keep one throw-away PostgreSQL cluster: made and started here, ended and removed once standard input closes.

Run as a program of its own, so that the cluster ends with whoever asked for it, however that ends. PostgreSQL refuses to run as
root: there it runs as ``nobody``, with copies of its programs in the temporary folder, which is all that user is given.

    python cluster_keeper.py PROGRAMS [SETTING=VALUE...]

writes one line of JSON (``socket``, ``folder``, ``pid``) when the server answers. A line ``kill`` ends the server and all its
processes at once, with SIGKILL; ``start`` starts it again, which recovers what was committed. Each is answered by such a line.
"""

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

USER = "nobody"
START_SECONDS = 60.0
STOP_SECONDS = 10.0
GONE = ("", "Z", "X")  # states of a process that holds nothing any more
NEEDED = ("bin/postgres", "bin/initdb", "lib", "share")


def programs_for(installed: Path, folder: Path) -> Path:
    """Return where the server's programs may be run from by the user that runs them."""
    if os.geteuid():
        return installed
    copy = folder / "site/package/programs"
    for libraries in installed.parents[1].glob(f"{installed.parent.name}.libs"):
        shutil.copytree(libraries, folder / "site" / libraries.name)  # where the programs look: three folders up
    for name in NEEDED:
        source, target = installed / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            skipped = shutil.ignore_patterns("*.a", "locale", "pkgconfig", "doc", "man", "include")
            shutil.copytree(source, target, symlinks=True, ignore=skipped)
        else:
            shutil.copy2(source, target)
    for path in (folder / "site").rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    return copy


def owner() -> tuple[int | None, int | None]:
    """Return the user and group that the cluster belongs to; None for our own."""
    if os.geteuid():
        return None, None
    user = pwd.getpwnam(USER)
    return user.pw_uid, user.pw_gid


def make(folder: Path, installed: Path) -> Path:
    """Make the cluster; return where its programs are."""
    programs = programs_for(installed, folder)
    data, socket = folder / "data", folder / "s"
    for path in (data, socket):
        path.mkdir(mode=0o755)
    user, group = owner()
    if user is not None and group is not None:
        folder.chmod(0o755)
        for path in (data, socket):
            os.chown(path, user, group)
    command = [
        str(programs / "bin/initdb"), "--pgdata", str(data), "--username=outlast", "--auth=trust", "--encoding=UTF8",
        "--no-locale", "--no-sync", "--no-instructions",
    ]  # fmt: skip
    made = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
        user=user,
        group=group,
        extra_groups=None if user is None else [],
    )
    if made.returncode:
        raise SystemExit(f"initdb failed: {made.stderr or made.stdout}")
    return programs


def environment() -> dict[str, str]:
    """Return the environment of the server: nothing of ours."""
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def start(folder: Path, programs: Path, settings: list[str]) -> "subprocess.Popen[bytes]":
    """Start the server and wait until it answers."""
    options = [
        "listen_addresses=", f"unix_socket_directories={folder / 's'}", "max_connections=80", "shared_buffers=32MB",
        "fsync=off", "full_page_writes=off", "max_wal_size=512MB", "logging_collector=off", "autovacuum_naptime=300",
        *settings,
    ]  # fmt: skip
    user, group = owner()
    command = [str(programs / "bin/postgres"), "-D", str(folder / "data")]
    for option in options:
        command += ["-c", option]
    with (folder / "log").open("ab") as log:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=environment(),
            user=user,
            group=group,
            extra_groups=None if user is None else [],
        )
    ready = folder / "data" / "postmaster.pid"  # one that was killed has left its own there
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if server.poll() is not None:
            break
        with contextlib.suppress(OSError, IndexError, ValueError):
            lines = ready.read_text().split("\n")
            if lines[7].strip() == "ready" and int(lines[0]) == server.pid:
                return server
        time.sleep(0.02)
    server.kill()
    raise SystemExit(f"the server did not start: {(folder / 'log').read_text(errors='replace')}")


def stop(server: "subprocess.Popen[bytes]") -> None:
    """End the server: at once and cleanly, else by force."""
    for word in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if server.poll() is not None:
            return
        server.send_signal(word)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(STOP_SECONDS)


def kill(server: "subprocess.Popen[bytes]") -> None:
    """End the server and all its processes with SIGKILL. It is halted first, so that it starts none meanwhile.

    Returns when all have gone: as long as one is left, the server does not start again.
    """
    if server.poll() is not None:
        return
    server.send_signal(signal.SIGSTOP)
    wait_until(lambda: stat_of(server.pid)[0] == "T")
    children = [pid for pid in processes() if stat_of(pid)[1] == str(server.pid)]
    server.kill()
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    server.wait()
    wait_until(lambda: all(stat_of(child)[0] in GONE for child in children))


def processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def stat_of(pid: int) -> list[str]:
    """Return the state and the parent of a process, by /proc; two empty texts for one that is not there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return ["", ""]


def wait_until(look: Callable[[], bool]) -> None:
    until = time.monotonic() + STOP_SECONDS
    while not look():
        if time.monotonic() > until:
            raise SystemExit("a process of the server does not end")
        time.sleep(0.005)


def main() -> int:
    installed, settings = Path(sys.argv[1]), sys.argv[2:]
    for word in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(word, signal.SIG_IGN)  # the end of standard input is what ends it
    folder = Path(tempfile.mkdtemp(prefix="outlast-pg-"))
    try:
        programs = make(folder, installed)
        server = start(folder, programs, settings)
        try:
            tell(folder, server)
            for line in sys.stdin:
                if line.strip() == "kill":
                    kill(server)
                elif server.poll() is not None:
                    server = start(folder, programs, settings)
                tell(folder, server)
        finally:
            stop(server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def tell(folder: Path, server: "subprocess.Popen[bytes]") -> None:
    print(json.dumps({"socket": str(folder / "s"), "folder": str(folder), "pid": server.pid}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
