// How answers are sampled, what the model is told about its task and which tools it has. Kept in
// this browser; what is left empty is not sent, so that the server's own defaults hold.

import { element } from "./dom.js";

const kStored = "atom-settings";

const kNumbers = [
  ["temperature", "Temperature", 0, 2, 0.05, "0 always takes the likeliest token"],
  ["top_p", "Top p", 0, 1, 0.01, "the likeliest tokens that make up this part"],
  ["top_k", "Top k", 0, 100000, 1, "the so many likeliest tokens; 0: all"],
  ["min_p", "Min p", 0, 1, 0.01, "tokens at least so likely, beside the likeliest"],
  ["max_completion_tokens", "Max tokens", 1, 10000000, 1, "of an answer"],
  ["seed", "Seed", 0, Number.MAX_SAFE_INTEGER, 1, "the same seed, the same answer"],
  ["presence_penalty", "Presence penalty", -2, 2, 0.1, "against tokens that were there"],
  ["frequency_penalty", "Frequency penalty", -2, 2, 0.1, "against tokens, for each time"],
  ["repetition_penalty", "Repetition penalty", 0.01, 10, 0.01, "1: none"],
];

const kEfforts = ["", "none", "minimal", "low", "medium", "high"];

function readJson(text, what, isRight) {
  if (text.trim() === "") return undefined;
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`${what}: ${error.message}`);
  }
  if (!isRight(value)) throw new Error(`${what}: not of the kind wanted`);
  return value;
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

export class Settings {
  constructor(dialog, fields) {
    this.dialog = dialog;
    this.controls = new Map();
    fields.append(...this.rows());
    this.load();
    dialog.addEventListener("close", () => this.save());
  }

  rows() {
    const rows = [this.row("system", "System message", element("textarea", { rows: "2" }))];
    const grid = element("div", { class: "grid" });
    for (const [name, label, min, max, step, hint] of kNumbers) {
      const input = element("input", { type: "number", min, max, step, placeholder: "default" });
      grid.append(this.row(name, label, input, hint));
    }
    const efforts = kEfforts.map((value) => element("option", { value }, value || "default"));
    grid.append(this.row("reasoning_effort", "Reasoning", element("select", {}, ...efforts),
                         "for templates that have it"));
    const themes = ["system", "light", "dark"].map((value) => element("option", { value }, value));
    grid.append(this.row("theme", "Colors", element("select", {}, ...themes)));
    this.controls.get("theme").addEventListener("change", () => this.showTheme());
    rows.push(grid);
    rows.push(this.row("stop", "Stop strings", element("textarea", { rows: "1" }), "one a line"));
    rows.push(this.row("tools", "Tools", element("textarea", { rows: "3", spellcheck: "false" }),
                       "JSON list, as the API takes it"));
    rows.push(this.row("more", "More fields", element("textarea", { rows: "2", spellcheck: "false" }),
                       "JSON object, added to every request"));
    return rows;
  }

  row(name, label, control, hint = "") {
    control.id = `setting-${name}`;
    this.controls.set(name, control);
    return element("div", { class: "setting" },
                   element("label", { for: control.id }, label), control,
                   element("span", { class: "hint" }, hint));
  }

  load() {
    let stored = {};
    try {
      stored = JSON.parse(localStorage.getItem(kStored)) ?? {};
    } catch {
      // Not ours, or not allowed: the defaults hold.
    }
    for (const [name, control] of this.controls) {
      control.value = stored[name] ?? (name === "theme" ? "system" : "");
    }
    this.showTheme();
  }

  save() {
    const stored = {};
    for (const [name, control] of this.controls) {
      if (control.value !== "") stored[name] = control.value;
    }
    localStorage.setItem(kStored, JSON.stringify(stored));
  }

  reset() {
    localStorage.removeItem(kStored);
    this.load();
  }

  showTheme() {
    document.documentElement.dataset.theme = this.controls.get("theme").value;
  }

  value(name) {
    return this.controls.get(name).value;
  }

  system() {
    return this.value("system").trim();
  }

  // The fields of a request that the settings ask for; throws an Error that says what is wrong.
  fields() {
    const fields = {};
    for (const [name, label] of kNumbers) {
      const control = this.controls.get(name);
      if (!control.validity.valid) throw new Error(`${label}: ${control.validationMessage}`);
      if (control.value !== "") fields[name] = control.valueAsNumber;
    }
    if (this.value("reasoning_effort")) fields.reasoning_effort = this.value("reasoning_effort");
    const stop = this.value("stop").split("\n").filter((line) => line !== "");
    if (stop.length > 0) fields.stop = stop;
    const tools = readJson(this.value("tools"), "Tools", Array.isArray);
    if (tools !== undefined) fields.tools = tools;
    return { ...fields, ...readJson(this.value("more"), "More fields", isObject) };
  }
}
