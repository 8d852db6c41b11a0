#!/usr/bin/env python3
"""Dashboards and rules, without a Prometheus: what Grafana's own linter asks of a dashboard, names that exist in the code, queries that
parse, and a chapter of the runbook for each alert. That the queries return data is live_test.py's."""
import json
import re
import subprocess
import sys
import tempfile
import unittest

import yaml
from metric_names import ROOT, asked, exported, family
from quick_rules import quick

FILES = ROOT / "deploy" / "helm" / "baton" / "files"
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((FILES / "dashboards").glob("*.json"))}
RULES = [rule for group in yaml.safe_load((FILES / "baton.rules.yaml").read_text())["groups"] for rule in group["rules"]]


def panels(board):
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def plain(expression):
    """Grafana's variables filled in."""
    for name, value in {"$__rate_interval": "1m", "$__range": "10m", "$namespace": ".*", "$release": ".*", "$worker": ".*", "$tenant": ".*"}.items():
        expression = expression.replace(name, value)
    return expression


def override_names(panel):
    return {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}


class Dashboards(unittest.TestCase):
    def each_panel(self):
        for name, board in BOARDS.items():
            for panel in panels(board):
                yield f"{name}: {panel['title']}", panel

    def test_there_are_eight(self):
        self.assertEqual(set(BOARDS), {"overview", "ttft", "prefill", "decode", "kv", "router", "gateway", "tenants"})

    def test_every_panel_says_what_it_is(self):
        for where, panel in self.each_panel():
            with self.subTest(where):
                self.assertTrue(panel["title"])
                self.assertGreater(len(panel["description"]), 15)
                self.assertTrue(panel["targets"])

    def test_every_panel_has_a_unit_that_names_what_it_counts(self):
        for where, panel in self.each_panel():
            with self.subTest(where):
                # "short" and "none" are bare numbers, and Grafana's "wps" are writes.
                self.assertRegex(panel["fieldConfig"]["defaults"]["unit"], r"^(s|percentunit|reqps|bytes|Bps|bool_yes_no|count:[a-z][a-z/-]+)$")

    def test_a_colour_means_the_same_everywhere(self):
        colours, shown = {}, {}
        for where, panel in self.each_panel():
            if panel["type"] != "timeseries":
                continue
            # A series without a fixed colour gets one by its name.
            self.assertEqual(panel["fieldConfig"]["defaults"]["color"], {"mode": "palette-classic-by-name"}, where)
            for override in panel["fieldConfig"]["overrides"]:
                (colour,) = [one["value"]["fixedColor"] for one in override["properties"] if one["id"] == "color"]
                colours.setdefault(override["matcher"]["options"], set()).add(colour)
            for target in panel["targets"]:
                if "{{" not in target["legendFormat"]:
                    shown.setdefault(target["legendFormat"], []).append(override_names(panel))
        self.assertEqual({name: found for name, found in colours.items() if len(found) > 1}, {})
        for name, panels_with_it in shown.items():
            self.assertTrue(all(name in names for names in panels_with_it), f"{name} has no colour somewhere")
        one = lambda name: next(iter(colours[name]))
        self.assertEqual(len({one(name) for name in ("OK", "RESOURCE_EXHAUSTED", "INTERNAL", "CANCELLED")}), 4)
        self.assertEqual(one("INTERNAL"), one("SLO"))
        self.assertEqual(one("OK"), one("met"))
        self.assertEqual(one("RESOURCE_EXHAUSTED"), one("refused"))

    def test_the_first_page_shows_refusals_and_errors(self):
        titles = {panel["title"]: panel for panel in panels(BOARDS["overview"])}
        self.assertIn('outcome="RESOURCE_EXHAUSTED"', titles["Refused"]["targets"][0]["expr"])
        self.assertIn('outcome!="OK"', titles["Refused and failed"]["targets"][0]["expr"])
        self.assertIn("baton:errors:ratio_rate5m", titles["Errors"]["targets"][0]["expr"])

    def test_every_panel_uses_the_chosen_data_source(self):
        for where, panel in self.each_panel():
            with self.subTest(where):
                for one in [panel, *panel["targets"]]:
                    self.assertEqual(one["datasource"], {"type": "prometheus", "uid": "${datasource}"})

    def test_every_query_is_of_the_chosen_releases(self):
        for where, panel in self.each_panel():
            with self.subTest(where):
                for target in panel["targets"]:
                    for selector in re.findall(r"\{([^}]*)\}", target["expr"]):
                        self.assertIn('namespace=~"$namespace",release=~"$release"', selector, target["expr"])
                    self.assertFalse(re.search(r"\b(baton|process)[a-z0-9_:]*(?![\w:{])", target["expr"]), f"a metric without labels: {target['expr']}")

    def test_counters_are_asked_for_their_rate(self):
        for where, panel in self.each_panel():
            with self.subTest(where):
                for target in panel["targets"]:
                    for match in re.finditer(r"\b\w+_(total|bucket|sum|count)\{[^}]*\}(\[[^\]]*\])?", target["expr"]):
                        self.assertIn(match[2], ("[$__rate_interval]", "[$__range]"), target["expr"])

    def test_every_query_has_the_step_that_the_chart_sets(self):
        step = yaml.safe_load((FILES.parent / "values.yaml").read_text())["observability"]["serviceMonitor"]["interval"]
        for where, panel in self.each_panel():
            with self.subTest(where):
                self.assertEqual({target["interval"] for target in panel["targets"]}, {step})

    def test_queries_have_legends_and_ids_of_their_own(self):
        for where, panel in self.each_panel():
            with self.subTest(where):
                ids = [target["refId"] for target in panel["targets"]]
                self.assertEqual(len(ids), len(set(ids)))
                for target in panel["targets"]:
                    self.assertTrue(target["legendFormat"])

    def test_variables(self):
        for name, board in BOARDS.items():
            known = {variable["name"] for variable in board["templating"]["list"]}
            self.assertLessEqual({"datasource", "namespace", "release"}, known, name)
            used = set(re.findall(r"\$\{?(\w+)", json.dumps(board["panels"]))) - {"__rate_interval", "__range"}
            self.assertLessEqual(used, known, name)
            for variable in board["templating"]["list"]:
                self.assertTrue(variable["label"])

    def test_identities(self):
        self.assertEqual(len({board["uid"] for board in BOARDS.values()}), len(BOARDS))
        for board in BOARDS.values():
            self.assertLessEqual(len(board["uid"]), 40)
            self.assertTrue(board["description"])
            ids = [panel["id"] for panel in board["panels"]]
            self.assertEqual(len(ids), len(set(ids)))

    def test_panels_do_not_overlap(self):
        for name, board in BOARDS.items():
            taken = set()
            for panel in board["panels"]:
                place = panel["gridPos"]
                cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
                self.assertFalse(cells & taken, f"{name}: {panel['title']}")
                self.assertLessEqual(place["x"] + place["w"], 24)
                taken |= cells


class Names(unittest.TestCase):
    def test_queries_ask_for_metrics_of_the_code(self):
        code, recorded = exported(), {rule["record"] for rule in RULES if "record" in rule}
        self.assertGreater(len(code), 40)
        wanted = [(f"rule {rule.get('record') or rule['alert']}", rule["expr"]) for rule in RULES]
        wanted += [(f"{name}: {p['title']}", t["expr"]) for name, board in BOARDS.items() for p in panels(board) for t in p["targets"]]
        wanted += [(f"{name}: variable {v['name']}", re.sub(r"^label_values\((.*),.*\)$", r"\1", v["query"]["query"])) for name, board in BOARDS.items() for v in board["templating"]["list"] if v["type"] == "query"]
        for where, expression in wanted:
            with self.subTest(where):
                names = asked(plain(expression))
                self.assertTrue(names, expression)
                for name in names - {"up"}:
                    self.assertTrue(name in recorded or name in code or family(name) in code, f"{name} is not exported")

    def test_the_chart_and_the_adapter_ask_for_them_too(self):
        code, recorded = exported(), {rule["record"] for rule in RULES if "record" in rule}
        adapter = yaml.safe_load((ROOT / "deploy" / "prometheus-adapter.yaml").read_text())["rules"]
        for rule in adapter["custom"] + adapter["external"]:
            for name in asked(rule["seriesQuery"]):
                self.assertIn(name, code | recorded)
        made = {rule["name"]["as"] for rule in adapter["custom"] + adapter["external"]}
        template = (ROOT / "deploy" / "helm" / "baton" / "templates" / "_service.tpl").read_text()
        self.assertEqual(set(re.findall(r"name: (baton_[a-z0-9_]+)", template)), made)

    def test_asked_finds_names(self):
        self.assertEqual(asked('sum by (pod) (rate(baton_a_total{b="baton_c"}[5m])) / on(baton_d) up offset 1d'), {"baton_a_total", "up"})


class Quick(unittest.TestCase):
    def test_shorter_rules_differ_in_their_times_alone(self):
        """Those of alerts_live_test.py."""
        made = [rule for group in yaml.safe_load(quick((FILES / "baton.rules.yaml").read_text()))["groups"] for rule in group["rules"]]
        self.assertEqual(len(made), len(RULES))
        timeless = lambda rule: {**rule, "expr": re.sub(r"\[\w+\]|offset \w+", "", rule["expr"]), "for": ""}
        self.assertEqual([timeless(rule) for rule in made], [timeless(rule) for rule in RULES])
        self.assertEqual([rule["for"] for rule in made if rule.get("alert") in ("BatonNoRouter", "BatonOverload")], ["4s", "20s"])
        hits = next(rule["expr"] for rule in made if rule.get("alert") == "BatonHitRateCollapse")
        self.assertIn("offset 300s", hits)


class Queries(unittest.TestCase):
    def test_promtool_parses_every_one(self):
        """As recording rules, which promtool can check."""
        rules = []
        for name, board in BOARDS.items():
            for panel in panels(board):
                for target in panel["targets"]:
                    rules.append({"record": f"check:{name}:{len(rules)}", "expr": plain(target["expr"])})
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump({"groups": [{"name": "check", "rules": rules}]}, file)
            file.flush()
            done = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Runbook(unittest.TestCase):
    def test_each_alert_has_its_chapter(self):
        text = (ROOT / "deploy" / "runbook.md").read_text()
        chapters = set(re.findall(r"^### (Baton\w+)$", text, re.MULTILINE))
        self.assertEqual(chapters, {rule["alert"] for rule in RULES if "alert" in rule})

    def test_each_alert_is_seen_to_fire_and_to_keep_quiet(self):
        """By promtool, in the files that scripts/check-deploy hands to it."""
        scenes = {}
        for path in sorted((ROOT / "deploy" / "observability" / "tests").glob("*_test.yaml")):
            for test in yaml.safe_load(path.read_text())["tests"]:
                self.assertTrue(test["input_series"])
                (asked,) = test["promql_expr_test"]
                alert, scene = test["name"].split()
                scene = scene.split("-")[0]  # one of several
                self.assertIn(f'alertname="{alert}"', asked["expr"])
                self.assertEqual(scenes.setdefault((alert, scene), asked["exp_samples"][0]["value"]), asked["exp_samples"][0]["value"])
        wanted = {(rule["alert"], scene): count for rule in RULES if "alert" in rule for scene, count in (("fires", 1), ("quiet", 0))}
        self.assertEqual(scenes, wanted)

    def test_links_lead_there(self):
        for rule in RULES:
            if "alert" in rule:
                self.assertEqual(rule["annotations"]["runbook_url"], f"RUNBOOK_URL#{rule['alert'].lower()}")
                self.assertIn(rule["labels"]["severity"], ("warning", "critical"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
