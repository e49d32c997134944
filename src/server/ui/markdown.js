// Markdown that arrives piece by piece. What is on the page stays as it is: new text opens blocks or
// goes to the last one, so that an answer of any length costs the same per piece. A line waits while
// its first characters leave open what it is.

import { button, copyText, element } from "./dom.js";
import { inlineNodes, readInline } from "./markdown_inline.js";

const kUndecided = /^[\s>\-*+_#=`~|:\d.)]*$/;
const kNumber = /\d{10}/;  // longer than that of an item
const kFence = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/;
const kRule = /^ {0,3}([-*_])( *\1){2,} *$/;
const kHeading = /^ {0,3}(#{1,6})(?: +|$)/;
const kQuote = /^ {0,3}> ?/;
const kItem = /^( {0,3})([-*+]|(\d{1,9})[.)])( {1,4})(?=\S)/;
const kDelimiterRow = /^ {0,3}\|?( *:?-+:? *\|)+( *:?-+:? *)?$/;

// Text with inline markup. Only its unfinished end is rendered again when more comes.
class InlineLeaf {
  static kKeep = 256;      // characters that are rendered again
  static kMaxOpen = 4096;  // after which what is still not closed will not be

  constructor(node) {
    this.node = node;
    this.text = "";
    this.stable = 0;  // characters that are rendered for good
    this.tail = [];   // nodes of the rest
    this.isRendered = true;
  }

  add(text) {
    this.text += text;
    this.isRendered = false;
  }

  render() {
    if (this.isRendered) return;
    this.isRendered = true;
    const rest = this.text.slice(this.stable);
    const { tokens, firstOpen } = readInline(rest);
    for (const node of this.tail) node.remove();
    this.tail = tokens.map((token) => token.node);
    this.node.append(...this.tail);
    if (rest.length <= 2 * InlineLeaf.kKeep) return;
    const open = rest.length > InlineLeaf.kMaxOpen ? rest.length : firstOpen;
    this.settle(tokens, rest, Math.min(open, rest.length - InlineLeaf.kKeep));
  }

  settle(tokens, rest, limit) {
    let settled = 0;
    for (const { end } of tokens) {
      if (end > limit) break;
      settled = end;
      this.tail.shift();
    }
    const next = tokens.find((token) => token.begin === settled);
    const length = limit - settled;
    // Characters of the source and of the node are the same only where nothing is escaped.
    if (length > 0 && next !== undefined && next.node.nodeType === Node.TEXT_NODE &&
        next.node.data === rest.slice(next.begin, next.end)) {
      const space = next.node.data.lastIndexOf(" ", length);
      if (space > 0) {
        this.tail[0] = next.node.splitText(space);
        settled += space;
      }
    }
    this.stable += settled;
  }
}

// Code is cut into pieces, so that the browser lays out only the last one again.
class CodeLeaf {
  static kPiece = 2048;  // characters

  constructor(parent, language) {
    this.node = element("code");
    const copy = button("Copy", () => copyText(this.node.textContent, copy));
    parent.append(element("figure", { class: "code" },
                          element("figcaption", {}, element("span", {}, language), copy),
                          element("pre", { tabindex: "0" }, this.node)));
    this.text = "";
    this.piece = null;
  }

  add(text) {
    this.text += text;
  }

  render() {
    while (this.text) {
      if (this.piece === null) {
        this.piece = document.createTextNode("");
        this.node.append(element("div", {}, this.piece));
      }
      const room = CodeLeaf.kPiece - this.piece.length;
      let size = this.text.length;
      if (size > room) {
        const line = this.text.indexOf("\n", Math.max(0, room - 1));
        if (line >= 0) size = line + 1;
      }
      this.piece.appendData(this.text.slice(0, size));
      if (this.piece.length >= CodeLeaf.kPiece && this.piece.data.endsWith("\n")) this.piece = null;
      this.text = this.text.slice(size);
    }
  }
}

function splitRow(line) {
  const cells = line.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/);
  return cells.map((cell) => cell.trim().replaceAll("\\|", "|"));
}

export class MarkdownStream {
  constructor(root) {
    this.root = root;
    this.pending = "";      // of the line that is not decided, or not taken
    this.atLineStart = true;
    this.containers = [];   // open quotes and items: {kind, node, indent}
    this.leaf = null;       // where text goes: InlineLeaf, CodeLeaf
    this.kind = null;       // of the leaf: "paragraph", "heading", "code"; "table" has no leaf
    this.fence = null;      // {marker, indent, depth} of open code
    this.table = null;      // {body, alignments}
    this.paragraphLines = 0;
  }

  append(text) {
    this.pending += text.replaceAll("\r", "");
    while (this.pending && this.step(false));
    this.leaf?.render();
  }

  end() {
    while (this.pending && this.step(true));
    this.leaf?.render();
    this.closeLeaf();
  }

  // Takes a line, or a part of one; false when more has to come first.
  step(isLast) {
    const newline = this.pending.indexOf("\n");
    const isWhole = newline >= 0 || isLast;
    const line = newline >= 0 ? this.pending.slice(0, newline) : this.pending;
    if (this.atLineStart) {
      if (!isWhole && this.waits(line)) return false;
      const rest = this.begin(line);
      if (rest !== null) this.take(rest, newline >= 0);
    } else {
      this.take(line, newline >= 0);
    }
    this.atLineStart = newline >= 0;
    this.pending = newline >= 0 ? this.pending.slice(newline + 1) : "";
    return true;
  }

  // A line of the leaf's, or a part of one.
  take(text, isEnd) {
    this.leaf.add(text);
    if (isEnd && this.kind === "code") this.leaf.add("\n");
    if (isEnd && this.kind === "heading") this.closeLeaf();
  }

  // Whether what the line is depends on what will follow.
  waits(line) {
    if (this.fence !== null) {
      return /^[\s>]*(`*|~*)\s*$/.test(line);
    }
    if (kUndecided.test(line) && !kNumber.test(line)) return true;
    const rest = line.replace(/^[\s>]*([-*+]|\d{1,9}[.)])?\s*/, "");
    return /^(```|~~~|\|)/.test(rest) || this.table !== null;
  }

  // Opens and closes what the line says; what is left of it for the leaf, null when nothing is.
  begin(line) {
    const { rest, depth } = this.stripContainers(line);
    if (this.fence !== null) {
      if (depth >= this.fence.depth) return this.continueCode(rest);
      this.closeLeaf();
    }
    if (rest.trim() === "") {
      if (depth < this.containers.length) this.closeQuotes(depth);
      this.closeLeaf();
      return null;
    }
    const isBlock = kFence.test(rest) || kRule.test(rest) || kHeading.test(rest) ||
                    kQuote.test(rest) || kItem.test(rest);
    // A paragraph goes on without the marks of what it is in.
    if (this.kind === "paragraph" && !isBlock && depth < this.containers.length) {
      return this.continueParagraph(rest);
    }
    if (depth < this.containers.length) {
      this.closeLeaf();
      this.containers.length = depth;
    }
    return this.openBlock(rest);
  }

  stripContainers(line) {
    let rest = line;
    let depth = 0;
    for (const container of this.containers) {
      if (container.kind === "quote") {
        const mark = kQuote.exec(rest);
        if (mark === null) break;
        rest = rest.slice(mark[0].length);
      } else if (rest.trim() !== "") {
        const spaces = /^ */.exec(rest)[0].length;
        if (spaces < container.indent) break;
        rest = rest.slice(container.indent);
      }
      ++depth;
    }
    return { rest, depth };
  }

  // A blank line ends a quote, but an item only when what follows is not indented.
  closeQuotes(depth) {
    const quote = this.containers.findIndex((one, i) => i >= depth && one.kind === "quote");
    if (quote >= 0) this.containers.length = quote;
  }

  continueCode(rest) {
    const closing = /^ {0,3}(`{3,}|~{3,})\s*$/.exec(rest);
    if (closing !== null && closing[1].startsWith(this.fence.marker)) {
      this.closeLeaf();
      return null;
    }
    const spaces = /^ */.exec(rest)[0].length;
    return rest.slice(Math.min(spaces, this.fence.indent));
  }

  continueParagraph(rest) {
    ++this.paragraphLines;
    this.leaf.add("\n");
    return rest.trimStart();
  }

  openBlock(line) {
    let rest = line;
    for (;;) {
      if (kRule.test(rest)) {
        this.closeLeaf();
        this.parent().append(element("hr"));
        return null;
      }
      const quote = kQuote.exec(rest);
      const item = quote === null ? kItem.exec(rest) : null;
      if (quote === null && item === null) return this.openLeaf(rest);
      this.closeLeaf();
      if (quote !== null) this.openQuote();
      else this.openItem(item);
      rest = rest.slice((quote ?? item)[0].length);
    }
  }

  parent() {
    return this.containers.at(-1)?.node ?? this.root;
  }

  openQuote() {
    const node = element("blockquote");
    this.parent().append(node);
    this.containers.push({ kind: "quote", node });
  }

  openItem([whole, , , number]) {
    const name = number === undefined ? "ul" : "ol";
    const parent = this.parent();
    let list = parent.lastElementChild;
    if (list === null || list.localName !== name) {
      list = element(name, number > 1 ? { start: Number(number) } : {});
      parent.append(list);
    }
    const node = element("li");
    list.append(node);
    this.containers.push({ kind: "item", node, indent: whole.length });
  }

  openLeaf(rest) {
    const fence = kFence.exec(rest);
    if (fence !== null) return this.openCode(rest, fence);
    if (this.table !== null && rest.includes("|")) return this.addRow(splitRow(rest), "td");
    if (this.isHeader(rest)) return this.openTable(rest);
    if (this.kind === "paragraph") return this.continueParagraph(rest);
    this.closeLeaf();
    const heading = kHeading.exec(rest);
    const node = element(heading === null ? "p" : `h${Math.min(6, heading[1].length + 2)}`);
    this.parent().append(node);
    this.leaf = new InlineLeaf(node);
    this.kind = heading === null ? "paragraph" : "heading";
    this.paragraphLines = 1;
    return heading === null ? rest.trimStart() : rest.slice(heading[0].length).replace(/ +#+ *$/, "");
  }

  openCode(rest, [, marker, language]) {
    this.closeLeaf();
    this.fence = { marker, indent: /^ */.exec(rest)[0].length, depth: this.containers.length };
    this.leaf = new CodeLeaf(this.parent(), language);
    this.kind = "code";
    return null;
  }

  // Whether the line makes a table of the paragraph above it.
  isHeader(rest) {
    return this.kind === "paragraph" && this.paragraphLines === 1 &&
           this.leaf.text.includes("|") && kDelimiterRow.test(rest) &&
           splitRow(rest).length === splitRow(this.leaf.text).length;
  }

  openTable(rest) {
    const header = splitRow(this.leaf.text);
    this.leaf.node.remove();
    this.leaf = null;
    this.kind = "table";
    const body = element("tbody");
    const alignments = splitRow(rest).map((cell) => {
      if (!cell.endsWith(":")) return "left";
      return cell.startsWith(":") ? "center" : "right";
    });
    this.table = { body, alignments };
    const head = element("thead");
    this.parent().append(element("div", { class: "table", tabindex: "0" },
                                 element("table", {}, head, body)));
    this.addRow(header, "th", head);
    return null;
  }

  addRow(cells, name, section = this.table.body) {
    const row = this.table.alignments.map((alignment, i) =>
      element(name, { class: alignment }, ...inlineNodes(cells[i] ?? "")));
    section.append(element("tr", {}, ...row));
    return null;
  }

  closeLeaf() {
    this.leaf?.render();
    this.leaf = null;
    this.kind = null;
    this.fence = null;
    this.table = null;
  }
}

export function renderMarkdown(root, text) {
  const stream = new MarkdownStream(root);
  stream.append(text);
  stream.end();
}
