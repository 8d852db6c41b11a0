#!/usr/bin/env python3
"""What README.md and docs/gpus.md tell people to do on a cluster: every `helm install` renders with exactly the flags that are printed, and
every image that it names was built by a command printed before it, from the Dockerfile that the role needs. And the pages hold together."""
import pathlib
import re
import shlex
import subprocess
import unittest

import yaml
from chart import HELM, LOADER, ROOT

PAGES = ["README.md", "docs/gpus.md"]


def commands(page):
    """The lines of its indented blocks, comments and continuations taken care of."""
    text = (ROOT / page).read_text().replace("\\\n", " ")
    lines = [line[4:].split("    #")[0] for line in text.splitlines() if line.startswith("    ")]
    return [part.strip() for line in lines for part in line.split("&&")]


def built(page):
    """{image: Dockerfile} of what is built and pushed there."""
    images = {}
    for command in commands(page):
        if match := re.fullmatch(r"docker build -f (\S+) -t (\S+) \.", command):
            images[match[2]] = match[1]
    pushed = {command.removeprefix("docker push ") for command in commands(page) if command.startswith("docker push ")}
    return {image: dockerfile for image, dockerfile in images.items() if image in pushed}


def rendered(command):
    """The objects of a `helm install` as printed."""
    words = shlex.split(command)
    assert words[:2] == ["helm", "install"], command
    done = subprocess.run([HELM, "template", *words[2:], "--namespace", "ns", "--kube-version", "1.34.0"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return [one for one in yaml.load_all(done.stdout, Loader=LOADER) if one]


class Cluster(unittest.TestCase):
    def test_images_are_those_that_were_built(self):
        seen = set()
        for page in PAGES:
            images = built(page)
            installs = [command for command in commands(page) if command.startswith("helm install")]
            self.assertTrue(installs, page)
            for command in installs:
                for one in rendered(command):
                    for container in one["spec"]["template"]["spec"]["containers"] if one["kind"] in ("Deployment", "StatefulSet") else []:
                        with self.subTest(command, container=container["name"]):
                            self.assertIn(container["image"], images, "nothing that is printed builds and pushes this image")
                            dockerfile = images[container["image"]]
                            on_gpus = "--backend=cuda" in container["args"]
                            self.assertEqual(dockerfile, f"deploy/container/Dockerfile{'.cuda' if on_gpus else ''}")
                            self.assertTrue((ROOT / dockerfile).exists())
                            seen.add((page, on_gpus))
        self.assertEqual(seen, {(page, on_gpus) for page in PAGES for on_gpus in (True, False)})

    def test_the_version_is_the_charts(self):
        version = yaml.safe_load((ROOT / "deploy" / "helm" / "baton" / "Chart.yaml").read_text())["appVersion"]
        for page in PAGES:
            for image in built(page):
                self.assertEqual(image.rsplit(":", 1)[1].removesuffix("-cuda"), version)


class Pages(unittest.TestCase):
    def test_links_lead_somewhere(self):
        for page in PAGES + ["deploy/README.md", "deploy/helm/baton/README.md"]:
            path = ROOT / page
            for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
                if not target.startswith("http"):
                    with self.subTest(page, target=target):
                        self.assertTrue((path.parent / target).exists())

    def test_a_newcomer_meets_the_essentials_first(self):
        """Before any heading: what it is, the two commands, a client, the comparison, models and limits; and no page about GPUs."""
        text = (ROOT / "README.md").read_text()
        first = text.split("\n## ")[0]
        for words in ("    scripts/demo", "    scripts/test", "```python\n", "grpc_tools", "**Models**", "**Limits**"):
            self.assertIn(words, first)
        (head,) = [line for line in first.splitlines() if line.startswith("| |")]
        self.assertEqual([cell.strip() for cell in head.split("|")[2:-1]], ["Baton", "vLLM", "SGLang", "llm-d", "Dynamo", "llama.cpp"])
        rows = [line.count("|") for line in first.splitlines() if line.startswith("|")]
        self.assertEqual(set(rows), {8}, "a row of the table has a cell too many or too few")
        self.assertLess(len(first.splitlines()), 65)
        for flag in ("--link", "--backend cuda", "nccl"):
            self.assertNotIn(flag, text, "this belongs to docs/gpus.md")

    def test_the_client_is_the_example(self):
        over_http, client = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        self.assertEqual(client, (ROOT / "examples" / "chat.py").read_text())
        self.assertEqual(len(client.splitlines()), 7)
        self.assertTrue(over_http.startswith("import openai\n"), "the first client is one that people have")
        self.assertEqual(len(over_http.splitlines()), 4)

    def test_versions_of_clients_are_those_that_are_tested(self):
        (table,) = re.findall(r"^\| client \|.*\n\|.*\n((?:\|.*\n)+)", (ROOT / "docs" / "http.md").read_text(), re.MULTILINE)
        told = {version for row in table.splitlines() for version in re.split(r"[;,] ", row.split(" | ")[1])}
        pins = (ROOT / "deploy" / "tools" / "install").read_text() + (ROOT / "deploy" / "tools" / "clients" / "go.mod").read_text()
        clients = r"(?:anthropic|openai|langchain-\w+|litellm(?:\[proxy\])?|lm_eval\[api\])==|[ (](?:ai|openai|@ai-sdk/[\w-]+|@anthropic-ai/claude-code|@openai/codex)@|openai-go/v3 v"
        self.assertEqual(told, set(re.findall(rf"(?:{clients})([\d.]+)", pins)))


if __name__ == "__main__":
    unittest.main()
