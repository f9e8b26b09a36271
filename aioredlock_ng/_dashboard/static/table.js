// The table of locks: searched, filtered, sorted, and a page of it in the document.

import { COLUMNS } from "./columns.js";
import { byId, el, keyed, setAttribute, setText, show } from "./dom.js";
import { count } from "./text.js";

const PAGE = 100; // rows in the document, at most

export class LockTable {
  #store;
  #changed;
  #sort = { column: COLUMNS[0], down: false };
  #filter = { text: "", state: "", kind: "" };
  #page = 0;
  #asked = false; // whether the reader waits for what is found
  #order = []; // entries as they were sorted last: nearly right the next time, and so quickly sorted

  // `changed` is called where the reader has asked for something else.
  constructor(store, changed) {
    this.#store = store;
    this.#changed = changed;
    this.#makeHead();
    this.#listen();
  }

  // Shows another page, or the same one in another order.
  #again(page = 0) {
    this.#page = page;
    this.#asked = true;
    this.#changed();
  }

  #makeHead() {
    for (const column of COLUMNS) {
      const button = el("button", { type: "button", "data-sort": column.key }, column.title);
      button.addEventListener("click", () => this.#sortBy(column));
      const attributes = {
        role: "columnheader",
        scope: "col",
        "data-column": column.key,
        class: column.less,
      };
      byId("locks-head").append(el("th", attributes, button));
      byId("sort-by").append(el("option", { value: column.key }, `by ${column.title.toLowerCase()}`));
    }
  }

  #sortBy(column, down = this.#sort.column === column && !this.#sort.down) {
    this.#sort = { column, down };
    this.#again();
  }

  #listen() {
    const fields = { text: byId("search"), state: byId("filter-state"), kind: byId("filter-kind") };
    for (const [key, field] of Object.entries(fields)) {
      field.addEventListener("input", () => {
        this.#filter[key] = key === "text" ? field.value.toLowerCase() : field.value;
        this.#again();
      });
    }
    byId("clear").addEventListener("click", () => {
      for (const [key, field] of Object.entries(fields)) this.#filter[key] = field.value = "";
      this.#again();
      fields.text.focus();
    });
    byId("sort-by").addEventListener("change", ({ target }) =>
      this.#sortBy(
        COLUMNS.find(({ key }) => key === target.value),
        false,
      ),
    );
    byId("sort-direction").addEventListener("click", () => this.#sortBy(this.#sort.column));
    byId("page-previous").addEventListener("click", () => this.#turn(-1));
    byId("page-next").addEventListener("click", () => this.#turn(1));
    byId("locks-body").addEventListener("click", follow);
    byId("locks-body").addEventListener("keydown", step);
  }

  #turn(by) {
    this.#again(this.#page + by);
    byId("locks-title").scrollIntoView({ block: "start" });
  }

  #matches = ({ name, lower, row }) => {
    const { text, state, kind } = this.#filter;
    if (state && row.state !== state) return false;
    if (kind && (row.kind ?? "other") !== kind) return false;
    return (
      !text || lower.includes(text) || name.includes(text) || (row.holder ?? "").toLowerCase().includes(text)
    );
  };

  #compare = (one, other) => {
    const { column, down } = this.#sort;
    const [a, b] = [column.order(one.row, one), column.order(other.row, other)];
    if (a === b) return one.name < other.name ? -1 : 1;
    if (a === null || b === null) return a === null ? 1 : -1; // what is unknown stands last both ways
    return a < b === down ? 1 : -1;
  };

  #sorted() {
    const { locks } = this.#store;
    const known = this.#order.filter((entry) => locks.get(entry.name) === entry);
    if (known.length < locks.size) {
      const seen = new Set(known);
      for (const entry of locks.values()) if (!seen.has(entry)) known.push(entry);
    }
    this.#order = known.sort(this.#compare);
    return this.#order;
  }

  render() {
    const found = this.#sorted().filter(this.#matches);
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    this.#page = Math.max(0, Math.min(this.#page, pages - 1));
    const first = this.#page * PAGE;
    const rows = found.slice(first, first + PAGE);
    const body = byId("locks-body");
    const focused = document.activeElement.closest("#locks-body tr")?.sectionRowIndex ?? null;
    keyed(body, rows, ({ name }) => name, newRow, update);
    // The one that had the focus is gone: what stands in its place has it, so that a reader's place is kept.
    if (focused !== null && !body.contains(document.activeElement)) {
      linkOf(body.rows[Math.min(focused, rows.length - 1)])?.focus({ preventScroll: true });
    }
    byId("locks").classList.toggle("no-fences", !this.#order.some(({ row }) => row.highest_fence !== null));
    this.#renderTools(found.length, pages, first, rows.length);
  }

  #renderTools(found, pages, first, size) {
    const { column, down } = this.#sort;
    for (const head of byId("locks-head").children) {
      const sorted = head.dataset.column === column.key;
      setAttribute(head, "aria-sort", sorted ? (down ? "descending" : "ascending") : null);
    }
    byId("sort-by").value = column.key;
    setText(byId("sort-direction"), down ? "↓" : "↑");
    setAttribute(byId("sort-direction"), "aria-label", down ? "Descending" : "Ascending");
    const filtered = Object.values(this.#filter).some(Boolean);
    show(byId("clear"), filtered);
    show(byId("locks"), found > 0);
    show(byId("locks-empty"), found === 0);
    const { answered, quorum } = this.#store.head ?? {};
    const none = answered < quorum ? "Too few nodes answered: locks may be held." : "No lock is held.";
    setText(byId("locks-empty"), filtered ? "No lock matches the filters." : none);
    byId("page-previous").disabled = this.#page === 0;
    byId("page-next").disabled = this.#page >= pages - 1;
    for (const id of ["page-previous", "page-next"]) show(byId(id), pages > 1);
    setText(byId("page-text"), pagesText(found, this.#store.locks.size, first, size));
    // Read out when it was asked for, and not at every change.
    if (this.#asked) setText(byId("found"), byId(found ? "page-text" : "locks-empty").textContent);
    this.#asked = false;
  }
}

function pagesText(found, all, first, size) {
  if (!found) return "";
  const of = found < all ? `${count(found)} found of ${count(all)}` : count(found);
  return `${count(first + 1)}–${count(first + size)} of ${of}`;
}

function newRow() {
  const cells = COLUMNS.map(({ key, title, less }) =>
    el("td", { role: "cell", "data-column": key, "data-title": title, class: less }),
  );
  return { node: el("tr", { role: "row" }, ...cells), cells, row: null };
}

function update(view, entry) {
  if (view.row === entry.row) return;
  view.row = entry.row;
  setAttribute(view.node, "data-state", entry.row.state);
  COLUMNS.forEach((column, place) => column.show(view.cells[place], entry.row, entry));
}

const linkOf = (row) => row?.querySelector("a") ?? null;

// A click anywhere in a row follows its link, but for one that selects text.
function follow(event) {
  if (event.target.closest("a") || event.button !== 0 || !getSelection().isCollapsed) return;
  linkOf(event.target.closest("tr"))?.click();
}

// Arrow keys go from row to row.
function step(event) {
  const beside = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const link = beside && linkOf(event.target.closest("tr")?.[beside]);
  if (!link) return;
  event.preventDefault();
  link.focus();
}
