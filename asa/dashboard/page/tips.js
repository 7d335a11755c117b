// Words beside the pointer.

import { byId } from "./dom.js";

export function about(words, event) {
  const tip = byId("tip");
  tip.hidden = words === null;
  if (words === null) return;
  tip.textContent = words;
  const { offsetWidth: width, offsetHeight: height } = tip;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 6))}px`;
  tip.style.top = `${event.clientY + 16 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 16}px`;
}
