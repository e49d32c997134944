"""Runs each `atom plan` line of the pages in recipes/ on the configuration or the shape that the
page names, and compares the weights with the plan that the page shows: recipes_test.py ATOM
REPOSITORY"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ATOM, ROOT = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])

BLOCK = re.compile(r"```sh\n(mkdir[^\n]*)\n(atom plan [^\n]*)\n```\n\n```text\n(.*?)```", re.DOTALL)
COPY = re.compile(r"cp (tests/released/configs/\S+\.json) (\S+)/config\.json")
SHAPE = re.compile(r"tools/write_shape\.py (\S+) (\S+)")
WEIGHTS = re.compile(r"^weights +([\d.]+) (\w+)", re.MULTILINE)
UNITS = {"MiB": 1, "GiB": 1024}


def mebibytes(plan):
    size, unit = WEIGHTS.search(plan).groups()
    return float(size) * UNITS[unit]


class Recipes(unittest.TestCase):
    def test_every_plan_is_what_its_page_shows(self):
        num_plans = 0
        for page in sorted((ROOT / "recipes").glob("*.md")):
            text = page.read_text()
            blocks = BLOCK.findall(text)
            self.assertEqual(len(blocks), text.count("\natom plan "), page)
            for setup, line, shown in blocks:
                with self.subTest(page=page.name, plan=line):
                    self.check(setup, line, shown)
                    num_plans += 1
        self.assertGreater(num_plans, 10)

    def check(self, setup, line, shown):
        copied, shape = COPY.search(setup), SHAPE.search(setup)
        source, folder = (copied or shape).groups()
        command, subcommand, asked, *flags = line.split()
        self.assertEqual((command, subcommand, asked), ("atom", "plan", folder))
        with tempfile.TemporaryDirectory() as checkpoint:
            if copied:
                shutil.copy(ROOT / source, pathlib.Path(checkpoint) / "config.json")
            else:
                subprocess.run([ROOT / "tools/write_shape.py", source, checkpoint], check=True)
            plan = subprocess.run([ATOM, "plan", checkpoint, "--device", "cpu", *flags],
                                  capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual((plan.returncode, plan.stderr), (0, ""))
        # Kernels of other CPUs store weights a little otherwise.
        ratio = mebibytes(plan.stdout) / mebibytes(shown)
        self.assertTrue(0.95 < ratio < 1.05, plan.stdout)

    def test_every_page_is_listed(self):
        listed = set(re.findall(r"\]\(([\w.-]+\.md)\)", (ROOT / "recipes/README.md").read_text()))
        pages = {page.name for page in (ROOT / "recipes").glob("*.md")} - {"README.md"}
        self.assertEqual(listed, pages)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
