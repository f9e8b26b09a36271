// The strip on top: can locks be acquired, and for how long will that last.

import { byId, setAttribute, setIcon, setText, show } from "./dom.js";
import { countDown } from "./clock.js";
import { count, counted, visible } from "./text.js";

// Whether something is so wrong that the title says it, too.
export const trouble = (head) => 
  head !== null && (!head.available || head.margin <= 0 || head.disagreement.length > 0);

export function renderStatus(head) {
  show(byId("status"), head !== null);
  if (head === null) return;
  renderAvailability(head);
  setText(byId("banner-lists"), visible(head.disagreement.join("; ")));
  show(byId("banner-lists"), head.disagreement.length > 0);
  setText(byId("margin"), marginText(head));
  setAttribute(
    byId("margin"),
    "data-level",
    head.margin < 0 ? "bad" : head.margin === 0 ? "warning" : "good",
  );
  const size = head.nodes.length;
  setText(byId("answered"), `${head.answered} of ${size} answered, ${head.quorum} are needed`);
  setAttribute(byId("answered"), "data-level", answeredLevel(head));
  const more = head.truncated ? " or more" : "";
  const waiting = head.waiting ? `, ${count(head.waiting)} waiting` : "";
  setText(byId("totals"), `${counted(head.total, "lock")}${more}${waiting}`);
  setText(byId("locks-note"), head.truncated ? "There may be more locks than were searched." : "");
}

function renderAvailability(head) {
  setAttribute(byId("availability"), "data-state", head.available ? "available" : "unavailable");
  setIcon(byId("availability-icon"), head.available ? "good" : "bad");
  setText(byId("availability-text"), head.available ? "Locks can be acquired" : "No lock can be acquired");
  // Beside the text and not within: a live region would read out every second of it.
  const lasts = head.available ? null : head.unavailable_for;
  const until = lasts === null ? null : head.at + lasts;
  countDown(byId("availability-for"), until, head.available ? "" : "until more nodes are up", "for %");
}

const answeredLevel = ({ answered, quorum, nodes }) =>
  answered < quorum ? "bad" : answered < nodes.length ? "warning" : "good";

function marginText({ margin, nodes }) {
  if (margin < 0) return `${count(-margin)} more ${margin === -1 ? "node" : "nodes"} must come up`;
  if (margin === 0) return `None of ${nodes.length} nodes may fail`;
  return `${counted(margin, "more node")} may fail`;
}

// What the title of the window says.
export function titleOf(head, lost, name) {
  const mark = trouble(head) ? "(!) " : lost ? "(?) " : "";
  return `${mark}${name === null ? "" : `${name} – `}Locks`;
}
