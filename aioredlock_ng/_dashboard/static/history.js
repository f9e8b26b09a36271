// What has happened to one lock since its page was opened, the newest first.

import { byId, clear, el, show } from "./dom.js";
import { moment, setName, span } from "./text.js";

const LONGEST = 500;
const LEVELS = { expired: "warning", silent: "warning", differs: "warning" };

const shown = new Set(); // as JSON: a stream that was opened again may send the same once more

export function clearHistory() {
  shown.clear();
  clear(byId("history"));
  show(byId("history-empty"), true);
}

export function addHistory(events) {
  const list = byId("history");
  for (const event of events) {
    const text = JSON.stringify(event);
    if (shown.has(text)) continue;
    shown.add(text);
    list.prepend(newLine(event, text));
  }
  while (list.children.length > LONGEST) {
    shown.delete(list.lastElementChild.text);
    list.lastElementChild.remove();
  }
  show(byId("history-empty"), !list.firstChild);
}

function newLine(event, text) {
  const time = el("time", { datetime: isoOf(event.at) }, moment(event.at));
  const words = el("span", { class: "what" }, ...sentence(event));
  const line = el("li", { "data-what": event.what, "data-level": LEVELS[event.what] }, time, words);
  line.text = text;
  return line;
}

function isoOf(at) {
  const date = new Date(at * 1000);
  return Number.isNaN(date.getTime()) ? null : date.toISOString();
}

function name(text) {
  if (text === null || text === undefined) return "an unknown holder";
  const node = el("span", { class: "name" });
  setName(node, text);
  return node;
}

// In parentheses: what kind it is of, which permit, for how long.
function more({ kind, slot, ttl }) {
  const known = (value) => value !== null && value !== undefined;
  const parts = [known(kind) ? kind : null, known(slot) ? `slot ${slot}` : null];
  if (known(ttl)) parts.push(`${span(ttl)} left`);
  const said = parts.filter(Boolean).join(", ");
  return said ? ` (${said})` : "";
}

const because = (reason) => (reason ? [": ", name(reason)] : []);

function sentence(event) {
  const { what, holder, before, place, node, reason } = event;
  switch (what) {
    case "free":
      return ["Free"];
    case "held":
      return ["Held by ", name(holder), more(event)];
    case "granted":
      return ["Granted to ", name(holder), more(event)];
    case "extended":
      return ["Extended by ", name(holder), more(event)];
    case "handed over":
      return ["Handed over from ", name(before), " to ", name(holder), more(event)];
    case "released":
      return ["Released by ", name(holder), more(event)];
    case "expired":
      return ["Expired: ", name(holder), " did not release it", more(event)];
    case "waits":
      return [name(holder), place === 0 ? " joined the queue, and is next" : ` joined the queue at place ${place}`];
    case "left":
      return [name(holder), " left the queue"];
    case "silent":
      return ["Node ", name(node), " does not answer", ...because(reason)];
    case "differs":
      return ["Node ", name(node), " differs from the majority", ...because(reason)];
    case "agrees":
      return ["Node ", name(node), " agrees with the majority again"];
    default:
      return [name(what)];
  }
}
