// The columns of the table of locks: what each shows, and what it sorts by.

import { countDown, countUp } from "./clock.js";
import { el, setAttribute, setIcon, setText } from "./dom.js";
import { count, counted, encodeName, kindText, setName } from "./text.js";

export const STATES = { held: "held", partial: "warning", unknown: "unknown", free: "hollow" };

export const shared = (row) => row.readers + row.permits;

export function sharedText({ readers, permits, more_readers: more }) {
  const plus = more ? "+" : "";
  if (permits) return `${count(permits)}${plus} ${permits === 1 && !more ? "permit" : "permits"}`;
  return readers ? `${count(readers)}${plus} ${readers === 1 && !more ? "reader" : "readers"}` : "–";
}

// The first of several holders says little; `number` are the readers, or permits.
export const holderText = ({ holder, more_readers: more }, number) =>
  number > 1 ? counted(number, "holder") + (more ? " or more" : "") : holder;

export const waitingText = ({ waiting, more_waiting: more }) =>
  waiting === null ? "–" : `${count(waiting)}${more ? "+" : ""}`;

export function showState(cell, state) {
  setAttribute(cell, "data-state", state);
  if (!cell.firstChild) cell.append(el("span"), el("span", { class: "word" }));
  setIcon(cell.firstChild, STATES[state] ?? "unknown");
  setText(cell.lastChild, state);
}

// A lock that never ends unless it is released is worth a second look.
export function showTimeLeft(cell, state, until) {
  const endless = until === null && state !== "free" && state !== "unknown";
  countDown(cell, state === "free" ? null : until, endless ? "no expiry" : "–");
  setAttribute(cell, "data-level", endless ? "warning" : null);
}

const number = (cell, text, weak) => {
  setText(cell, text);
  cell.classList.toggle("nothing", weak);
};

// `order`: what a row sorts by, null last; `less`: the class of those that narrow pages drop.
export const COLUMNS = [
  {
    key: "name",
    title: "Name",
    order: (row, entry) => entry.lower,
    show(cell, row, entry) {
      if (cell.firstChild) return;
      const link = el("a", { href: `#lock=${encodeName(entry.name)}`, class: "name" });
      setName(link, entry.name);
      cell.append(link);
    },
  },
  {
    key: "state",
    title: "State",
    order: (row) => row.state,
    show: (cell, row) => showState(cell, row.state),
  },
  {
    key: "kind",
    title: "Kind",
    order: (row) => row.kind,
    show: (cell, row) => number(cell, kindText(row), row.kind === null),
  },
  {
    key: "holder",
    title: "Holder",
    order: (row) => holderText(row, shared(row)),
    show: (cell, row) => setName(cell, holderText(row, shared(row))),
  },
  {
    key: "age",
    title: "Age",
    order: (row) => (row.since === null ? null : -row.since),
    show: (cell, row) => countUp(cell, row.since),
  },
  {
    key: "ttl",
    title: "TTL left",
    order: (row) => row.until,
    show: (cell, row) => showTimeLeft(cell, row.state, row.until),
  },
  {
    key: "nodes",
    title: "Nodes",
    order: (row) => row.held_by,
    show(cell, row) {
      setText(cell, `${row.held_by}/${row.size}`);
      setAttribute(cell, "data-level", row.held_by < row.size ? "warning" : null);
    },
  },
  {
    key: "shared",
    title: "Shared",
    less: "rare",
    order: (row) => shared(row) || null,
    show: (cell, row) => number(cell, sharedText(row), !shared(row)),
  },
  {
    key: "waiting",
    title: "Queue",
    order: (row) => row.waiting,
    show(cell, row) {
      number(cell, waitingText(row), !row.waiting);
      setAttribute(cell, "title", row.waiting ? `${counted(row.waiting, "waiter")} in the queue` : null);
    },
  },
  {
    key: "fence",
    title: "Fence ≤",
    less: "rarest",
    order: (row) => row.highest_fence,
    show: (cell, { highest_fence: fence }) => number(cell, fence === null ? "–" : String(fence), fence === null),
  },
];
