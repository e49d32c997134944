#!/usr/bin/env python3
"""Checks deploy/ against what the server exports: dashboard, alerts and files for the system.

usage: tests/deploy_test.py PRINT_METRICS ATOM SOURCE_FOLDER [unittest arguments]
"""
import json
import pathlib
import re
import subprocess
import sys
import unittest

PRINT_METRICS, ATOM = sys.argv[1:3]
ROOT = pathlib.Path(sys.argv[3])
DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\b(?:(?:vllm|atom):|process_)[a-z0-9_]+")
SELECTOR = re.compile(r"((?:(?:vllm|atom):|process_)[a-z0-9_]+)\{([^}]*)\}")
LABEL = re.compile(r'([a-z_]+)\s*(?:=~|!~|!=|=)\s*"')
GROUPING = re.compile(r"\bby \(([^)]*)\)")
RANGED = re.compile(r"\b(?:rate|increase)\(((?:(?:vllm|atom):|process_)[a-z0-9_]+)")
# What Prometheus adds to each series when it scrapes.
SCRAPE_LABELS = {"instance", "job"}


class Exposition:
    """Types of families, and the labels of every series name."""

    def __init__(self, text):
        self.types = {}
        self.labels = {}
        for line in text.splitlines():
            if match := re.match(r"# TYPE (\S+) (\S+)$", line):
                self.types[match[1]] = match[2]
            elif not line.startswith("#"):
                name, labels = re.match(r"([^{ ]+)(?:\{(.*)\})? \S+$", line).groups()
                names = re.findall(r'([a-z_]+)="', labels or "")
                self.labels.setdefault(name, set()).update(names)

    def is_counter(self, series):
        family = re.sub(r"_(bucket|sum|count)$", "", series)
        return self.types.get(series) == "counter" or self.types.get(family) == "histogram"


EXPOSITION = Exposition(subprocess.run([PRINT_METRICS], check=True, capture_output=True,
                                       text=True).stdout)


def balanced(text):
    pairs = {")": "(", "]": "[", "}": "{"}
    stack = []
    for character in re.sub(r'"[^"]*"', "", text):
        if character in pairs.values():
            stack.append(character)
        elif character in pairs and (not stack or stack.pop() != pairs[character]):
            return False
    return not stack


class Expressions(unittest.TestCase):
    def check(self, expression):
        self.assertTrue(balanced(expression), expression)
        series = METRIC.findall(expression)
        self.assertTrue(series, expression)
        known = set(SCRAPE_LABELS)
        for name in series:
            self.assertIn(name, EXPOSITION.labels, f"{name} is not exported: {expression}")
            known |= EXPOSITION.labels[name]
        for name, selector in SELECTOR.findall(expression):
            for label in LABEL.findall(selector):
                self.assertIn(label, EXPOSITION.labels[name] | SCRAPE_LABELS, expression)
        for grouping in GROUPING.findall(expression):
            for label in grouping.split(","):
                self.assertIn(label.strip(), known, expression)
        for name in RANGED.findall(expression):
            self.assertTrue(EXPOSITION.is_counter(name), f"{name} is no counter: {expression}")
        for name in series:
            if EXPOSITION.types.get(name) == "counter" or name.endswith("_bucket"):
                self.assertIn(name, RANGED.findall(expression), f"without rate: {expression}")
        if "histogram_quantile" in expression:
            self.assertRegex(expression, r"by \([^)]*\ble\b")

    def test_dashboard(self):
        dashboard = json.loads((DEPLOY / "grafana" / "atom.json").read_text())
        panels = dashboard["panels"]
        ids = [panel["id"] for panel in panels]
        self.assertEqual(len(ids), len(set(ids)))
        for panel in panels:
            self.assertLessEqual(panel["gridPos"]["x"] + panel["gridPos"]["w"], 24)
            self.assertEqual(bool(panel.get("targets")), panel["type"] != "row", panel["title"])
            for target in panel.get("targets", ()):
                with self.subTest(panel=panel["title"]):
                    self.check(target["expr"])
        for variable in dashboard["templating"]["list"]:
            for name in METRIC.findall(variable.get("definition", "")):
                self.assertIn(name, EXPOSITION.labels)

    def test_dashboard_shows_every_failure(self):
        text = (DEPLOY / "grafana" / "atom.json").read_text()
        shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in METRIC.findall(text)}
        # Nothing that tells of trouble may be missing.
        for name in EXPOSITION.types:
            if re.match(r"atom:.*(restarts|unresponsive|rejected|disconnects|preemptions|_up$|"
                        r"_latency_seconds|first_token)", name):
                self.assertIn(name, shown)

    def test_alerts(self):
        text = (DEPLOY / "prometheus" / "alerts.yml").read_text()
        expressions = re.findall(r"expr: (?:>-\n)?((?:.+\n)(?: {10}[^a-z\s].*\n| {10}/.*\n)*)", text)
        self.assertEqual(len(expressions), text.count("- alert:"))
        for expression in expressions:
            with self.subTest(expression=expression):
                self.check(" ".join(expression.split()))


class Units(unittest.TestCase):
    """The command lines in the files for systemd and Docker are ones that atom takes."""

    def options(self, command):
        text = subprocess.run([ATOM, command, "--help"], check=True, capture_output=True,
                              text=True).stdout
        return set(re.findall(r"--[a-z][a-z-]+", text))

    def test_systemd(self):
        text = (DEPLOY / "systemd" / "atom.service").read_text()
        command = re.search(r"^ExecStart=\S*/atom (\w+) (.*)$", text, re.MULTILINE)
        used = set(re.findall(r"--[a-z][a-z-]+", command[2]))
        self.assertTrue(used)
        self.assertLessEqual(used, self.options(command[1]))
        timeout = int(re.search(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)[1])
        help_text = subprocess.run([ATOM, "serve", "--help"], check=True, capture_output=True,
                                   text=True).stdout
        shutdown = re.search(r"--shutdown-timeout INT\n.*?default (\d+)", help_text, re.DOTALL)
        self.assertGreater(timeout, int(shutdown[1]))
        # The server alone is told to stop; else the engine dies under its answers.
        self.assertIn("KillMode=mixed", text)

    def test_kubernetes(self):
        text = (DEPLOY / "kubernetes" / "atom-nodes.yaml").read_text()
        command = re.search(r"exec atom (\w+) ((?:.*\n)*?) +env:", text)
        used = set(re.findall(r"--[a-z][a-z-]+", command[2]))
        self.assertIn("--node-rank", used)
        self.assertLessEqual(used, self.options(command[1]))
        # As many pods as nodes, which all start at once, and the port that the head listens at.
        self.assertEqual(re.search(r"replicas: (\d+)", text)[1],
                         re.search(r"--nnodes (\d+)", command[2])[1])
        self.assertIn("podManagementPolicy: Parallel", text)
        self.assertIn("containerPort: " + re.search(r"--master-port (\d+)", command[2])[1], text)

    def test_docker(self):
        text = (DEPLOY / "docker" / "Dockerfile").read_text()
        command = json.loads(re.search(r"^CMD (\[.*\])$", text, re.MULTILINE)[1])
        used = {word for word in command if word.startswith("--")}
        self.assertLessEqual(used, self.options(command[0]))
        self.assertIn("/readyz", re.search(r"HEALTHCHECK(.*\\\n)*.*", text)[0])

    def test_environment_is_documented(self):
        documented = (ROOT / "docs" / "environment.md").read_text()
        for path in ("systemd/atom.service", "docker/Dockerfile"):
            for name in re.findall(r"\bATOM_LOG_[A-Z]+|\bATOM_API_KEY", (DEPLOY / path).read_text()):
                self.assertIn(f"`{name}`", documented)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
