// The tiles of the nodes.

import { countDown } from "./clock.js";
import { byId, el, keyed, setAttribute, setIcon, setText, show } from "./dom.js";
import { milliseconds, setName } from "./text.js";

const CLOCK_TOLERATED = 0.1; // seconds that a node's clock may differ before it is marked
const SHAPES = { up: "good", down: "bad", quarantined: "waiting", "read-only": "bad" };

export function renderNodes(head) {
  const silent = new Map(head.silent.map(({ node, reason }) => [node, reason]));
  const nodes = head.nodes.map((node) => ({ ...node, at: head.at, silent: silent.get(node.node) ?? null }));
  keyed(byId("nodes"), [...nodes.entries()], ([place]) => place, newTile, update);
}

function newTile() {
  const parts = {
    icon: el("span", { class: "tile-icon" }),
    name: el("strong", { class: "name", "data-field": "name" }),
    state: el("span", { class: "tile-state", "data-field": "state" }),
    votes: el("span", { class: "tile-votes", "data-field": "votes-in" }),
    trip: el("span", { "data-field": "round-trip", title: "Round trip" }),
    clock: el("span", { "data-field": "clock" }),
    reason: el("p", { class: "reason", "data-field": "reason" }),
    silent: el("p", { class: "reason", "data-field": "silent" }),
  };
  const head = el("p", { class: "tile-head" }, parts.icon, parts.name);
  const line = el("p", { class: "tile-line" }, parts.state, parts.votes, parts.trip, parts.clock);
  return { node: el("li", { class: "tile" }, head, line, parts.reason, parts.silent), ...parts };
}

function update(view, [, node]) {
  setAttribute(view.node, "data-node", node.node);
  setAttribute(view.node, "data-state", node.state);
  setIcon(view.icon, SHAPES[node.state] ?? "unknown");
  setName(view.name, node.node);
  setText(view.state, node.state);
  countDown(view.votes, node.votes_in === null ? null : node.at + node.votes_in, "", "votes in %");
  // What was measured before a node went down says nothing of now.
  const { round_trip: trip, clock } = node.state === "down" ? { round_trip: null, clock: null } : node;
  setText(view.trip, trip === null ? "" : milliseconds(trip));
  const off = clock !== null && Math.abs(clock) > CLOCK_TOLERATED;
  setText(view.clock, clock === null ? "" : `clock ${signed(clock)}`);
  setAttribute(view.clock, "data-level", off ? "warning" : null);
  setAttribute(
    view.clock,
    "title",
    off ? "How far the node's clock is ahead of the server's clock (+) or behind it (−)" : null,
  );
  reason(view.reason, node.reason, "");
  reason(view.silent, node.silent === node.reason ? null : node.silent, "read in part: ");
}

function reason(node, text, prefix) {
  setName(node, text ? prefix + text : "");
  show(node, Boolean(text));
}

function signed(seconds) {
  const sign = seconds < 0 ? "−" : "+";
  const size = Math.abs(seconds);
  return size < 10 ? `${sign}${milliseconds(size)}` : `${sign}${Math.round(size)} s`;
}
