#!/usr/bin/env python3
"""The files of the page at /, as the server gives them out: what they are, what their headers
forbid, where they are and where not. page_browser_test.py uses them.

usage: tests/server/page_test.py ATOM SOURCE_FOLDER [unittest arguments]
"""
import html.parser
import pathlib
import posixpath
import re
import sys
import unittest

from server_process import ServerProcess

ATOM = sys.argv[1]
SOURCE = pathlib.Path(sys.argv[2])
MODEL = SOURCE / "models" / "tldr-8m"
FOLDER = SOURCE / "src" / "server" / "ui"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml",
         ".html": "text/html"}


class Tags(html.parser.HTMLParser):
    """What a page refers to, and what in it is code or style."""

    def __init__(self, text):
        super().__init__()
        self.references, self.inline = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.references += [given[name] for name in ("src", "href") if name in given]
        self.inline += [name for name in given if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and "src" not in given):
            self.inline.append(tag)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ServerProcess(ATOM, MODEL, "--root-path", "/a/b", "--api-key", "secret")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def get(self, path, status=200, **headers):
        got, answer_headers, text = self.server.request("GET", path, headers=headers)
        self.assertEqual(got, status, text)
        return answer_headers, text

    def test_every_file_that_is_referred_to_is_there(self):
        seen, wanted = {}, ["/"]
        while wanted:
            path = wanted.pop()
            if path in seen:
                continue
            headers, text = self.get(path)
            name = pathlib.Path("index.html" if path == "/" else path)
            self.assertEqual(headers.get_content_type(), TYPES[name.suffix])
            self.assertEqual(text, (FOLDER / name.name).read_text())
            seen[path] = headers
            found = re.findall(r'^import .* from "(.*)";$', text, re.MULTILINE)
            if path == "/":
                tags = Tags(text)
                self.assertEqual(tags.inline, [])
                found = tags.references
            wanted += [posixpath.normpath(posixpath.join(posixpath.dirname(path), one))
                       for one in found]
        self.assertEqual(len(seen), len([file for file in FOLDER.iterdir()
                                         if file.suffix in TYPES]))
        for path, headers in seen.items():
            self.check_headers(path, headers)

    def check_headers(self, path, headers):
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        self.assertEqual(policy["default-src"], "'none'", path)
        for directive in ("script-src", "style-src", "connect-src", "img-src"):
            self.assertEqual(policy[directive], "'self'", path)
        self.assertEqual(policy["frame-ancestors"], "'none'", path)
        self.assertEqual(headers["X-Content-Type-Options"], "nosniff", path)
        self.assertEqual(headers["Referrer-Policy"], "no-referrer", path)

    def test_scripts_never_parse_what_models_say(self):
        for file in FOLDER.glob("*.js"):
            found = re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b"
                               r"|new Function|DOMParser|https?://(?!www\.w3\.org/)\w",
                               file.read_text())
            self.assertEqual(found, [], file.name)

    def test_behind_a_proxys_path(self):
        self.assertEqual(self.get("/a/b/")[1], self.get("/")[1])
        self.assertEqual(self.get("/a/b/ui/main.js")[1], self.get("/ui/main.js")[1])
        headers, _ = self.get("/a/b", 308)
        self.assertEqual(headers["Location"], "/a/b/")
        self.get("/a/bc", 404)

    def test_what_is_not_there(self):
        for path in ("/ui/", "/ui/none.js", "/ui/../main.js", "/ui/page.cc", "/index.html", "/ui"):
            self.get(path, 404)
        status, headers, _ = self.server.post("/", {})
        self.assertEqual((status, headers["Allow"]), (405, "GET"))
        self.get("/", 403, Host="evil.example")
        self.get("/v1/models", 401)
        _, openapi = self.get("/openapi.json")
        self.assertNotIn("/", openapi["paths"])

    def test_head(self):
        status, headers, text = self.server.request("HEAD", "/")
        self.assertEqual((status, text), (200, ""))
        self.assertEqual(int(headers["Content-Length"]),
                         (FOLDER / "index.html").stat().st_size)

    def test_no_ui(self):
        with ServerProcess(ATOM, MODEL, "--no-ui") as server:
            for path in ("/", "/ui/main.js"):
                self.assertEqual(server.request("GET", path)[0], 404)
            self.assertEqual(server.request("GET", "/v1/models")[0], 200)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
