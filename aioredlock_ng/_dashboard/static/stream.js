// The stream of events, opened again and again with growing pauses until it is closed.

import { whyNoStream } from "./api.js";
import { encodeName } from "./text.js";

const EVENTS = ["state", "change", "lock", "problem"];
const FIRST_PAUSE = 1; // seconds
const QUICK_PAUSE = 0.2;
const LONGEST_PAUSE = 30;
const SILENCE = 40; // seconds beyond three intervals after which a stream counts as lost

export class Stream {
  #source = null;
  #lock = null;
  #timer = 0;
  #failures = 0;
  #heard = 0;
  #worked = false; // whether anything came since it was opened
  #last = ""; // what the server calls the last that came
  interval = 1; // seconds between two events, as the server says

  // `on` has a method for each event, and besides: signedOut(), lost(detail), and mayOpen(), which asks the
  // server whether the session is still there.
  constructor(on) {
    this.on = on;
    addEventListener("online", () => this.#timer && this.#again(0));
  }

  // Opens it, with what happens to one lock besides, or without (null).
  open(lock = null) {
    this.close();
    if (lock !== this.#lock) this.#last = "";
    this.#lock = lock;
    const source = new EventSource(this.#address());
    this.#source = source;
    this.#heard = performance.now();
    this.#worked = false;
    for (const name of EVENTS) source.addEventListener(name, (event) => this.#take(source, name, event));
    source.addEventListener("signed-out", () => {
      this.close();
      this.on.signedOut();
    });
    source.addEventListener("error", () => this.#source === source && this.#fail());
  }

  close() {
    this.#source?.close();
    this.#source = null;
    clearTimeout(this.#timer);
    this.#timer = 0;
  }

  // What was heard is shown no longer: the next stream is to tell all.
  forget() {
    this.#last = "";
  }

  // To be called now and then: a connection that died without a word is found by its silence.
  watch() {
    const silent = (performance.now() - this.#heard) / 1000;
    if (this.#source && silent > SILENCE + 3 * this.interval) this.#fail();
  }

  #address() {
    const heard = `events?heard=${encodeURIComponent(this.#last)}`;
    return this.#lock === null ? heard : `${heard}&lock=${encodeName(this.#lock)}`;
  }

  #take(source, name, event) {
    if (this.#source !== source) return;
    this.#heard = performance.now();
    this.#failures = 0;
    this.#worked = true;
    this.#last = event.lastEventId;
    this.on[name](JSON.parse(event.data));
  }

  // The browser's own attempts never end and never slow down, so they are not left to it.
  async #fail() {
    const refused = this.#source.readyState === EventSource.CLOSED;
    this.close();
    // Some servers end streams now and then, to be able to stop: only a second failure is one.
    const [first, worked] = this.#worked ? [QUICK_PAUSE, true] : [FIRST_PAUSE, false];
    const pause = Math.min(LONGEST_PAUSE, first * 2 ** this.#failures) * (0.75 + Math.random() / 2);
    if (!worked) this.#failures += 1;
    if (!worked) this.on.lost(null);
    this.#again(pause);
    const timer = this.#timer;
    const detail = refused ? await whyNoStream(this.#address()) : null;
    if (detail && this.#timer === timer) this.on.lost(detail);
  }

  #again(pause) {
    clearTimeout(this.#timer);
    const timer = setTimeout(async () => {
      const may = await this.on.mayOpen();
      if (this.#timer !== timer) return; // closed, or opened otherwise, meanwhile
      if (may) this.open(this.#lock);
      else {
        this.on.lost(null);
        this.#again(Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** this.#failures++));
      }
    }, pause * 1000);
    this.#timer = timer;
  }
}
