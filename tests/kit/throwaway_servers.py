"""Database servers in temporary directories, for tests that stop, kill and start them at will.

Everything here blocks. In an async test, call it through `anyio.to_thread.run_sync`.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar
from urllib.parse import unquote, urlsplit

import asyncpg

from kit.patience import PATIENCE

T = TypeVar("T")

QUICK = 20.0  # seconds for a server that runs already to let us in; one that is not there refuses at once

# A guard process: it is given each process id of the server, and cleans up on "done" or when the test run dies.
GUARD = """
pid=
while read -r line; do [ "$line" = done ] && break; pid=$line; done
[ -n "$pid" ] && kill -9 "$pid" && sleep 1
rm -rf "$1"
"""


class ServerError(Exception):
    """A server could not be reached, started or stopped."""


class Throwaway(ABC):
    """A server in a temporary directory, on a free loopback port, started by construction.

    Committed data outlives `kill()` in any case; `durable=True` also keeps fsync on, for timings.
    """

    product: ClassVar[str]
    variable: ClassVar[str]
    default_dsn: ClassVar[str]
    package: ClassVar[str]
    program: ClassVar[str]
    accounts: ClassVar[tuple[str, ...]]
    stop_signal: ClassVar[signal.Signals]

    def __init__(self, *, durable: bool = False) -> None:
        if (binary := self.binary()) is None:
            raise ServerError(f"no {self.program} binary is installed")
        self.server_binary = binary
        self.durable = durable
        self.account = _account(self.accounts)
        self.process: subprocess.Popen[Any] | None = None
        self.port = 0
        # As root in /tmp, because the server's account may not be able to enter root's own $TMPDIR.
        self.directory = Path(tempfile.mkdtemp(prefix="askfirst-test-", dir="/tmp" if self.account else None))  # noqa: S108
        self.data, self.log = self.directory / "data", self.directory / "log"
        if self.account:
            os.chown(self.directory, self.account.pw_uid, self.account.pw_gid)
        self.guard = _start_guard(self.directory)
        try:
            self.initialize()
            self._start_on_a_free_port()
        except BaseException:
            self.close()
            raise

    @classmethod
    @abstractmethod
    def binary(cls) -> Path | None:
        """The installed server binary."""

    @abstractmethod
    def initialize(self) -> None:
        """Fill the data directory."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command that runs the server in the foreground."""

    @staticmethod
    @abstractmethod
    async def ask_version(dsn: str, timeout: float) -> tuple[str, str]:
        """Log in, and return the product and its version."""

    @property
    @abstractmethod
    def dsn(self) -> str:
        """The address of the server's database `test`, for a login without a password."""

    def start(self) -> None:
        """Start the server and wait until it accepts a login. Does nothing if it is running."""
        deadline = time.monotonic() + PATIENCE
        while True:
            if self.process is None:
                self._spawn()
            try:
                run_coroutine(self.ask_version(self.dsn, QUICK))
                return
            except Exception as error:
                gone = self._reap()
                # After a kill the dead server's children may hold its memory for a moment longer.
                lingering = gone and "still in use" in self.log.read_text(errors="replace")
                if (gone and not lingering) or time.monotonic() > deadline:
                    self.kill()
                    raise ServerError(f"{self.server_binary} did not start: {self._last_words()}") from error
            time.sleep(0.02)

    def stop(self) -> None:
        """Shut the server down cleanly: clients are disconnected, open transactions are rolled back."""
        if self.process is None:
            return
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reap()

    def kill(self) -> None:
        """SIGKILL the server and its children, as a crash would."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGSTOP)  # so that it has no more children while we look
        children = _children(self.process.pid)
        self.process.kill()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self.process.wait()
        self._reap()

    def close(self) -> None:
        """Stop the server and remove its directory."""
        self.stop()
        if self.guard.poll() is None:
            self.guard.communicate(b"done\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, *command: str | Path, stdin: str = "") -> None:
        """Run a command as the server's account; raises `ServerError` with its output if it fails."""
        done = subprocess.run(command, input=stdin.encode(), capture_output=True, **self._surroundings())  # noqa: S603
        if done.returncode:
            said = (done.stderr or done.stdout).decode(errors="replace")
            raise ServerError(f"{Path(command[0]).name} failed: {shorten(said)}")

    def _start_on_a_free_port(self, attempts: int = 3) -> None:
        """Start for the first time; the port may have been taken since it was found free."""
        for remaining in reversed(range(attempts)):
            self.port = free_port()
            try:
                self.start()
                break
            except ServerError:
                if not remaining or _is_free(self.port):
                    raise

    def _spawn(self) -> None:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._surroundings()
            )
        self._tell_guard(str(self.process.pid))

    def _reap(self) -> bool:
        """Forget the process if it has ended; returns whether there is no process."""
        if self.process is not None and self.process.poll() is not None:
            self.process = None
            self._tell_guard("")
        return self.process is None

    def _tell_guard(self, line: str) -> None:
        assert self.guard.stdin
        self.guard.stdin.write(f"{line}\n".encode())
        self.guard.stdin.flush()

    def _last_words(self) -> str:
        return shorten(self.log.read_text(errors="replace"))

    def _surroundings(self) -> dict[str, Any]:
        """How the server's processes run: with a plain environment, in a separate session (no Ctrl-C), not as
        root."""
        environment = {"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin", "LC_ALL": "C", "TZ": "UTC"}
        # MariaDB, when it starts, removes what it takes for its own leftovers there: other servers' temporary tables.
        environment["TMPDIR"] = str(self.directory)
        surroundings = {"cwd": self.directory, "env": environment, "start_new_session": True}
        if self.account:
            surroundings |= {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}
        return surroundings


class ThrowawayPostgres(Throwaway):
    """A temporary PostgreSQL server."""

    product = "PostgreSQL"
    variable = "ASKFIRST_TEST_POSTGRES"
    default_dsn = "postgresql://postgres@127.0.0.1:5432/test"
    package = "postgresql"
    program = "postgres"
    accounts = ("postgres", "nobody")
    stop_signal = signal.SIGINT

    @classmethod
    def binary(cls) -> Path | None:
        homes = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
        candidates = [path / "postgres" for home in homes for path in _newest_first(home)]
        on_path = shutil.which("postgres")
        candidates += [Path(on_path).resolve()] if on_path else []
        return next((path for path in candidates if path.with_name("initdb").exists()), None)

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/test"

    def initialize(self) -> None:
        options = "--username=postgres --auth=trust --encoding=UTF8 --locale=C --no-sync"
        self.run(self.server_binary.with_name("initdb"), "--pgdata", self.data, *options.split())
        single = (self.server_binary, "--single", "-F", "-D", self.data, "postgres")
        self.run(*single, stdin="CREATE DATABASE test\n")

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": 300,
            "fsync": "on" if self.durable else "off",
            "full_page_writes": "on" if self.durable else "off",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self.server_binary), "-D", str(self.data), *options]

    @staticmethod
    async def ask_version(dsn: str, timeout: float) -> tuple[str, str]:
        connection = await asyncpg.connect(dsn, timeout=timeout)
        try:
            return "PostgreSQL", (await connection.fetchval("SHOW server_version")).split()[0]
        finally:
            await connection.close()


class ThrowawayMySQL(Throwaway):
    """A temporary MariaDB server, or MySQL if that is installed."""

    product = "MariaDB or MySQL"
    variable = "ASKFIRST_TEST_MYSQL"
    default_dsn = "mysql://root@127.0.0.1:3306/test"
    package = "mariadb-server"
    program = "mariadbd or mysqld"
    accounts = ("mysql", "nobody")
    stop_signal = signal.SIGTERM

    @classmethod
    def binary(cls) -> Path | None:
        return _which("mariadbd", "mysqld")

    @property
    def dsn(self) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/test"

    def initialize(self) -> None:
        (self.directory / "init.sql").write_text(
            "CREATE DATABASE IF NOT EXISTS test CHARACTER SET utf8mb4;\n"
            "CREATE USER IF NOT EXISTS root@'127.0.0.1';\n"
            "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        (self.directory / "init.sql").chmod(0o644)
        if install := _which("mariadb-install-db", "mysql_install_db"):
            options = "--auth-root-authentication-method=normal --skip-test-db --skip-name-resolve"
            faster = ("--skip-log-bin", "--innodb-flush-method=nosync")
            self.run(install, "--no-defaults", f"--datadir={self.data}", *options.split(), *faster)
        else:
            self.run(self.server_binary, "--no-defaults", "--initialize-insecure", f"--datadir={self.data}")

    def command(self) -> list[str]:
        settings = {
            "datadir": self.data,
            "bind-address": "127.0.0.1",
            "port": self.port,
            "socket": self.directory / "socket",
            "pid-file": self.directory / "pid",
            "init-file": self.directory / "init.sql",
            "max-connections": 300,
            "character-set-server": "utf8mb4",
            "innodb-flush-log-at-trx-commit": 1 if self.durable else 2,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        return [str(self.server_binary), "--no-defaults", *options, "--skip-name-resolve", "--skip-log-bin"]

    @staticmethod
    async def ask_version(dsn: str, timeout: float) -> tuple[str, str]:
        import asyncmy  # not there in the environments of frameworks, which need PostgreSQL alone

        connection = await asyncio.wait_for(asyncmy.connect(**mysql_login(dsn)), timeout)
        try:
            async with connection.cursor() as cursor:
                await cursor.execute("SELECT VERSION()")
                (version,) = await cursor.fetchone()
        finally:
            await connection.ensure_closed()
        return "MariaDB" if "MariaDB" in version else "MySQL", version.split("-")[0]


def mysql_login(dsn: str) -> dict[str, Any]:
    """A MySQL DSN as the driver's keyword arguments."""
    url = urlsplit(dsn)
    return {
        "host": url.hostname or "127.0.0.1",
        "port": url.port or 3306,
        "user": unquote(url.username or "root"),
        "password": unquote(url.password or ""),
        "db": url.path.lstrip("/") or "test",
    }


def free_port() -> int:
    """A free loopback port below the range that the system gives to clients.

    In that range, a client that keeps connecting while its server is down could be given the server's port.
    """
    ports = (random.randint(15_000, 32_000) for _ in range(1000))
    return next(port for port in ports if _is_free(port))


def _account(names: tuple[str, ...]) -> pwd.struct_passwd | None:
    """The account to run a server as when we are root, which servers refuse to run as."""
    if os.geteuid() != 0:
        return None
    for name in names:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerError(f"we are root and there is no account {' or '.join(names)} to run it as")


def _start_guard(directory: Path) -> subprocess.Popen[bytes]:
    command = ("/bin/sh", "-c", f"exec >/dev/null 2>&1\n{GUARD}", "askfirst-test-guard", str(directory))
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603


def _children(parent: int) -> list[int]:
    """The processes that a process started (Linux; elsewhere none are found, and they end by themselves)."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # when it has ended meanwhile
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _which(*names: str) -> Path | None:
    """The first of these programs that is installed; servers often live outside of a user's PATH."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin:/usr/libexec"
    return next((Path(found) for name in names if (found := shutil.which(name, path=path))), None)


def _newest_first(pattern: str) -> list[Path]:
    """The directories that match, 16 before 9."""
    found = Path("/").glob(pattern.lstrip("/"))
    return sorted(
        found, key=lambda path: [int(digits) for digits in re.findall(r"\d+", str(path))], reverse=True
    )


def run_coroutine(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in another thread, so that callers may have a running event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def shorten(text: str) -> str:
    """The last lines, on one line."""
    return " / ".join(text.strip().splitlines()[-3:])[-400:]
