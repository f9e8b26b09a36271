// The page of one lock.

import { countUp } from "./clock.js";
import { holderText, showState, showTimeLeft, waitingText } from "./columns.js";
import { byId, el, keyed, setAttribute, setIcon, setText, show } from "./dom.js";
import { addHistory, clearHistory } from "./history.js";
import { counted, kindText, moment, setName } from "./text.js";

const FEW = 3; // readers or permits of a node that are named; the rest is counted
const LOOKS = 3; // times that the row is shown, after which the lock itself should have been heard of

let looks = 0;

// Begins the page of a lock that nothing is known of yet, but perhaps its row in the table.
export function openLock(name, row) {
  looks = 0;
  setName(byId("lock-name"), name);
  clearHistory();
  for (const id of ["lock-votes", "lock-shares", "lock-queue"]) show(byId(id), false);
  renderRow(row);
}

// Shows what the table has of it, until more is heard.  Of a name that no lock of the library can have, the
// server tells no more.
export function renderRow(row) {
  looks += 1;
  const waits = looks <= LOOKS;
  setText(byId("lock-asking"), waits ? "Asking the nodes…" : "No lock of this library can have this name.");
  show(byId("lock-asking"), true);
  renderSummary(row ?? null);
}

export function renderLock({ lock, happened }) {
  show(byId("lock-asking"), false);
  renderSummary(lock);
  renderVotes(lock);
  renderShares(lock);
  renderQueue(lock);
  addHistory(happened);
}

// -- summary -------------------------------------------------------------------------------------

const size = (value) => (Array.isArray(value) ? value.length : value);

// The moment at which something ends that was seen with the lock.
const until = ({ ttl }, { at }) => (ttl === null ? null : at + ttl);

const number = (value) => (value === null ? "–" : String(value));

function sharers(lock) {
  const [permits, readers] = [size(lock.permits), size(lock.readers)];
  if (permits) return counted(permits, "permit");
  return readers ? counted(readers, "reader") + (lock.more_readers ? " or more" : "") : "–";
}

const FACTS = [
  ["state", "State", (dd, lock) => showState(dd, lock.state)],
  ["kind", "Kind", (dd, lock) => setText(dd, kindText(lock))],
  ["holder", "Holder", (dd, lock) => setName(dd, holderText(lock, size(lock.permits) + size(lock.readers)))],
  ["ttl", "TTL left", (dd, lock) => showTimeLeft(dd, lock.state, lock.until)],
  ["age", "Age", (dd, lock) => countUp(dd, lock.since)],
  ["since", "Since", (dd, lock) => setText(dd, lock.since === null ? "–" : moment(lock.since))],
  ["nodes", "Nodes", (dd, lock) => setText(dd, `${lock.held_by} of ${lock.size}`)],
  ["fence", "Fence ≤", (dd, lock) => setText(dd, number(lock.highest_fence))],
  ["shared", "Shared", (dd, lock) => setText(dd, sharers(lock))],
  ["waiting", "Queue", (dd, lock) => setText(dd, waitingText(lock))],
];

function renderSummary(lock) {
  const newFact = ([key, title]) => {
    const dd = el("dd", { "data-field": key });
    return { node: el("div", {}, el("dt", {}, title), dd), dd };
  };
  // Nothing is said where nothing is known.
  const known = { fence: lock?.highest_fence, waiting: lock?.waiting };
  const facts = lock ? FACTS.filter(([key]) => !(key in known) || known[key] !== null) : [];
  keyed(
    byId("lock-summary"),
    facts,
    ([key]) => key,
    newFact,
    ({ dd }, [, , tell]) => tell(dd, lock),
  );
  setAttribute(byId("view-lock"), "data-state", lock?.state);
}

// -- tables --------------------------------------------------------------------------------------

// Rows with cells for `columns`, pairs of a key and what shows an item in a cell.
function rows(body, items, columns) {
  const newRow = () => {
    const cells = columns.map(([key]) => el("td", { role: "cell", "data-field": key }));
    return { node: el("tr", { role: "row" }, ...cells), cells };
  };
  const update = (view, [, item]) =>
    columns.forEach(([, tell], place) => tell(view.cells[place], item, view.node));
  keyed(body, [...items.entries()], ([place]) => place, newRow, update);
}

function renderVotes(lock) {
  show(byId("lock-votes"), true);
  rows(
    byId("votes-body"),
    lock.nodes.map((node) => ({ ...node, lock })),
    [
      ["node", (td, node, tr) => (setName(td, node.node), setAttribute(tr, "data-node", node.node))],
      ["vote", showVote],
      ["holder", showNodeHolder],
      ["age", (td, node) => countUp(td, node.since)],
      ["ttl", (td, node) => showTimeLeft(td, node.held ? "held" : "free", until(node, lock))],
      ["fence", (td, node) => setText(td, number(node.fence_counter))],
    ],
  );
  const fences = lock.nodes.some((node) => node.fence_counter !== null);
  byId("lock-votes").classList.toggle("no-fences", !fences);
}

const VOTES = {
  true: ["held", "held"],
  false: ["not held", "hollow"],
  null: ["no vote", "unknown"],
};

function showVote(td, { held, reason }, tr) {
  const [word, shape] = VOTES[held];
  setAttribute(tr, "data-vote", word);
  if (!td.firstChild) td.append(el("span"), el("span", { class: "word" }), el("span", { class: "reason" }));
  const [icon, text, why] = td.children;
  setIcon(icon, shape);
  setText(text, word);
  setName(why, reason || "");
  show(why, Boolean(reason));
}

// A node that has another holder than the majority is marked.
function showNodeHolder(td, node) {
  const { lock } = node;
  const several = [...node.readers.map(({ holder }) => holder), ...node.permits.map(permitText)];
  if (several.length) {
    const rest = several.length - FEW;
    const more =
      rest > 0 || node.more_readers ? ` and ${Math.max(rest, 0) || ""} more`.replace("  ", " ") : "";
    setName(
      td,
      several
        .slice(0, FEW)
        .map((text) => text ?? "–")
        .join(", ") + more,
    );
  } else {
    setName(td, node.held ? node.holder : null);
  }
  const alone = !several.length && !size(lock.readers) && !size(lock.permits);
  const other = alone && node.held && (node.holder !== lock.holder || node.since !== lock.since);
  setAttribute(td, "data-level", other ? "warning" : null);
}

const permitText = ({ slot, holder }) => `slot ${slot}: ${holder ?? "–"}`;

function renderShares(lock) {
  const permits = lock.permits.length > 0;
  const shares = permits ? lock.permits : lock.readers;
  show(byId("lock-shares"), shares.length > 0);
  setText(byId("shares-title"), permits ? "Permits" : "Readers");
  show(byId("shares-slot"), permits);
  show(byId("shares-more"), Boolean(lock.more_readers));
  rows(byId("shares-body"), shares, [
    ["slot", (td, { slot }) => (setText(td, number(slot ?? null)), show(td, permits))],
    ["holder", (td, { holder }) => setName(td, holder)],
    ["age", (td, { since }) => countUp(td, since)],
    ["ttl", (td, share) => showTimeLeft(td, "held", until(share, lock))],
    ["nodes", (td, { held_by: held }) => setText(td, `${held}/${lock.size}`)],
  ]);
}

function renderQueue({ queue, size }) {
  show(byId("lock-queue"), queue !== null);
  if (queue === null) return;
  const { waiters, writers, silent } = queue;
  show(byId("queue-table"), waiters.length > 0);
  rows(byId("queue-body"), waiters, [
    ["place", (td, { place }) => setText(td, place === 0 ? "0 (next)" : String(place))],
    ["holder", (td, { holder }) => setName(td, holder)],
    ["since", (td, { since }) => countUp(td, since)],
    ["known-to", (td, { known_to: known }) => setText(td, `${known}/${size}`)],
  ]);
  const notes = [
    waiters.length || writers.length ? "" : "The queue is empty.",
    writers.length ? `Writers that wait: ${writers.map((holder) => holder ?? "another program").join(", ")}.` : "",
    queue.more_waiters ? "More waiters are not listed." : "",
  ];
  for (const { node, reason } of silent) notes.push(`${node} did not report its queue: ${reason}.`);
  setName(byId("queue-note"), notes.filter(Boolean).join(" ") || " ");
}
