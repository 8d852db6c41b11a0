#!/usr/bin/env python3
"""Claude Code and Codex (deploy/tools/install --clients) do a task by the tools that they bring, against a real service whose model plays its part (scripted_model.py): it has a file read, has what
it read written to another file, and answers; then the conversation goes on. Each step of the script follows on what a tool said, so the last text tells that every result has come. A conversation
that grows too long for the context is summed up, and goes on, too. All of it runs in a network of its own, in which nothing else can be reached."""
import ctypes
import errno
import fcntl
import json
import os
import pathlib
import secrets
import shutil
import socket
import struct
import subprocess
import tempfile
import unittest

import scripted_model
from relay import PATIENCE, ROOT, Relay, lacking, until
from scripted_model import Step, call

AGENTS = ROOT / "build" / "tools" / "agents" / "node_modules"
TASK = "Read secret.txt, and write the word that is in it to answer.txt."
MORE = "Thank you. Is there anything else in that file?"
DONE = "The word is now in answer.txt."
NOTHING = "There is nothing else in the file."
WRONG = "The file is not as it should be."
LONG = "Read all files, one after the other."
SUMMARY = "I was to read the files, and have read some."
ALL = "I have read all files."
BLOCK = 16  # tokens of KV that are found together
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def shell(command, thought=""):
    """A call of Codex' tool. It waits for the command for as long as it may; without that a busy machine would bring another result."""
    return call("exec_command", {"cmd": command, "yield_time_ms": 30000}, thought)


def setUpModule():
    """Gives this process, and those that it starts, a network that has nothing but a loopback device."""
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        # Without privileges it takes a namespace of users, too.
        if ctypes.get_errno() != errno.EPERM or libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "no network of its own")
        pathlib.Path("/proc/self/setgroups").write_text("deny")
        pathlib.Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        pathlib.Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))


class Agent(unittest.TestCase):
    """The tests of both share a home and a folder to work in, the service, and its record of requests."""

    def setUp(self):
        if shutil.which("npm") is None:
            lacking(self, "npm is not here, so deploy/tools/install --clients installed no agents")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.home, self.work, self.audit = (self.folder / name for name in ("home", "work", "audit"))
        self.home.mkdir()
        self.work.mkdir()
        self.word = f"w{secrets.token_hex(8)}"

    def serve(self, *steps):
        model = self.folder / "scripted"
        # A result that no step waits for ends the task, and no agent asks for ever.
        scripted_model.write(model, [*steps, Step("user", MORE, NOTHING), Step("tool", "", WRONG)])
        relay = Relay(self.folder, prefill=1, decode=1, more=["--http", "127.0.0.1:0", "--audit-log", self.audit], model=model)
        self.addCleanup(relay.stop)
        return f"http://{relay.http}"

    def run_agent(self, program, *arguments, **environment):
        self.assertTrue(program.exists(), f"{program} is missing; deploy/tools/install --clients brings it")
        surroundings = {"PATH": os.environ["PATH"], "HOME": str(self.home), **environment}
        done = subprocess.run([program, *arguments], cwd=self.work, env=surroundings, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def write_files(self, count, lines):
        """Files of so many lines, each of about 18 tokens. Returns their paths, and what stands in the last line of each."""
        paths = [self.work / f"file-{number}" for number in range(count)]
        ends = [f"Line {lines - 1} of file {number}" for number in range(count)]
        for number, path in enumerate(paths):
            path.write_text("".join(f"Line {line} of file {number} says nothing.\n" for line in range(lines)))
        return [str(path) for path in paths], ends

    def requests(self, codes):
        """The lines of the router's record. There are as many as codes, and each has its code."""

        def lines():
            return self.audit.read_text().splitlines() if self.audit.exists() else []

        until(lambda: len(lines()) >= len(codes), lambda: f"{len(codes)} requests, but {lines()}")
        made = [json.loads(line) for line in lines()]
        self.assertEqual([one["code"] for one in made], codes)
        return made

    def check_cache(self, made):
        """Each turn's prompt begins with the one before it, of which all whole blocks are found."""
        for before, then in zip(made, made[1:]):
            self.assertGreaterEqual(then["cached_tokens"], before["prompt_tokens"] // BLOCK * BLOCK, made)
        self.assertGreater(made[0]["prompt_tokens"], 5000)  # instructions and tools, as agents send them


class Network(unittest.TestCase):
    def test_reaches_nothing(self):
        self.assertEqual([name for _, name in socket.if_nameindex()], ["lo"])
        with socket.socket() as outside, self.assertRaises(OSError) as refused:
            outside.connect(("192.0.2.1", 443))
        self.assertEqual(refused.exception.errno, errno.ENETUNREACH)


class ClaudeCode(Agent):
    def claude(self, url, *arguments):
        (program,) = (AGENTS / "@anthropic-ai").glob("claude-code-*/claude")
        # A model for each of its purposes, so that it asks for none that is not served.
        models = {f"ANTHROPIC_{name}": "scripted" for name in ("MODEL", "DEFAULT_OPUS_MODEL", "DEFAULT_SONNET_MODEL", "DEFAULT_HAIKU_MODEL")}
        where = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": "any", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        said = json.loads(self.run_agent(program, "--output-format", "json", "--allowedTools", "Read,Write", *arguments, **models, **where))
        self.assertEqual((said["subtype"], said["is_error"], said["permission_denials"]), ("success", False, []))
        return said

    def script(self):
        secret, answer = (str(self.work / name) for name in ("secret.txt", "answer.txt"))
        return (
            Step("user", TASK, call("Read", {"file_path": secret}, "The word is in the file."), tool="Read"),
            Step("tool", self.word, "I have the word, and write it.\n" + call("Write", {"file_path": answer, "content": self.word}), tool="Write"),
            Step("tool", "answer.txt", DONE),
        )

    def test_task(self):
        url = self.serve(*self.script())
        (self.work / "secret.txt").write_text(f"The word is {self.word}.\n")
        said = self.claude(url, "-p", TASK)
        self.assertEqual((said["result"], said["num_turns"]), (DONE, 3))
        self.assertEqual((self.work / "answer.txt").read_text(), self.word)
        made = self.requests(["OK"] * 3)
        self.assertEqual([one["finish_reasons"] for one in made], [["TOOL_CALLS"], ["TOOL_CALLS"], ["STOP_TOKEN"]])
        self.check_cache(made)
        # It has counted what the service did.
        usage = said["usage"]
        self.assertEqual(usage["cache_read_input_tokens"], sum(one["cached_tokens"] for one in made))
        self.assertEqual(sum(usage[f"{kind}input_tokens"] for kind in ("", "cache_creation_", "cache_read_")), sum(one["prompt_tokens"] for one in made))
        self.assertEqual(usage["output_tokens"], sum(one["completion_tokens"] for one in made))

        more = self.claude(url, "--continue", "-p", MORE)
        self.assertEqual((more["result"], more["session_id"]), (NOTHING, said["session_id"]))
        self.check_cache(self.requests(["OK"] * 4))

    def test_other_result(self):
        """The answer is another if the tool's result is."""
        url = self.serve(*self.script())
        (self.work / "secret.txt").write_text("The word is none.\n")
        self.assertEqual(self.claude(url, "-p", TASK)["result"], WRONG)
        self.assertFalse((self.work / "answer.txt").exists())

    def test_long(self):
        """The service's word that a prompt is too long makes it sum up the conversation."""
        paths, ends = self.write_files(4, lines=700)
        reads = [call("Read", {"file_path": path}) for path in paths]
        url = self.serve(
            Step("user", "create a detailed summary", f"<summary>{SUMMARY}</summary>"),
            Step("user", LONG, reads[0], tool="Read"),
            *(Step("tool", end, read, tool="Read") for end, read in zip(ends, reads[1:])),
            Step("tool", ends[-1], ALL),
        )
        self.assertEqual(self.claude(url, "-p", LONG)["result"], ALL)
        made = self.requests(["OK"] * 4 + ["INVALID_ARGUMENT"] + ["OK"] * 2)
        self.assertLess(made[-1]["prompt_tokens"], made[3]["prompt_tokens"])


class Codex(Agent):
    def codex(self, url, *arguments, limit=scripted_model.CONTEXT):
        config = f"""
            model = "scripted"
            model_provider = "baton"
            model_context_window = {scripted_model.CONTEXT}
            model_auto_compact_token_limit = {limit}
            web_search = "disabled"
            check_for_update_on_startup = false
            [analytics]
            enabled = false
            [model_providers.baton]
            name = "Baton"
            base_url = "{url}/v1"
            env_key = "BATON_KEY"
            wire_api = "responses"
        """
        (self.home / "config.toml").write_text(config)
        # The sandbox is off: it wants privileges which not every machine gives.
        run = [AGENTS / ".bin" / "codex", "--sandbox", "danger-full-access", "exec", "--json", "--skip-git-repo-check"]
        said = self.run_agent(*run, *arguments, CODEX_HOME=str(self.home), BATON_KEY="any")
        return [json.loads(line) for line in said.splitlines()]

    def items(self, events, kind):
        return [event["item"] for event in events if event["type"] == "item.completed" and event["item"]["type"] == kind]

    def script(self):
        return (
            Step("user", TASK, shell("cat secret.txt", "The word is in the file."), tool="exec_command"),
            Step("tool", self.word, "I have the word, and write it.\n" + shell(f"echo {self.word} >answer.txt && ls"), tool="exec_command"),
            Step("tool", "answer.txt", DONE),
        )

    def test_task(self):
        url = self.serve(*self.script())
        (self.work / "secret.txt").write_text(f"The word is {self.word}.\n")
        events = self.codex(url, TASK)
        self.assertEqual([one["exit_code"] for one in self.items(events, "command_execution")], [0, 0])
        self.assertEqual(self.items(events, "agent_message")[-1]["text"], DONE)
        self.assertEqual((self.work / "answer.txt").read_text(), f"{self.word}\n")
        made = self.requests(["OK"] * 3)
        self.assertEqual([one["finish_reasons"] for one in made], [["TOOL_CALLS"], ["TOOL_CALLS"], ["STOP_TOKEN"]])
        self.check_cache(made)
        usage = events[-1]["usage"]
        self.assertEqual(usage["cached_input_tokens"], sum(one["cached_tokens"] for one in made))
        self.assertEqual(usage["input_tokens"], sum(one["prompt_tokens"] for one in made))
        self.assertEqual(usage["output_tokens"], sum(one["completion_tokens"] for one in made))

        more = self.codex(url, "resume", "--last", MORE)
        self.assertEqual(self.items(more, "agent_message")[-1]["text"], NOTHING)
        self.assertEqual(more[0]["thread_id"], events[0]["thread_id"])
        self.check_cache(self.requests(["OK"] * 4))

    def test_other_result(self):
        """The answer is another if the tool's result is."""
        url = self.serve(*self.script())
        (self.work / "secret.txt").write_text("The word is none.\n")
        self.assertEqual(self.items(self.codex(url, TASK), "agent_message")[-1]["text"], WRONG)
        self.assertFalse((self.work / "answer.txt").exists())

    def test_long(self):
        """The count of tokens that the service tells makes it sum up the conversation."""
        paths, ends = self.write_files(2, lines=700)
        reads = [shell(f"cat {path}") for path in paths]
        url = self.serve(
            Step("user", SUMMARY, ALL),
            Step("user", "CONTEXT CHECKPOINT", SUMMARY),
            Step("user", LONG, reads[0], tool="exec_command"),
            Step("tool", ends[0], reads[1], tool="exec_command"),
            Step("tool", ends[1], DONE),
        )
        first = self.codex(url, LONG)
        self.assertEqual(self.items(first, "agent_message")[-1]["text"], DONE)
        counted = self.requests(["OK"] * 3)[-1]["prompt_tokens"]
        more = self.codex(url, "resume", "--last", "Go on.", limit=counted)
        self.assertEqual(self.items(more, "agent_message")[-1]["text"], ALL)
        made = self.requests(["OK"] * 5)
        self.assertLess(made[-1]["prompt_tokens"], made[1]["prompt_tokens"])


if __name__ == "__main__":
    unittest.main()
