"""Makes one worker of a relay fetch KV from another, which no load is sure to cause: it says to decode workers what a router says when it plans a fetch."""
import importlib
import pathlib
import random
import subprocess
import sys

import grpc
from relay import ROOT

PROTOS = ROOT / "proto"
PROMPT_TOKENS, BLOCK_TOKENS = 160, 16


class Fetching:
    """For a relay that was started with `flags`."""

    def __init__(self, folder):
        self.stubs = pathlib.Path(folder, "stubs")
        key = pathlib.Path(folder, "fleet.key")
        self.key = "%064x" % random.getrandbits(256)
        key.write_text(self.key)
        key.chmod(0o600)
        self.flags = ["--fleet-key-file", key, "--peer-fetch", "always"]

    def load(self):
        self.stubs.mkdir()
        protos = [str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto")]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I", PROTOS, f"--python_out={self.stubs}", f"--grpc_python_out={self.stubs}", *protos], check=True)
        sys.path.insert(0, str(self.stubs))
        self.messages, self.decode, self.worker = (importlib.import_module(f"baton.fleet.v1.{name}") for name in ("decode_pb2", "decode_pb2_grpc", "worker_pb2_grpc"))
        self.watch = importlib.import_module("baton.fleet.v1.worker_pb2").WatchRequest

    def fetch(self, holder, fetcher):
        """A new prompt is computed by the decode worker `holder` (its address), and then asked of `fetcher`; the tokens that this one fetched."""
        prompt = [random.randrange(20, 2000) for _ in range(PROMPT_TOKENS)]
        self._ask(holder, prompt)
        planned = {"worker": "holder", "address": holder, "blocks": PROMPT_TOKENS // BLOCK_TOKENS}
        # The last token is computed in any case.
        return self._ask(fetcher, [*prompt, 20], fetch=planned).relay.fetched_tokens

    def _ask(self, address, prompt, **more):
        metadata = [("baton-fleet-key", self.key)]
        with grpc.insecure_channel(address) as channel:
            stream = self.worker.WorkerStub(channel).Watch(self.watch(), metadata=metadata, timeout=60)
            fingerprint = next(stream).snapshot.info.fingerprint
            stream.cancel()
            request = self.messages.DecodeRequest(request_id="peer-fetch", fingerprint=fingerprint, token_ids=prompt, salt=b"a tenant's salt", **more)
            request.sampling.temperature = 0
            request.stop.max_tokens = 2
            (finished,) = [event.finished for event in self.decode.DecodeStub(channel).Generate(request, metadata=metadata, timeout=120) if event.HasField("finished")]
            return finished
