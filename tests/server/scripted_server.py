"""A server that has atom's page and answers chats as a test wants: what a small model will not say."""
import http.client
import http.server
import json
import threading


def chunk(delta, finish_reason=None):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def usage(prompt_tokens, completion_tokens):
    return {"choices": [], "usage": {"prompt_tokens": prompt_tokens,
                                     "completion_tokens": completion_tokens}}


class ScriptedServer:
    """Until the end of a `with` block. `answers`: for each chat an iterable of events; what clients
    sent is in `bodies`. The page's files come from `page_server`, a ServerProcess."""

    def __init__(self, page_server, answers):
        self.bodies = []
        outer, remaining = self, iter(answers)

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                connection = http.client.HTTPConnection(page_server.host, page_server.port)
                connection.request("GET", self.path)
                response = connection.getresponse()
                body = response.read()
                self.send_response(response.status)
                for name, value in response.getheaders():
                    if name not in ("Server", "Date"):
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                connection.close()

            def do_POST(self):
                size = int(self.headers["Content-Length"])
                outer.bodies.append(json.loads(self.rfile.read(size)))
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                try:
                    for event in next(remaining):
                        self.send_chunk(f"data: {json.dumps(event)}\n\n")
                    self.send_chunk("data: [DONE]\n\n")
                    self.send_chunk("")
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the page has stopped the answer

            def send_chunk(self, text):
                data = text.encode()
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()
