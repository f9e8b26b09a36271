// Deleting a lock whatever its holders do: a dialog shows what is there, and only that is deleted.

import { detailOf, post } from "./api.js";
import { countUp } from "./clock.js";
import { byId, el, setText, show } from "./dom.js";
import { counted, kindText, moment, setName } from "./text.js";

const MOST_NAMED = 100;
const DELAY = 800; // milliseconds before another holder may be confirmed: a double click must not do it

let lockName = "";
let shown = null; // what the dialog shows, as it is agreed to; null: nothing can be released
let signedOut = () => {};

export function startRelease(onSignedOut) {
  signedOut = onSignedOut;
  byId("release-cancel").addEventListener("click", closeRelease);
  byId("release-confirm").addEventListener("click", confirm);
}

export function closeRelease() {
  if (byId("release-dialog").open) byId("release-dialog").close();
}

// Opens the dialog with a lock as the page shows it; what changes from now on does not change it.
export function openRelease(name, lock) {
  lockName = name;
  ask(lock);
  message("");
  byId("release-dialog").showModal();
  byId("release-cancel").focus();
}

function ask(lock) {
  shown = lock.state === "free" ? null : lock;
  setText(byId("release-title"), shown ? "Release this lock?" : "This lock is free");
  show(byId("release-warning"), shown !== null);
  show(byId("release-confirm"), shown !== null);
  show(byId("release-left"), false);
  byId("release-confirm").disabled = false;
  setText(byId("release-cancel"), shown ? "Cancel" : "Close");
  byId("release-facts").replaceChildren(...factsOf(lock));
}

function factsOf(lock) {
  const several = [
    ...lock.permits.map(({ slot, holder, since }) => holderLine(holder, since, `slot ${slot}: `)),
    ...lock.readers.map(({ holder, since }) => holderLine(holder, since)),
  ];
  const state = lock.state === "held" ? "" : `, ${lock.state}`;
  const facts = [fact("Name", "name", named(lockName)), fact("Kind", "kind", kindText(lock) + state)];
  if (several.length) {
    const rest = several.length - MOST_NAMED;
    const more = rest > 0 ? [el("li", {}, `and ${rest} more`)] : lock.more_readers ? [el("li", {}, "and more")] : [];
    facts.push(fact("Holders", "holders", el("ul", {}, ...several.slice(0, MOST_NAMED), ...more)));
  } else if (lock.state !== "free") {
    facts.push(fact("Holder", "holder", named(lock.holder)), fact("Since", "since", ...sinceOf(lock.since)));
  }
  return facts;
}

const fact = (title, key, ...value) =>
  el("div", {}, el("dt", {}, title), el("dd", { "data-field": key }, ...value));

function named(text) {
  const node = el("span", { class: "name" });
  setName(node, text);
  return node;
}

function sinceOf(since) {
  if (since === null) return ["unknown"];
  const age = el("span");
  countUp(age, since);
  return [`${moment(since)} (`, age, ")"];
}

const holderLine = (holder, since, before = "") =>
  el("li", {}, before, named(holder), ", since ", ...sinceOf(since));

function message(text) {
  setText(byId("release-message"), text);
  show(byId("release-message"), text !== "");
}

async function confirm() {
  if (!shown) return;
  const lock = shown;
  const { holder, since, state } = lock;
  const readers = lock.readers.map((each) => [each.holder, each.since]);
  const permits = lock.permits.map((each) => [each.holder, each.since]);
  const said = { name: lockName, holder, since, state, readers, permits, more: lock.more_readers };
  byId("release-confirm").disabled = true;
  setText(byId("release-confirm"), "Releasing…");
  const answer = await post("release", said);
  setText(byId("release-confirm"), "Release");
  if (shown === lock) react(answer);
}

function react(answer) {
  const { ok, status, body } = answer;
  if (ok) done(body);
  else if (status === 401) {
    closeRelease();
    signedOut();
  } else if (status === 409 && body?.lock) changed(body.lock);
  else {
    message(`Not released: ${detailOf(answer)}`);
    byId("release-confirm").disabled = false;
  }
}

// It is another lock by now, in a way: what is shown must be agreed to again.
function changed(lock) {
  ask(lock);
  const now = lock.state === "free" ? "The lock has been released meanwhile" : "The lock has changed hands meanwhile";
  message(`${now}: nothing was deleted.`);
  byId("release-cancel").focus();
  byId("release-confirm").disabled = true;
  setTimeout(() => {
    if (shown === lock) byId("release-confirm").disabled = false;
  }, DELAY);
}

function done({ deleted, nodes, left }) {
  shown = null;
  setText(byId("release-title"), "Released");
  message("");
  show(byId("release-warning"), false);
  show(byId("release-confirm"), false);
  const lines = left.map(({ node, reason }) => el("li", {}, named(node), ": ", named(reason)));
  byId("release-left").replaceChildren(
    el("li", {}, `Deleted on ${deleted} of ${counted(nodes, "node")}.`),
    ...lines,
  );
  show(byId("release-left"), true);
  setText(byId("release-cancel"), "Close");
  byId("release-cancel").focus();
}
