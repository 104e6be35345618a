"use strict";
// What the page of a plan and the page of two plans share.
const all = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "style") made.style.cssText = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function duration(seconds) {
  for (const [unit, factor] of [["s", 1], ["ms", 1e3], ["us", 1e6]]) {
    const value = seconds * factor;
    if (value >= 1) return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${unit}`;
  }
  return `${(seconds * 1e9).toFixed(0)} ns`;
}

const percent = (part) => (part > 0 && part < 0.001 ? "<0.1%" : `${(part * 100).toFixed(1)}%`);
const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

// Stands in the place of a backend for values that need no kernel.
const VIEW = "view";
// Views are grey. Colour-blind readers can tell the six other colours apart.
const colorOf = (backend, backends) => `var(--c${backend === VIEW ? 6 : backends.filter((other) => other !== VIEW).indexOf(backend) % 6})`;
// Each page defines color(backend).
const dot = (backend) => el("span", { class: "dot", style: `background:${color(backend)}` });
