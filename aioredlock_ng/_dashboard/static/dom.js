// Small helpers for the document.  Nothing here, or elsewhere, reads markup from data: names are hostile.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

// An element with attributes and children; children may be text, null or nodes.
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}

export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// These touch the document only where something differs.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (value === null || value === undefined) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

export function show(node, visible) {
  if (node.hidden === visible) node.hidden = !visible;
}

const views = new WeakMap();

// Makes the children of `parent` stand for `items`, in their order.  `make(item)` returns a view, an object
// with its element as `node`; `update(view, item)` is called for each item at each call.  Elements stay
// what they are, so that focus and selections do.
export function keyed(parent, items, keyOf, make, update) {
  const before = views.get(parent) ?? new Map();
  const now = new Map();
  for (const item of items) {
    const key = keyOf(item);
    const view = before.get(key) ?? make(item);
    update(view, item);
    now.set(key, view);
  }
  for (const [key, view] of before) if (!now.has(key)) view.node.remove();
  views.set(parent, now);
  arrange(parent, now.values());
}

// Empties `parent`, whatever filled it.
export function clear(parent) {
  views.delete(parent);
  delete parent.dataset.name;
  parent.replaceChildren();
}

function arrange(parent, ordered) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  let here = parent.firstElementChild;
  for (const { node } of ordered) {
    if (here !== node && here?.nextElementSibling === node)
      here.remove(); // one that moves down moves once
    else if (here !== node) parent.insertBefore(node, here);
    here = node.nextElementSibling;
  }
  if (focused && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

// Shapes that tell states apart without colour; words stand beside them always.
const SHAPES = {
  good: ["M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Z", "m4.7 8.2 2.3 2.3 4.4-4.8"],
  bad: ["M5.1 1h5.8L15 5.1v5.8L10.9 15H5.1L1 10.9V5.1Z", "m5.6 5.6 4.8 4.8m0-4.8-4.8 4.8"],
  warning: ["M8 1.3 15.4 14.5H.6Z", "M8 6v4.2m0 1.8v.4"],
  waiting: ["M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Z", "M8 4.2V8l2.6 2"],
  unknown: ["M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Z", "M6 6.2a2 2 0 1 1 2.8 1.9q-.8.4-.8 1.3m0 2v.2"],
  held: ["M8 4.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7Z", ""],
  hollow: ["M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Z", ""],
};

export function icon(shape) {
  const [body, mark] = SHAPES[shape];
  return svg(
    "svg",
    { viewBox: "0 0 16 16", class: `icon ${shape}`, "aria-hidden": "true", focusable: "false" },
    svg("path", { d: body, class: "body" }),
    svg("path", { d: mark, class: "mark" }),
  );
}

// Puts another icon into `node` where it is another one.
export function setIcon(node, shape) {
  if (node.dataset.icon === shape) return;
  node.dataset.icon = shape;
  node.replaceChildren(icon(shape));
}
