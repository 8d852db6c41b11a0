#!/usr/bin/env python3
"""The README's picture, drawn from a Prometheus of which every answer is known: units at every axis, the SLO's line where the SLO is, one
colour for one thing, refused and failed requests to be seen. And the picture that is in the tree."""
import http.server
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse
import xml.etree.ElementTree as ElementTree

from metric_names import ROOT

PICTURE = ROOT / "deploy" / "observability" / "picture.py"
SVG = "{http://www.w3.org/2000/svg}"
BEGIN, END = 1000.0, 1300.0
TITLES = ["Outcomes", "Refused and failed", "Goodput", "TTFT", "TPOT", "TTFT by phase", "Tokens", "Hit rate", "Hand-offs"]
# Values that an axis of each panel may show besides 0.
UNITS = dict(zip(TITLES, ["req/s", "%", "req/s", "s", "s", "s", "tok/s", "%", "hand-offs/s"]))


def answer(expression):
    """[(labels, value)]"""
    if 'baton_router_slo_seconds' in expression:
        return [({}, 0.5 if "ttft" in expression else 0.02)]
    if "histogram_quantile" in expression:
        return [({}, 0.2 if "ttft" in expression else 0.004)]
    if "phase" in expression:
        return [({"phase": phase}, 0.02) for phase in ("transfer", "admit", "first_token")]
    if "router_requests_total" in expression:
        codes = {"OK": 5, "RESOURCE_EXHAUSTED": 2, "INTERNAL": 1, "CANCELLED": 0}
        return [({"outcome": code}, n / 8 if "!=" in expression else n) for code, n in codes.items() if code != "OK" or "!=" not in expression]
    if "answers_total" in expression:
        return [({"slo": "met"}, 4), ({"slo": "missed"}, 1)]
    if "prefix_hit" in expression:
        return [({"component": "prefill"}, 0.6), ({"component": "decode"}, 0.3)]
    if "handoffs_total" in expression:
        return [({"outcome": "ok"}, 4), ({"outcome": "failed"}, 0.5)]
    return [({}, 1500)]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        (expression,) = urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query)["query"]
        times = [BEGIN + 2 * n for n in range(151)]
        result = [{"metric": labels, "values": [[t, str(value)] for t in times]} for labels, value in answer(expression)]
        body = json.dumps({"data": {"result": result}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def panels(root):
    """{title: its elements}: a panel begins with its frame and ends where the next begins."""
    found, current = {}, None
    for element in root:
        if element.tag == f"{SVG}rect" and element.get("rx"):
            current = []
        elif current is not None:
            current.append(element)
            if element.get("class") == "title":
                found[element.text] = current
    return found


def legend(elements):
    """{name: colour}"""
    return {text.text.split("  ")[0]: box.get("fill") for box, text in zip(elements, elements[1:]) if box.tag == f"{SVG}rect" and text.get("x")}


class Drawn(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        cls.addClassCleanup(server.server_close)
        cls.addClassCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder, "picture.svg")
            address = f"127.0.0.1:{server.server_port}"
            command = [sys.executable, PICTURE, "--prometheus", address, "--minutes", "5", "--end", str(END), "--out", out, "--mark", "1150:a worker dies"]
            subprocess.run(command, check=True)
            cls.root = ElementTree.fromstring(out.read_text())
        cls.panels = panels(cls.root)

    def axis(self, title):
        return [e.text for e in self.panels[title] if e.get("class") == "axis" and e.get("text-anchor") == "end" and ":" not in e.text]

    def test_every_axis_has_its_unit(self):
        self.assertEqual(list(self.panels), TITLES)
        for title in TITLES:
            labels = self.axis(title)
            self.assertEqual(len(labels), 5, title)
            for label in labels:
                self.assertRegex(label, rf"^[0-9.]+K? ?(m|u)?{re.escape(UNITS[title])}$", title)

    def test_the_line_stands_at_the_slo(self):
        for title, slo in (("TTFT", 0.5), ("TPOT", 0.02), ("TTFT by phase", 0.5)):
            (line,) = [e for e in self.panels[title] if e.tag == f"{SVG}polyline" and e.get("stroke-dasharray")]
            self.assertEqual(line.get("stroke"), legend(self.panels[title])["SLO"])
            heights = {float(point.split(",")[1]) for point in line.get("points").split()}
            grid = sorted((float(e.get("y1")) for e in self.panels[title] if e.tag == f"{SVG}line" and not e.get("stroke-dasharray")), reverse=True)
            value = lambda label: float(label.split()[0]) * (1e-3 if "ms" in label else 1)
            top = value(self.axis(title)[-1])
            (height,) = heights
            self.assertAlmostEqual((grid[0] - height) / (grid[0] - grid[-1]) * top, slo, places=3, msg=title)

    def test_refused_and_failed_are_seen(self):
        for title in ("Outcomes", "Refused and failed"):
            self.assertLessEqual({"RESOURCE_EXHAUSTED", "INTERNAL"}, set(legend(self.panels[title])), title)
        self.assertNotIn("CANCELLED", legend(self.panels["Outcomes"]), "what never happened has no place")

    def test_a_colour_means_the_same(self):
        colours = {}
        for elements in self.panels.values():
            for name, colour in legend(elements).items():
                colours.setdefault(name, set()).add(colour)
        self.assertEqual({name: found for name, found in colours.items() if len(found) > 1}, {})
        self.assertEqual(colours["OK"], colours["met"])
        self.assertEqual(colours["failed"], colours["INTERNAL"])
        self.assertNotEqual(colours["failed"], colours["RESOURCE_EXHAUSTED"])

    def test_marks_are_explained(self):
        self.assertEqual(len([e for elements in self.panels.values() for e in elements if e.get("class") == "axis" and e.text == "A"]), len(TITLES))
        self.assertTrue(any(e.text == "A: a worker dies" for e in self.root.iter(f"{SVG}text")))


class InTheTree(unittest.TestCase):
    """docs/dashboard.svg was drawn from a run that has something to show."""

    def test_it_has_the_panels_and_what_they_are_for(self):
        found = panels(ElementTree.fromstring((ROOT / "docs" / "dashboard.svg").read_text()))
        self.assertEqual(list(found), TITLES)
        for title in ("TTFT", "TPOT", "TTFT by phase"):
            self.assertIn("SLO", legend(found[title]))
        self.assertIn("RESOURCE_EXHAUSTED", legend(found["Outcomes"]))
        self.assertLessEqual({"met", "missed"}, set(legend(found["Goodput"])))
        for title, elements in found.items():
            self.assertTrue(any(e.tag == f"{SVG}polyline" for e in elements), title)


if __name__ == "__main__":
    unittest.main()
