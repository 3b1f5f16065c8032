"""Certificates for the tests, made by `helenus admin certificates`: an authority in a directory, and what it has issued.

Lists of revoked certificates, and certificates of the past, are made by `openssl`; where there is none, these tests are skipped and say so.
"""

import shutil
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
        return self.complete([self.program, "admin", "certificates", *words])

    @property
    def certificate(self):
        return self.directory / "authority.pem"

    def node(self, name, *words, days=30):
        """Certificate and key of a node. `words`: whom it names."""
        self.run("issue", self.directory, name, "--days", days, *words)
        return self.files(name)

    def revoke(self, *names):
        """The list of revoked certificates, which has these besides those that it had."""
        for name in names:
            self.openssl("-revoke", self.files(name)[0])
        listed = self.directory / "revocations.pem"
        self.openssl("-gencrl", "-out", listed)
        return listed

    def signed(self, name, address, usages="serverAuth,clientAuth", is_expired=False):
        """Certificate and key that `helenus admin certificates` does not make. One that is expired was valid for a day, long ago."""
        certificate, key = self.files(name)
        request, extensions = self.directory / f"{name}.csr", self.directory / f"{name}.extensions"
        extensions.write_text(f"subjectAltName=IP:{address}\nextendedKeyUsage={usages}\n")
        subject = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}"]
        self.complete(["openssl", "req", "-new", *subject, "-keyout", key, "-out", request])
        time = ["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"] if is_expired else ["-days", "30"]
        self.openssl("-batch", "-notext", "-in", request, "-out", certificate, "-extfile", extensions, *time)
        return certificate, key

    def openssl(self, *words):
        """`openssl ca` with the key of the authority."""
        database = self.directory / "database"
        if not database.exists():
            if shutil.which("openssl") is None:
                # Only tests come here.
                import pytest

                pytest.skip("there is no openssl")
            database.mkdir()
            (database / "index.txt").touch()
            (database / "number").write_text("01\n")
            lines = ["[ca]", "default_ca = own", "[own]", f"database = {database}/index.txt", f"crlnumber = {database}/number"]
            lines += [f"new_certs_dir = {database}", "rand_serial = yes", "default_md = sha256", "default_crl_days = 30"]
            lines += ["policy = any", "[any]", "commonName = supplied"]
            (database / "openssl.cnf").write_text("".join(f"{line}\n" for line in lines))
        authority = ["-cert", self.certificate, "-keyfile", self.directory / "authority.key"]
        self.complete(["openssl", "ca", "-config", database / "openssl.cnf", *authority, *words])

    def complete(self, command):
        words = [str(word) for word in command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=clean_environment())
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

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
