// Requests to the server that this page came from. Paths are relative, so that the page works
// behind a proxy's prefix, too.

const kKeyName = "atom-api-key";

let askForKey = async () => null;

// `ask(reason)` resolves to a key, or to null when none is given.
export function setKeyPrompt(ask) {
  askForKey = ask;
}

export function forgetKey() {
  sessionStorage.removeItem(kKeyName);
}

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// The error that a response tells, in OpenAI's shape or in none.
async function errorOf(response) {
  const text = await response.text();
  try {
    return new ApiError(response.status, JSON.parse(text).error.message);
  } catch {
    return new ApiError(response.status, text.slice(0, 300) || `HTTP status ${response.status}`);
  }
}

// The response, which is a success; a POST when there is a body. Asks for a key when the server
// wants another than it was given, unless `quiet`.
export async function request(path, { body, signal, quiet = false } = {}) {
  for (;;) {
    const key = sessionStorage.getItem(kKeyName);
    const headers = {};
    if (key) headers.Authorization = `Bearer ${key}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const response = await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
    if (response.ok) return response;
    const error = await errorOf(response);
    if (response.status !== 401 || quiet) throw error;
    // Another request may have asked meanwhile.
    if (sessionStorage.getItem(kKeyName) === key) {
      const given = await askForKey(error.message);
      if (!given) throw error;
      sessionStorage.setItem(kKeyName, given);
    }
  }
}

// The data of a response's server-sent events, up to [DONE].
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    const blocks = buffer.split("\n\n");
    buffer = blocks.pop();
    for (const block of blocks) {
      for (const line of block.split("\n")) {
        if (!line.startsWith("data: ")) continue;
        const data = line.slice("data: ".length);
        if (data === "[DONE]") return;
        yield JSON.parse(data);
      }
    }
  }
}
