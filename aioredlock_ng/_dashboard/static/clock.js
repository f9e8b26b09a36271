// The server's time as far as the browser knows it, and what counts by it: ages and times left.

import { setText } from "./dom.js";
import { span } from "./text.js";

const STEP = 1; // seconds by which the server's clock may seem to go back before it is believed

let offset = null; // of the server's clock to that of the browser's page, in seconds

const local = () => performance.now() / 1000; // not the time of day: that one may be set

// Takes the time that an event was made at.  The one that was under way least tells the most.
export function heard(at) {
  const found = at - local();
  if (offset === null || Math.abs(found - offset) > STEP) offset = found;
  else offset = Math.max(offset, found);
}

export const serverNow = () => local() + (offset ?? Date.now() / 1000 - local());

const RUNNING = "[data-until], [data-since]";

function refresh(node) {
  const { until, since, prefix = "" } = node.dataset;
  const text = until === undefined ? span(Math.floor(serverNow() - since)) : span(Math.ceil(until - serverNow()));
  setText(node, prefix + text);
}

// Has `node` say how long it is until a moment, from now on; null: `otherwise` stands there.
export function countDown(node, until, otherwise = "–", prefix = "") {
  run(node, "until", until, otherwise, prefix);
}

// Has `node` say how long it is since a moment, from now on.
export function countUp(node, since, otherwise = "–", prefix = "") {
  run(node, "since", since, otherwise, prefix);
}

function run(node, way, moment, otherwise, prefix) {
  if (moment === null || moment === undefined) {
    delete node.dataset[way];
    setText(node, otherwise);
    return;
  }
  node.dataset[way] = moment;
  if (prefix) node.dataset.prefix = prefix;
  refresh(node);
}

// Calls `each` every second, and has all counting texts go on.
export function startTicking(each) {
  setInterval(() => {
    if (!document.hidden) for (const node of document.querySelectorAll(RUNNING)) refresh(node);
    each();
  }, 1000);
}
