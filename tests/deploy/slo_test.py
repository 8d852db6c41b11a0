#!/usr/bin/env python3
"""One SLO: what `slo.*` of the chart says is what routers are told, and what the rules and dashboards of the same release judge by. The rules
are run by promtool as the chart renders them, on the series of a router with the rendered flags."""
import pathlib
import subprocess
import tempfile
import unittest

import yaml
from chart import Release
from dashboards_test import BOARDS, RULES, panels

ON = {"observability": {"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}}
WHO = 'namespace="ns",release="r",component="router",pod="router-0"'
BUCKETS = {"ttft": (0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5), "tpot": (0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1)}


def router_series(flags, name, seconds):
    """What a router with these flags exports when each of 100 requests a minute takes so many seconds."""
    slo = float(flags[f"--slo-{name}"])
    series = {f'baton_router_{name}_seconds_bucket{{{WHO},le="{bound:g}"}}': f"0+{100 * (seconds <= bound)}x130" for bound in BUCKETS[name]}
    series[f'baton_router_{name}_seconds_bucket{{{WHO},le="+Inf"}}'] = "0+100x130"
    series[f"baton_router_{name}_seconds_count{{{WHO}}}"] = "0+100x130"
    series[f'baton_router_over_slo_total{{{WHO},slo="{name}"}}'] = f"0+{100 * (seconds > slo)}x130"
    series[f'baton_router_slo_seconds{{{WHO},slo="{name}"}}'] = f"{slo:g}x130"
    return series


class Slo(unittest.TestCase):
    def check(self, release, series, tests):
        """promtool on the rules of this release."""
        with tempfile.TemporaryDirectory() as folder:
            rules = release.one("PrometheusRule", "r-baton")["spec"]
            pathlib.Path(folder, "rules.yaml").write_text(yaml.safe_dump(rules))
            scene = {
                "rule_files": ["rules.yaml"],
                "group_eval_order": ["baton.recording", "baton.alerts"],
                "evaluation_interval": "1m",
                "tests": [{"interval": "1m", "input_series": [{"series": key, "values": value} for key, value in series.items()], **tests}],
            }
            pathlib.Path(folder, "test.yaml").write_text(yaml.safe_dump(scene))
            return subprocess.run(["promtool", "test", "rules", "test.yaml"], cwd=folder, capture_output=True, text=True)

    def test_alerts_follow_the_values(self):
        # Requests of 0.9 s and 35 ms per token, and values with bounds on either side of them; none is the edge of a bucket.
        for name, key, seconds, tight, loose in (("ttft", "ttftSeconds", 0.9, 0.6, 1.2), ("tpot", "tpotSeconds", 0.035, 0.022, 0.045)):
            for bound, wanted in ((tight, True), (loose, False)):
                release = Release({"slo": {key: bound}, **ON})
                series = router_series(release.flags("router"), name, seconds)
                for speed in ("Fast", "Slow"):
                    alert = f"Baton{name.capitalize()}Burn{speed}"
                    with self.subTest(alert, slo=bound):
                        expression = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
                        ask = {"expr": expression, "eval_time": "2h", "exp_samples": [{"labels": "{}", "value": int(wanted)}]}
                        done = self.check(release, series, {"promql_expr_test": [ask]})
                        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_alerts_name_the_bound(self):
        release = Release({"slo": {"ttftSeconds": 0.6}, **ON})
        series = router_series(release.flags("router"), "ttft", 0.9)
        expected = {
            "exp_labels": {"namespace": "ns", "release": "r", "severity": "critical"},
            "exp_annotations": {
                "summary": "TTFT spends its error budget 14.4 times too fast",
                "description": "100% of the answers had a first token over 600ms in the last 1h; the objective allows 1%.",
                "runbook_url": next(r["annotations"]["runbook_url"] for g in release.one("PrometheusRule", "r-baton")["spec"]["groups"] for r in g["rules"] if r.get("alert") == "BatonTtftBurnFast"),
            },
        }
        done = self.check(release, series, {"alert_rule_test": [{"eval_time": "2h", "alertname": "BatonTtftBurnFast", "exp_alerts": [expected]}]})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_no_rule_has_a_bound_of_its_own(self):
        for rule in RULES:
            self.assertNotRegex(rule["expr"], r'_seconds_bucket\{[^}]*le="', rule)

    def test_dashboards_have_the_routers_line(self):
        """Every panel of TTFT or TPOT, and no panel a copy."""
        for name, board in BOARDS.items():
            for panel in panels(board):
                expressions = {target["legendFormat"]: target["expr"] for target in panel["targets"]}
                judged = {slo for slo, metric in (("ttft", "router_ttft_seconds"), ("ttft", "baton_ttft_phase_seconds_sum"), ("tpot", "router_tpot_seconds")) if metric in str(expressions)}
                with self.subTest(f"{name}: {panel['title']}"):
                    if panel["type"] == "timeseries" and judged:
                        (slo,) = judged
                        self.assertRegex(expressions["SLO"], rf'^max\(baton_router_slo_seconds\{{.*slo="{slo}"\}}\)$')
                        (line,) = [one for one in panel["fieldConfig"]["overrides"] if one["matcher"]["options"] == "SLO"]
                        style = {one["id"]: one["value"] for one in line["properties"]}
                        self.assertEqual(style["custom.lineStyle"]["fill"], "dash")
                        self.assertEqual(style["custom.stacking"]["mode"], "none")
                    if panel["fieldConfig"]["defaults"]["unit"] == "s":
                        self.assertEqual([one["value"] for one in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]], [None])


if __name__ == "__main__":
    unittest.main()
