// What a line of Markdown has inside: code, emphasis, links. Images are never loaded, HTML is text.

import { element } from "./dom.js";

const kMaxDepth = 6;
const kWord = /[\p{L}\p{N}_]/u;
const kUrl = /https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]*_]/y;
const kLink = /(!?)\[((?:[^[\]\\]|\\.)*)\]\(\s*<?([^\s<>()]*(?:\([^\s()]*\)[^\s<>()]*)*)>?(?:\s+"[^"]*")?\s*\)/y;
const kDelimiters = ["**", "__", "~~", "*", "_"];
const kElements = { "**": "strong", "__": "strong", "~~": "del", "*": "em", "_": "em" };

function isWord(character) {
  return character !== undefined && kWord.test(character);
}

function isSpace(character) {
  return character === undefined || /\s/.test(character);
}

function link(target, ...children) {
  let url = null;
  try {
    url = new URL(target);
  } catch {
    return element("span", {}, ...children);
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) {
    return element("span", {}, ...children);
  }
  return element("a", { href: url.href, target: "_blank", rel: "noopener noreferrer" },
                 ...children);
}

// Reads one text. A token is {begin, end, node} with end behind its last character; `firstOpen` is
// where something begins that may be closed by text to come.
class InlineReader {
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
    this.tokens = [];
    this.plain = "";
    this.plainBegin = 0;
    this.firstOpen = text.length;
    this.unclosed = new Set();  // delimiters that nothing behind closes
  }

  read() {
    let at = 0;
    while (at < this.text.length) {
      const end = this.special(at);
      if (end > at) {
        at = end;
      } else {
        this.plain += this.text[at++];
      }
    }
    this.flush(at);
    return this;
  }

  // Where what begins here ends; `at` when nothing does.
  special(at) {
    switch (this.text[at]) {
      case "\\": return this.escape(at);
      case "`": return this.code(at);
      case "*": case "_": case "~": return this.emphasis(at);
      case "[": case "!": return this.link(at);
      case "h": return this.url(at);
      default: return at;
    }
  }

  flush(end) {
    if (this.plain) {
      const node = document.createTextNode(this.plain);
      this.tokens.push({ begin: this.plainBegin, end, node });
    }
    this.plain = "";
    this.plainBegin = end;
  }

  push(begin, end, node) {
    this.flush(begin);
    this.tokens.push({ begin, end, node });
    this.plainBegin = end;
    return end;
  }

  open(at) {
    this.firstOpen = Math.min(this.firstOpen, at);
    return at;
  }

  escape(at) {
    const next = this.text[at + 1];
    if (next === undefined) return this.open(at);
    if (!/[!-/:-@[-`{-~]/.test(next)) return at;
    this.plain += next;
    return at + 2;
  }

  code(at) {
    const fence = /`+/y;
    fence.lastIndex = at;
    const marker = fence.exec(this.text)[0];
    const begin = at + marker.length;
    let end = -1;
    if (!this.unclosed.has(marker)) {
      end = this.text.indexOf(marker, begin);
      while (end >= 0 && (this.text[end + marker.length] === "`" || this.text[end - 1] === "`")) {
        end = this.text.indexOf(marker, end + 1);
      }
    }
    if (end < 0) {
      this.unclosed.add(marker);
      this.open(at);
      this.plain += marker;
      return begin;
    }
    const text = this.text.slice(begin, end).replace(/^ (.*\S.*) $/s, "$1");
    return this.push(at, end + marker.length, element("code", {}, text));
  }

  emphasis(at) {
    const delimiter = kDelimiters.find((one) => this.text.startsWith(one, at));
    if (delimiter === undefined) return at;
    const begin = at + delimiter.length;
    if (begin === this.text.length) return this.open(at);
    const opens = !isSpace(this.text[begin]) &&
                  !(delimiter[0] === "_" && isWord(this.text[at - 1]));
    const end = opens && this.depth < kMaxDepth ? this.closing(delimiter, begin) : -1;
    if (end < 0) {
      if (opens) this.open(at);
      this.plain += delimiter;
      return begin;
    }
    const inner = new InlineReader(this.text.slice(begin, end), this.depth + 1).read();
    const node = element(kElements[delimiter], {}, ...inner.tokens.map((token) => token.node));
    return this.push(at, end + delimiter.length, node);
  }

  closing(delimiter, begin) {
    if (this.unclosed.has(delimiter)) return -1;
    let end = begin;
    while ((end = this.text.indexOf(delimiter, end + 1)) >= 0) {
      const after = this.text[end + delimiter.length];
      if (delimiter.length === 1 && after === delimiter) {
        ++end;  // half of a longer delimiter
        continue;
      }
      if (isSpace(this.text[end - 1]) || this.text[end - 1] === "\\") continue;
      if (delimiter[0] === "_" && isWord(after)) continue;
      // Of "***" at the end the inner delimiter closes first.
      return delimiter.length === 2 && after === delimiter[0] ? end + 1 : end;
    }
    this.unclosed.add(delimiter);
    return -1;
  }

  link(at) {
    kLink.lastIndex = at;
    const match = kLink.exec(this.text);
    if (match === null) return this.text[at] === "[" ? this.open(at) : at;
    const [whole, mark, label, target] = match;
    if (mark) {
      return this.push(at, at + whole.length,
                       element("span", { class: "image" }, `[image: ${label || target}]`));
    }
    const inner = new InlineReader(label, this.depth + 1).read();
    return this.push(at, at + whole.length,
                     link(target, ...inner.tokens.map((token) => token.node)));
  }

  url(at) {
    kUrl.lastIndex = at;
    if (isWord(this.text[at - 1])) return at;
    const match = kUrl.exec(this.text);
    if (match === null) return at;
    const end = at + match[0].length;
    if (end === this.text.length) this.open(at);
    return this.push(at, end, link(match[0], match[0]));
  }
}

export function readInline(text) {
  return new InlineReader(text, 0).read();
}

export function inlineNodes(text) {
  return readInline(text).tokens.map((token) => token.node);
}
