"""Certificates for tests."""
import functools
import pathlib
import subprocess


def make_certificates(folder, name="tls", host="localhost"):
    """(authority, certificate, key), in the folder: a server on this machine, or a client, and who signs it, who is made unless it is there."""
    run = functools.partial(subprocess.run, check=True, capture_output=True, cwd=folder)
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    if not pathlib.Path(folder, "ca.crt").exists():
        run([*new, "-subj", "/CN=authority", "-out", "ca.crt", "-keyout", "ca.key"])
    made = [f"{folder}/{file}" for file in ("ca.crt", f"{name}.crt", f"{name}.key")]
    if not pathlib.Path(made[1]).exists():
        names = ["-addext", f"subjectAltName=DNS:{host},IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
        run([*new, "-subj", f"/CN={host}", *names, "-CA", "ca.crt", "-CAkey", "ca.key", "-out", made[1], "-keyout", made[2]])
    return made
