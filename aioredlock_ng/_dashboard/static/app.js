// The page as a whole: session, stream, which view is shown, keys.

import { getSession, post } from "./api.js";
import { countUp, serverNow, startTicking } from "./clock.js";
import { byId, clear, setAttribute, setText, show } from "./dom.js";
import { openLock, renderLock, renderRow } from "./lockpage.js";
import { renderNodes } from "./nodes.js";
import { closeRelease, openRelease, startRelease } from "./release.js";
import { openSignIn, startSignIn } from "./signin.js";
import { renderSparks } from "./sparks.js";
import { renderStatus, titleOf } from "./status.js";
import { Store } from "./store.js";
import { Stream } from "./stream.js";
import { LockTable } from "./table.js";
import { decodeName, visible } from "./text.js";

const WIRE_VERSION = 2;
const SESSION_PAUSE = 3000; // milliseconds between two questions for the session, at the start

const store = new Store();
const table = new LockTable(store, draw);
const stream = new Stream({
  state(event) {
    store.state(event);
    took();
  },
  change(event) {
    store.change(event);
    took();
  },
  lock: tookLock,
  problem: ({ detail }) => setProblem(detail),
  signedOut: () => toSignIn("You have been signed out."),
  lost: (detail) => setLost(detail ? `Stream lost (${detail}), retrying` : "Stream lost, retrying"),
  mayOpen,
});

let session = null;
let current = null; // the name of the lock whose page is shown; null: the overview
let lastLock = null; // as the server sent it last
let lost = "";
let problem = "";
let address = location.hash;
let scrolled = 0; // where the overview was left
let drawing = false;

// -- what the server tells -----------------------------------------------------------------------

function took() {
  setLost("");
  setProblem("");
  if (store.head.version !== WIRE_VERSION) outdated();
  if (current !== null && lastLock === null) renderRow(store.locks.get(current)?.row);
  draw();
}

// The server is another one by now: its page is loaded, once for each version.
function outdated() {
  const version = String(store.head.version);
  if (sessionStorage.getItem("version") === version) {
    setProblem("The server runs another version than this page: reload the page.");
  } else {
    sessionStorage.setItem("version", version);
    location.reload();
  }
}

function tookLock(event) {
  if (event.name !== current) return;
  lastLock = event.lock;
  setLost("");
  renderLock(event);
  renderReleaseButton();
}

function setLost(text) {
  lost = text;
  banner("banner-stream", text);
}

function setProblem(text) {
  problem = text;
  banner("banner-problem", text);
}

function banner(id, text) {
  setText(byId(id), visible(text || " ").trim());
  show(byId(id), text !== "");
  setAttribute(document.body, "data-stale", lost || problem ? "" : null);
  renderTitle();
}

// -- drawing -------------------------------------------------------------------------------------

function renderTitle() {
  const title = titleOf(store.head, lost !== "", current === null ? null : visible(current));
  if (document.title !== title) document.title = title;
}

// At the next frame: however many events come before it, the page is drawn once, and not while it is hidden.
function draw() {
  renderTitle();
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    const { head } = store;
    if (head === null) return;
    show(byId("loading"), false);
    stream.interval = head.interval;
    renderStatus(head);
    countUp(byId("updated"), head.at, "", "updated % ago");
    if (byId("view-overview").hidden) return;
    renderNodes(head);
    renderSparks(store);
    table.render();
  });
}

function view(name) {
  document.body.dataset.view = name;
  show(byId("loading"), name !== "sign-in" && store.head === null);
  show(byId("view-sign-in"), name === "sign-in");
  show(byId("view-overview"), name === "overview");
  show(byId("view-lock"), name === "lock");
  show(byId("status"), store.head !== null && (name === "overview" || name === "lock"));
}

function renderReleaseButton() {
  const may = session?.may_release && session.signed_in;
  show(byId("release"), Boolean(may && lastLock !== null && lastLock.state !== "free"));
}

// -- session -------------------------------------------------------------------------------------

const mustSignIn = () => session.needs_token && !session.signed_in;

async function start(notKept = "") {
  session = await getSession();
  if (session === null) {
    setLost("The server does not answer, retrying");
    setTimeout(start, SESSION_PAUSE, notKept);
    return;
  }
  setLost("");
  if (mustSignIn()) toSignIn(notKept);
  else route();
}

async function signedIn() {
  await start("The browser did not store the session cookie.");
  if (document.body.dataset.view === "overview") byId("main").focus({ preventScroll: true });
}

// Asked before the stream is opened again.
async function mayOpen() {
  const found = await getSession();
  if (found === null) return false;
  session = found;
  renderReleaseButton();
  if (!mustSignIn()) return true;
  toSignIn("Your session has ended.");
  return false;
}

function toSignIn(reason) {
  stream.close();
  closeRelease();
  session = { ...session, signed_in: false };
  forget();
  lastLock = null;
  setLost("");
  setProblem("");
  setText(byId("updated"), "");
  show(byId("sign-out"), false);
  view("sign-in");
  openSignIn(reason);
}

// Nothing of what was shown stays in the document.
function forget() {
  store.clear();
  stream.forget();
  current = null;
  for (const list of document.querySelectorAll("[data-heard]")) clear(list);
}

async function signOut() {
  await post("sign-out", {});
  toSignIn("");
}

// -- which view ----------------------------------------------------------------------------------

const nameInAddress = () =>
  location.hash.startsWith("#lock=") ? decodeName(location.hash.slice("#lock=".length)) : null;

function route() {
  if (session === null || mustSignIn()) return;
  const before = current;
  current = nameInAddress();
  lastLock = null;
  closeRelease();
  if (document.body.dataset.view === "overview") scrolled = scrollY;
  show(byId("sign-out"), session.needs_token);
  renderReleaseButton();
  stream.open(current);
  if (current === null) {
    toOverview(before);
  } else {
    view("lock");
    openLock(current, store.locks.get(current)?.row);
    scrollTo(0, 0);
    byId("lock-name").focus({ preventScroll: true });
  }
  draw();
}

// Goes back to where the reader was: to the row of the lock that was looked at.
function toOverview(before) {
  view("overview");
  if (before === null || store.head === null) return;
  table.render();
  scrollTo(0, scrolled);
  const links = byId("locks-body").querySelectorAll("a");
  [...links].find(({ hash }) => hash === address)?.focus({ preventScroll: true });
}

addEventListener("hashchange", () => {
  route();
  address = location.hash;
});

// -- keys ----------------------------------------------------------------------------------------

const isField = (node) => node.matches?.("input, select, textarea");

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("release-dialog").open) return;
  if (event.key === "/" && !isField(event.target) && !byId("view-overview").hidden) {
    event.preventDefault();
    byId("search").focus();
  } else if (event.key === "Escape" && !byId("view-lock").hidden) {
    location.hash = "";
  }
});

byId("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment says which lock is shown
  byId("main").focus();
});

byId("sign-out").addEventListener("click", signOut);
byId("release").addEventListener("click", () => openRelease(current, lastLock));

startSignIn(signedIn);
startRelease(() => toSignIn("Your session has ended."));
startTicking(() => {
  stream.watch();
  const late = store.head !== null && serverNow() - store.head.at > 3 * store.head.interval + 5;
  setAttribute(byId("updated"), "data-level", late ? "warning" : null);
});
start();
