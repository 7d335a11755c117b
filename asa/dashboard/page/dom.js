// Elements, made of names, attributes and text: nothing that comes from a run is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

// Attributes: `class`, `on` (event -> listener), `vars` (CSS property -> value), others as they are; null leaves one out.
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "vars") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);

export const s = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

export const byId = (id) => document.getElementById(id);

// New content, unless it would look the same: what is focused or selected stays so.
export function show(place, key, make) {
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  place.replaceChildren(...[make()].flat(Infinity).filter(Boolean));
}

export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
