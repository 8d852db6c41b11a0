#!/usr/bin/env python3
"""Every alert fires for what it names, and for nothing else: real services under a light load (alert_scenes.py), a real Prometheus with the
chart's rules in shorter times (quick_rules.py), and faults put into running processes. The services have their scenes side by side, each as a release of its own.

    alerts_live_test.py [WORD ...]     only scenes whose names hold one of the words

A wait has a generous limit and ends with its condition, so that a slow machine makes the test slow and not wrong. Takes about 15 minutes."""
import concurrent.futures
import contextlib
import pathlib
import sys
import tempfile
import time

import yaml
from alert_scenes import SERVICES
from dashboards_test import FILES, RULES
from quick_rules import quick
from relay import Prometheus, until

# Alerts that no scene causes, with the reason.
NOT_CAUSED = {
    "BatonDiskDropping": "it takes a disk that is slower than a CPU computes KV",
}
PATIENCE = 600


class Play:
    """The scenes of all services, and what fired in them."""

    def __init__(self, folder, words):
        self.words = words
        with contextlib.ExitStack() as ends:
            self.services = []
            for kind in SERVICES:
                service = kind(folder)
                ends.enter_context(service.ends)
                self.services.append(service)
            pathlib.Path(folder, "rules.yaml").write_text(quick((FILES / "baton.rules.yaml").read_text()))
            files = [str(service.folder / "targets.json") for service in self.services]
            config = {"global": {"scrape_interval": "5s", "evaluation_interval": "5s"}, "rule_files": ["rules.yaml"]}
            config["scrape_configs"] = [{"job_name": "baton", "file_sd_configs": [{"files": files, "refresh_interval": "5s"}]}]
            pathlib.Path(folder, "prometheus.yml").write_text(yaml.safe_dump(config))
            self.prometheus = Prometheus(str(pathlib.Path(folder, "prometheus.yml")), str(pathlib.Path(folder, "data")))
            ends.callback(self.prometheus.stop)
            self.end = ends.pop_all().close

    def forgotten(self):
        """Alerts that no scene causes although nothing is said against it, and the other way round."""
        caused = {name for service in self.services for scene in service.scenes for name in scene.fires}
        return [f"{name}: is it caused by a scene or not?" for name in sorted({rule["alert"] for rule in RULES if "alert" in rule} ^ (caused | set(NOT_CAUSED)) | caused & set(NOT_CAUSED))]

    def alerts(self, service):
        """[(name, labels, state)] of now."""
        alerts = [one for one in self.prometheus.get("alerts")["alerts"] if one["labels"].get("release") == service.release]
        return [(one["labels"]["alertname"], one["labels"], one["state"]) for one in alerts]

    def quiet(self, service):
        return not self.alerts(service)

    def fired(self, service, since):
        """The labels of all that fired since then."""
        span = int(1000 * (time.time() - since))
        return [labels for labels, _ in self.prometheus.query(f'last_over_time(ALERTS{{alertstate="firing",release="{service.release}"}}[{span}ms])')]

    def act(self, service, scene, since):
        """The faults of a scene: what it should not cause, since the end of the scene before."""
        stand = lambda: f"{service.release}: {scene.name}: {self.alerts(service)}"
        until(lambda: self.quiet(service), lambda: f"quiet before {stand()}", PATIENCE)
        began = time.time()
        with scene.fault():
            missing = dict(scene.fires)

            def all_fired():
                for name, has, state in self.alerts(service):
                    if state == "firing" and name in missing and missing[name].items() <= has.items():
                        del missing[name]
                return not missing

            until(all_fired, lambda: f"{sorted(missing)} in {stand()}", PATIENCE)
        ended = time.time()
        until(lambda: self.quiet(service), lambda: f"quiet after {stand()}", PATIENCE)
        faults = []
        fired = self.fired(service, since)
        for labels in fired:
            name = labels["alertname"]
            if name not in scene.may and not (name in scene.fires and scene.fires[name].items() <= labels.items()):
                faults.append(f"{service.release}: {scene.name}: {name} fired, too: {labels}")
        came = sorted({labels["alertname"] for labels in fired} - set(scene.fires))
        print(f"{service.release}: {scene.name}: fired after {ended - began:.0f} s, quiet after {time.time() - ended:.0f} s more; with it: {', '.join(came) or 'none'}", flush=True)
        return faults

    def act_all(self, service):
        faults, since = [], time.time()
        for scene in service.scenes:
            if self.words and not any(word in scene.name for word in self.words):
                continue
            try:
                faults += self.act(service, scene, since)
            except Exception as error:  # the scenes behind it are worth their time
                faults.append(f"{type(error).__name__}: {error}")
                print(faults[-1], flush=True)
            since = time.time()
        return faults

    def play(self):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            return [fault for faults in pool.map(self.act_all, self.services) for fault in faults]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        play = Play(folder, sys.argv[1:])
        try:
            faults = play.forgotten() + play.play()
        finally:
            play.end()
    print("\n".join(faults) or "no faults")
    sys.exit(bool(faults))
