// The state that the server has sent: the head, the locks, and the course of some numbers.

import { heard } from "./clock.js";

export const POINTS = 120; // as many of each series are kept

const SERIES = {
  waiting: (head) => head.waiting,
  granted: (head) => head.since_last.granted + head.since_last.handed_over,
  expired: (head) => head.since_last.expired,
  managerWaiting: (head) => head.manager?.waiting ?? null,
  managerLost: (head, before) => grown(head.manager, before?.manager),
};

// The manager counts from its start; another process, or a new one, begins again.
function grown(now, before) {
  if (!now) return null;
  return before && now.lost >= before.lost ? now.lost - before.lost : 0;
}

export class Store {
  head = null;
  locks = new Map(); // by name: {name, lower, row}; an entry stays the same object, its row is replaced
  series = {};

  constructor() {
    this.clear();
  }

  clear() {
    this.head = null;
    this.locks = new Map();
    for (const name of Object.keys(SERIES)) this.series[name] = [];
  }

  state({ head, locks }) {
    const before = this.locks;
    this.locks = new Map();
    for (const [name, row] of Object.entries(locks)) {
      const entry = before.get(name) ?? newEntry(name);
      entry.row = row;
      this.locks.set(name, entry);
    }
    this.#look(head);
  }

  change({ head, locks, gone }) {
    for (const name of gone) this.locks.delete(name);
    for (const [name, row] of Object.entries(locks)) {
      const entry = this.locks.get(name) ?? newEntry(name);
      entry.row = row;
      this.locks.set(name, entry);
    }
    this.#look(head);
  }

  #look(head) {
    const before = this.head;
    this.head = head;
    if (before?.at === head.at) return; // sent again, to a stream that was opened again
    heard(head.at);
    const missed = before && head.at - before.at > 3 * head.interval + 2;
    for (const [name, value] of Object.entries(SERIES)) {
      const points = this.series[name];
      if (missed) points.push(null);
      points.push(value(head, before));
      points.splice(0, points.length - POINTS);
    }
  }
}

const newEntry = (name) => ({ name, lower: name.toLowerCase(), row: null });
