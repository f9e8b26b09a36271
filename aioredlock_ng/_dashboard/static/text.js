// How names, numbers and spans of time are written.

import { el } from "./dom.js";

// What cannot be seen, or changes how its neighbours are seen: controls, bidi marks, zero widths, lone
// surrogates, unassigned code points, fillers, and all spaces but the ordinary one.
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]|(?! )\p{Zs}/gu;

// Bytes of a key that are not UTF-8 come as these (PEP 383).
const FIRST_BYTE = 0xdc80;
const LAST_BYTE = 0xdcff;

function escaped(character) {
  const code = character.codePointAt(0);
  const byte = FIRST_BYTE <= code && code <= LAST_BYTE;
  const digits = (byte ? code - 0xdc00 : code).toString(16).toUpperCase();
  return byte ? `⟨0x${digits}⟩` : `⟨U+${digits.padStart(4, "0")}⟩`;
}

// The text with all that cannot be seen written out.
export function visible(text) {
  return text === "" ? "⟨empty⟩" : text.replace(UNSEEN, escaped);
}

// Shows a name in `node`; what is written out is marked, so that it differs from a name that reads the same.
export function setName(node, text) {
  const full = text === null ? "" : visible(text);
  if (node.dataset.name === full && node.firstChild) return;
  node.dataset.name = full;
  node.classList.toggle("nothing", text === null);
  if (text === null) {
    node.removeAttribute("title");
    node.replaceChildren("–");
    return;
  }
  node.title = full;
  const pieces = [];
  let end = 0;
  for (const match of text.matchAll(UNSEEN)) {
    if (match.index > end) pieces.push(text.slice(end, match.index));
    pieces.push(el("span", { class: "escape" }, escaped(match[0])));
    end = match.index + match[0].length;
  }
  if (end < text.length) pieces.push(text.slice(end));
  if (text === "") pieces.push(el("span", { class: "escape" }, full));
  node.replaceChildren(...pieces);
}

const integers = new Intl.NumberFormat("en");

export const count = (number) => integers.format(number);

export function counted(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

// A span in the two greatest units that it has: 8 s, 2 min 05 s, 3 h 20 min, 12 d 4 h.
export function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const two = (number) => String(number).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor(whole / 60) % 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
}

// A short time, such as that of a round trip.
export function milliseconds(seconds) {
  const value = seconds * 1000;
  return value < 9.95 ? `${value.toFixed(1)} ms` : value < 9999 ? `${Math.round(value)} ms` : span(seconds);
}

const two = (number) => String(number).padStart(2, "0");

// A moment of the local day, with the date where it is another one.
export function moment(at) {
  const date = new Date(at * 1000);
  if (Number.isNaN(date.getTime())) return "–";
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
  if (date.toDateString() === new Date().toDateString()) return time;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}

// A key that tells no kind is another program's; without a key there is nothing to tell.
export const kindText = ({ kind, held_by: held }) => kind ?? (held ? "other program" : "–");

// The part of an address that means one lock: lone surrogates are escaped by JSON, which URLs cannot hold.
export const encodeName = (name) => encodeURIComponent(JSON.stringify(name));

export function decodeName(text) {
  let typed;
  try {
    typed = decodeURIComponent(text);
  } catch {
    return null;
  }
  try {
    const name = JSON.parse(typed); // as the page's own links have it: whatever the name is made of
    if (typeof name === "string") return name;
  } catch {
    // No JSON: a name that was typed.
  }
  return typed || null;
}
