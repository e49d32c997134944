"""A small asyncio client for streamed answers: light enough for thousands of them."""
import asyncio
import json


class StreamCut(Exception):
    """The connection ended before the answer did."""


class Stream:
    """One streamed request on a connection of its own."""

    @classmethod
    async def open(cls, server, path, body, key=None):
        self = cls()
        self.reader, self.writer = await asyncio.open_connection(server.host, server.port)
        data = json.dumps({**body, "stream": True}).encode()
        authorization = f"Authorization: Bearer {key}\r\n" if key else ""
        self.writer.write(f"POST {path} HTTP/1.1\r\nHost: {server.host}\r\n{authorization}"
                          f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        try:
            await self.writer.drain()
            self.status = int((await self._line()).split()[1])
            self.headers = {}
            while line := (await self._line()).strip():
                name, _, value = line.decode().partition(":")
                self.headers[name.lower()] = value.strip()
        except (ConnectionError, IndexError) as error:
            self.close()
            raise StreamCut(str(error)) from error
        except StreamCut:
            self.close()
            raise
        return self

    async def _line(self):
        try:
            line = await self.reader.readline()
        except ConnectionError as error:
            raise StreamCut(str(error)) from error
        if not line.endswith(b"\n"):
            raise StreamCut("the connection ended")
        return line

    async def whole_body(self):
        """The body of an answer that is not streamed."""
        return json.loads(await self.reader.readexactly(int(self.headers["content-length"])))

    async def events(self):
        """Parsed events up to [DONE]; the last chunk must follow it."""
        done = False
        while True:
            size = int(await self._line(), 16)
            try:
                chunk = await self.reader.readexactly(size + 2)
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                raise StreamCut(str(error)) from error
            if size == 0:
                if not done:
                    raise StreamCut("no [DONE]")
                return
            for event in chunk[:-2].split(b"\n\n"):
                if event == b"data: [DONE]":
                    done = True
                elif event.startswith(b"data: "):
                    yield json.loads(event[len(b"data: "):])

    def close(self):
        self.writer.close()

    def reset(self):
        """Closes as a client that vanishes: without a goodbye."""
        self.writer.transport.abort()


def text_of(events):
    """The text of a streamed completion's first choice."""
    return "".join(event["choices"][0]["text"] for event in events if event.get("choices"))


async def stream_text(server, body, key=None):
    """(text, error) of a streamed completion; error is the error event's object, or None."""
    stream = await Stream.open(server, "/v1/completions", body, key)
    try:
        if stream.status != 200:
            return "", (await stream.whole_body())["error"]
        text, error = [], None
        async for event in stream.events():
            if "error" in event:
                error = event["error"]
            elif event["choices"]:
                text.append(event["choices"][0]["text"])
        return "".join(text), error
    finally:
        stream.close()
