#!/usr/bin/env python3
"""The README's way to a client in Python over gRPC, carried out: its commands make the stubs, and its seven lines talk to a real service. What differs from
the page is where the stubs go, which Python it is (one that has grpcio-tools), and the port, which the system chose."""
import re
import subprocess
import sys
import tempfile
import unittest

from relay import ROOT, Relay

ADDRESS, FOLDER = "127.0.0.1:8470", "build/python"


class Client(unittest.TestCase):
    def test_as_printed(self):
        page = (ROOT / "README.md").read_text()
        _, client = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        printed = [line.strip() for line in page.splitlines() if line.startswith("    ") and FOLDER in line and "venv" not in line]
        self.assertEqual(len(printed), 2, "one command makes the stubs, one runs the client")
        self.assertEqual(client.count(ADDRESS), 1)
        with tempfile.TemporaryDirectory() as folder:
            relay = Relay(folder, prefill=1, decode=1)
            self.addCleanup(relay.stop)
            path = f"{folder}/chat.py"
            with open(path, "w") as file:
                file.write(client.replace(ADDRESS, relay.router))
            said = []
            for command in printed:
                command = command.replace(f"{FOLDER}/bin/python", sys.executable).replace(FOLDER, folder).replace("examples/chat.py", path)
                self.assertNotIn(FOLDER, command)
                done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=120)
                self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}\n{relay.process.said()}")
                said.append(done.stdout)
            self.assertEqual(said[0], "")
            self.assertRegex(said[1], r"\w+", "no answer")


if __name__ == "__main__":
    unittest.main()
