#!/usr/bin/env python3
"""The chart's download script, run for real against a small HTTP server."""
import functools
import hashlib
import http.server
import os
import pathlib
import subprocess
import tempfile
import threading
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "helm" / "baton" / "files" / "pull-model.sh"
FILES = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 4096, "sub/tokenizer.json": b"[]", "m.gguf": b"GGUF"}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        self.server.tokens.add(self.headers.get("x-amz-security-token"))
        body = FILES.get(self.path.removeprefix("/o/m/"))
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class PullModel(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.asked, self.server.tokens = [], set()
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.folder = tempfile.TemporaryDirectory()
        self.target = pathlib.Path(self.folder.name, "models")
        self.target.mkdir()

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()
        self.folder.cleanup()

    def pull(self, sums=None, **environment):
        sums = sums or {name: hashlib.sha256(body).hexdigest() for name, body in FILES.items()}
        manifest = pathlib.Path(self.folder.name, "manifest")
        manifest.write_text(f"http://127.0.0.1:{self.server.server_port}/o/m\n" + "".join(f"{sum}  {name}\n" for name, sum in sums.items()))
        # The chart gives it a read-only root, so nothing but the target and /tmp is written.
        settings = {"PATH": os.environ["PATH"], "MANIFEST": str(manifest), "TARGET": str(self.target), **environment}
        return subprocess.run(["sh", str(SCRIPT)], env=settings, capture_output=True, text=True)

    def there(self):
        return {str(p.relative_to(self.target)) for p in self.target.rglob("*") if p.is_file()}

    def test_all_files(self):
        done = self.pull()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.there(), set(FILES))
        self.assertEqual((self.target / "model.safetensors").read_bytes(), FILES["model.safetensors"])

    def test_what_is_right_is_not_pulled_again(self):
        self.pull()
        (self.target / "config.json").write_bytes(b"changed")
        self.server.asked.clear()
        self.assertEqual(self.pull().returncode, 0)
        self.assertEqual([path for path, _ in self.server.asked], ["/o/m/config.json"])
        self.assertEqual((self.target / "config.json").read_bytes(), FILES["config.json"])

    def test_a_wrong_checksum_stops_the_pod(self):
        done = self.pull({"config.json": "0" * 64})
        self.assertEqual(done.returncode, 1)
        self.assertIn("config.json does not have the SHA-256", done.stderr)
        self.assertEqual(self.there(), set(), "a file that could be loaded")

    def test_a_missing_file_stops_the_pod(self):
        done = self.pull({"absent.json": "0" * 64})
        self.assertEqual(done.returncode, 1)
        self.assertIn("absent.json", done.stderr)

    def test_a_router_leaves_the_weights(self):
        """A GGUF file has the tokenizer and the template, too."""
        self.assertEqual(self.pull(WEIGHTS="no").returncode, 0)
        self.assertEqual(self.there(), set(FILES) - {"model.safetensors"})

    def test_a_token_is_sent_and_not_shown(self):
        done = self.pull(TOKEN="secret-token")
        self.assertEqual(done.returncode, 0)
        self.assertTrue(all(given == "Bearer secret-token" for _, given in self.server.asked))
        self.assertNotIn("secret-token", done.stdout + done.stderr)

    def test_s3_requests_are_signed(self):
        done = self.pull(ACCESS_KEY_ID="id", SECRET_ACCESS_KEY="secret-key", REGION="eu-central-1")
        self.assertEqual(done.returncode, 0, done.stderr)
        for _, given in self.server.asked:
            self.assertRegex(given, r"^AWS4-HMAC-SHA256 Credential=id/\d{8}/eu-central-1/s3/aws4_request")
        self.assertNotIn("secret-key", done.stdout + done.stderr)
        self.assertEqual(self.server.tokens, {None})

    def test_temporary_keys_have_their_token_in_what_is_signed(self):
        done = self.pull(ACCESS_KEY_ID="id", SECRET_ACCESS_KEY="secret-key", REGION="eu-central-1", SESSION_TOKEN="secret-token")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.server.tokens, {"secret-token"})
        for _, given in self.server.asked:
            self.assertRegex(given, r"SignedHeaders=[^,]*x-amz-security-token")
        self.assertNotIn("secret-token", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
