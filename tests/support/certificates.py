"""Certificates for the tests, made by `helenus admin certificates`: an authority in a directory, and what it has issued."""

import ssl
import subprocess
from pathlib import Path

from node import clean_environment


class Authority:
    """An authority of its own; two of them do not know each other."""

    def __init__(self, program, directory):
        self.program, self.directory = program, Path(directory)
        self.run("init", self.directory)

    def run(self, *words):
        command = [str(word) for word in (self.program, "admin", "certificates", *words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=clean_environment())
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def certificate(self):
        return self.directory / "authority.pem"

    def node(self, name, *words, days=30):
        """Certificate and key of a node. `words`: whom it names."""
        self.run("issue", self.directory, name, "--days", days, *words)
        return self.files(name)

    def client(self, name, identity=None):
        words = ["--identity", identity] if identity else []
        self.run("issue", self.directory, name, "--client", *words)
        return self.files(name)

    def files(self, name):
        return self.directory / f"{name}.pem", self.directory / f"{name}.key"

    def settings(self, name, mode, **further):
        """A table of the settings of a node."""
        certificate, key = self.files(name)
        table = {"mode": mode, "certificate": certificate, "key": key, "authorities": self.certificate}
        return {key: str(value) for key, value in {**table, **further}.items()}

    def context(self, client=None):
        """What a driver needs: it checks the node's certificate and address, and shows that of a client."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.certificate)
        context.check_hostname = False
        if client:
            context.load_cert_chain(*self.files(client))
        return context
