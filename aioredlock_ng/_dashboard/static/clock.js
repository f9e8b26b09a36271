// The server's time as far as the browser knows it, and what counts by it: ages and times left.

import { setText } from "./dom.js";
import { span } from "./text.js";

const STEP = 1; // seconds that an event may have been under way longer than another
const BELIEVED = 3; // as many events in a row must be later than that: then the server's clock was set back

let offset = null; // of the server's clock to that of the browser's page, in seconds
let late = 0; // events in a row that seem to be late

const local = () => performance.now() / 1000; // not the time of day: that one may be set

// Takes the time that an event was made at.  The one that was under way least tells the most.
export function heard(at) {
  const found = at - local();
  late = offset !== null && found < offset - STEP ? late + 1 : 0;
  if (offset !== null && late < BELIEVED && found < offset) return;
  offset = found;
  late = 0;
}

export const serverNow = () => local() + (offset ?? Date.now() / 1000 - local());

const RUNNING = "[data-until], [data-since]";

function refresh(node) {
  const { until, since, pattern = "%" } = node.dataset;
  const text =
    until === undefined ? span(Math.floor(serverNow() - since)) : span(Math.ceil(until - serverNow()));
  setText(node, pattern.replace("%", text));
}

// Has `node` say how long it is until a moment, from now on, in a pattern; null: `otherwise` stands there.
export function countDown(node, until, otherwise = "–", pattern = "%") {
  run(node, "until", until, otherwise, pattern);
}

// Has `node` say how long it is since a moment, from now on.
export function countUp(node, since, otherwise = "–", pattern = "%") {
  run(node, "since", since, otherwise, pattern);
}

function run(node, way, moment, otherwise, pattern) {
  if (moment === null || moment === undefined) {
    delete node.dataset[way];
    setText(node, otherwise);
    return;
  }
  node.dataset[way] = moment;
  if (pattern !== "%") node.dataset.pattern = pattern;
  refresh(node);
}

// Calls `each` every second, and has all counting texts go on.
export function startTicking(each) {
  setInterval(() => {
    if (!document.hidden) for (const node of document.querySelectorAll(RUNNING)) refresh(node);
    each();
  }, 1000);
}
