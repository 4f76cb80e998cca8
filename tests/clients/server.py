"""A server in a process of its own, for the programs that test real clients on it."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def make_certificates(folder):
    """An authority, a server's and a client's certificate signed by it, and the stores that Java reads."""

    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority",
            "-keyout", "ca.key", "-out", "ca.crt")
    with open(os.path.join(folder, "names"), "w") as file:
        file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key",
                "-out", f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "2", "-extfile", "names", "-out", f"{name}.crt")
    openssl("pkcs12", "-export", "-in", "client.crt", "-inkey", "client.key", "-certfile", "ca.crt",
            "-passout", "pass:secret", "-out", "client.p12")


class Server:
    """Listens on a free port, with TLS on another, and on a Unix socket; its data lie in a temporary folder."""

    def __init__(self, binary, options={}):
        # A server of Redis's own takes the same options; it shows whether the programs are right.
        self.command = [binary] if os.path.basename(binary).endswith("-server") else [binary, "serve"]
        self.folder = tempfile.mkdtemp(prefix="holdfast-clients-")
        self.port, self.tls_port = free_port(), free_port()
        make_certificates(self.folder)
        os.mkdir(os.path.join(self.folder, "data"))
        self.options, self.process = options, None
        self.start()

    def start(self):
        options = {
            "port": self.port, "tls-port": self.tls_port, "bind": "127.0.0.1", "appendonly": "yes",
            "dir": self.path("data"), "unixsocket": self.path("socket"), "tls-cert-file": self.path("server.crt"),
            "tls-key-file": self.path("server.key"), "tls-ca-cert-file": self.path("ca.crt"),
        }
        args = [text for name, value in (options | self.options).items() for text in (f"--{name}", str(value))]
        with open(self.path("log"), "a") as log:
            self.process = subprocess.Popen([*self.command, *args], stdout=log, stderr=log)
        end = time.monotonic() + 60
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
                    connection.settimeout(5)
                    connection.sendall(b"PING\r\n")
                    if connection.recv(5) == b"+PONG":
                        return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the server does not start: {self.log()}")
            time.sleep(0.02)

    def has_ended(self):
        return self.process.poll() is not None

    def kill(self):
        """What `kill -9` does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def path(self, name):
        return os.path.join(self.folder, name)

    def log(self):
        with open(self.path("log")) as log:
            return log.read()

    def environment(self):
        """What the programs are told."""
        return os.environ | {
            "SERVER_PORT": str(self.port), "SERVER_TLS_PORT": str(self.tls_port), "SERVER_PID": str(self.process.pid),
            "TLS_CA": self.path("ca.crt"), "TLS_CERT": self.path("client.crt"), "TLS_KEY": self.path("client.key"),
            "TLS_STORE": self.path("client.p12"), "SERVER_SOCKET": self.path("socket"),
        }

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder)


class Cluster:
    """Three servers as the nodes of a cluster."""

    def __init__(self, binary):
        self.nodes = []
        try:
            for _ in range(3):
                options = {"cluster-enabled": "yes", "cluster-port": free_port(), "cluster-node-timeout": 5000}
                self.nodes.append(Server(binary, options))
            addresses = [f"127.0.0.1:{node.port}" for node in self.nodes]
            create = ["redis-cli", "--cluster", "create", *addresses, "--cluster-yes"]
            made = subprocess.run(create, capture_output=True, text=True)
            if made.returncode != 0:
                raise SystemExit(f"redis-cli makes no cluster: {made.stdout}{made.stderr}")
        except BaseException:
            self.close()
            raise

    def has_ended(self):
        return any(node.has_ended() for node in self.nodes)

    def log(self):
        return "".join(node.log() for node in self.nodes)

    def environment(self):
        return os.environ | {"NODE_PORTS": " ".join(str(node.port) for node in self.nodes)}

    def close(self):
        for node in self.nodes:
            node.close()
