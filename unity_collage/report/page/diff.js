// The address behind # names a part by the last value that it computes, such as main:r5. So each choice has a link.
const functions = Object.keys(all.functions);
const SAME = "same kernel";
let name, plans, backends = [];

const color = (backend) => colorOf(backend, backends);
const signed = (seconds) => (seconds ? `${seconds < 0 ? "-" : "+"}${duration(Math.abs(seconds))}` : "0");
const shareOf = (part) => (part === null ? "" : `${(part * 100).toFixed(1)}%`);
const time = (seconds) => (seconds ? duration(seconds) : "");
const address = (part) => `#${encodeURIComponent(name)}:${encodeURIComponent(part.layer)}`;
const known = (seconds) => seconds !== null && seconds !== undefined;

function open(chosen) {
  name = chosen;
  plans = all.functions[chosen];
  backends = [...new Set(plans.by_backend.map((each) => each.backend))].sort();
  plans.parts.forEach((part, number) => {
    const kernels = [...part.first, ...part.second];
    part.number = number;
    part.text = [part.change, ...part.layers, ...kernels.flatMap((k) => [k.backend, k.label, k.function])].join(" ").toLowerCase();
  });
  const changes = [["differs", "what differs"], ["", "all"], ...plans.by_change.map(({ change }) => [change, change])];
  at("change").replaceChildren(...changes.map(([value, text]) => el("option", { value }, text)));
  showHead();
  showStrips();
  showSums();
  showParts();
}

function showHead() {
  at("which").replaceChildren(...["first", "second"].flatMap((side) => [el("dt", null, side), el("dd", null, all[side])]));
  at("headline").textContent = `${name}: ${plans.says}`;
  at("measured").textContent = plans.measured_says;
  at("alone").textContent = [plans.remark, ...["first", "second"].filter((side) => all[`only_${side}`].length)
    .map((side) => `Only the ${side} has plans of ${all[`only_${side}`].join(", ")}.`)].join(" ").trim();
  at("legend").replaceChildren(...backends.map((backend) => el("span", { class: "key" }, dot(backend), backend)));
}

// Both plans on one scale: the slower one fills the width.
function showStrips() {
  const most = Math.max(plans.first.seconds || 0, plans.second.seconds || 0);
  at("strips").hidden = !most;
  for (const side of ["first", "second"]) {
    const kernels = plans.parts.flatMap((part) => part[side].map((kernel) => ({ ...kernel, part })));
    const dense = kernels.length > 150 ? "dense" : "";
    at(`time-${side}`).textContent = time(plans[side].seconds);
    at(`strip-${side}`).replaceChildren(...kernels.sort((a, b) => a.number - b.number).map(({ part, ...kernel }) => el("a", {
      href: address(part), tabindex: "-1", "data-part": part.number,
      class: `${dense} ${part.change === SAME ? "same" : ""}`,
      title: `${kernel.backend} ${kernel.label}: ${duration(kernel.seconds)}\n${part.layer}: ${part.change}`,
      "aria-label": `${kernel.backend} ${kernel.label}, ${duration(kernel.seconds)}, ${part.layer}, ${part.change}`,
      style: `width:${most ? (kernel.seconds / most) * 100 : 0}%;background:${color(kernel.backend)}`,
    })));
    setStop(at(`strip-${side}`).firstElementChild);
  }
}

// The tab key stops at one kernel of each plan; the arrow keys move from there.
function setStop(link) {
  if (!link) return;
  for (const other of link.parentElement.children) other.setAttribute("tabindex", other === link ? 0 : -1);
}

const inOtherPlan = (link) => [...document.querySelectorAll(`.strip a[data-part="${link.dataset.part}"]`)].find((one) => one.parentElement !== link.parentElement);
const ARROWS = {
  ArrowLeft: (link) => link.previousElementSibling, ArrowRight: (link) => link.nextElementSibling,
  ArrowUp: inOtherPlan, ArrowDown: inOtherPlan,
  Home: (link) => link.parentElement.firstElementChild, End: (link) => link.parentElement.lastElementChild,
};

function pressed(event) {
  const link = event.target.closest(".strip a"), arrow = ARROWS[event.key];
  if (!link || !arrow || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const next = arrow(link);
  if (!next) return;
  setStop(next);
  next.focus();
}

function showSums() {
  const rows = plans.by_change.map((each) => [each.change, each.parts, each.seconds, each.share]);
  if (known(plans.between_seconds)) {
    const share = known(plans.seconds) && rows.some((row) => row[3] !== null) ? plans.between_seconds / plans.seconds : null;
    rows.push(["launches, transitions", "", plans.between_seconds, share], ["together", "", plans.seconds, share === null ? null : 1]);
  }
  at("changes").tBodies[0].replaceChildren(...rows.map(([change, parts, seconds, share]) => el("tr", null, el("td", null, change),
    el("td", { class: "n" }, String(parts)), el("td", { class: "n" }, known(seconds) ? signed(seconds) : ""), el("td", { class: "n" }, shareOf(share)))));
  at("backends").tBodies[0].replaceChildren(...plans.by_backend.map((each) => el("tr", null, el("td", null, dot(each.backend), each.backend),
    ...["first", "second"].map((side) => el("td", { class: "n" }, time(each[`${side}_seconds`]), el("span", { class: "kind" }, count(each[`${side}_kernels`], "kernel")))),
    el("td", { class: "n" }, known(each.seconds) ? signed(each.seconds) : ""))));
}

function wanted(part) {
  const change = at("change").value;
  const isKind = change === "differs" ? part.change !== SAME || part.seconds : !change || part.change === change;
  return isKind && part.text.includes(at("find").value.trim().toLowerCase());
}

function shownParts() {
  const rows = plans.parts.filter(wanted);
  return at("order").value === "difference" ? rows.sort((a, b) => Math.abs(b.seconds) - Math.abs(a.seconds)) : rows;
}

// Enter in the search field chooses the next part that is shown.
function chooseNext() {
  const rows = shownParts();
  if (rows.length) location.hash = address(rows[(rows.indexOf(chosen()) + 1) % rows.length]);
}

function showParts() {
  const rows = shownParts();
  const most = Math.max(...rows.map((part) => Math.abs(part.seconds)), 0), sum = rows.reduce((total, part) => total + part.seconds, 0);
  at("count").textContent = `${count(rows.length, "part")} of ${plans.parts.length}${known(plans.seconds) ? `, ${signed(sum)}` : ""}`;
  at("parts").tBodies[0].replaceChildren(...rows.map((part) => {
    const noise = part.within_noise && part.seconds ? el("span", { class: "kind" }, "within noise") : null;
    const bar = part.seconds ? el("span", { class: part.seconds > 0 ? "more" : "less", style: `width:${(Math.abs(part.seconds) / most) * 100}%` }) : null;
    return el("tr", { "data-part": part.number },
      el("td", null, el("a", { href: address(part) }, part.layer), el("span", { class: "kind" }, part.change)),
      el("td", null, ...lines(part.first)), el("td", null, ...(part.change === SAME ? ["the same"] : lines(part.second))),
      el("td", { class: "n" }, time(part.first_seconds)), el("td", { class: "n" }, time(part.second_seconds)),
      el("td", { class: "n" }, known(part.seconds) ? signed(part.seconds) : "", noise, bar), el("td", { class: "n" }, shareOf(part.share)));
  }));
  mark();
}

function lines(kernels) {
  if (!kernels.length) return [el("span", { class: "quiet" }, "none")];
  const shown = kernels.slice(0, 3).map((k) => el("span", { class: "kernel-line" }, dot(k.backend), `${k.backend} ${k.label}`));
  return kernels.length > 3 ? [...shown, el("span", { class: "kind" }, `and ${kernels.length - 3} more`)] : shown;
}

function chosen() {
  const [first, ...rest] = location.hash.slice(1).split(":").map(decodeURIComponent);
  if (!functions.includes(first)) return null;
  if (first !== name) {
    at("function").value = first;
    open(first);
  }
  const layer = rest.join(":");
  return plans.parts.find((part) => part.layer === layer) || plans.parts.find((part) => part.layers.includes(layer)) || null;
}

function mark() {
  const part = chosen(), number = part ? String(part.number) : "none";
  for (const one of document.querySelectorAll("[data-part]")) one.classList.toggle("here", one.dataset.part === number);
  showPart(part);
}

function showPart(part) {
  at("right").classList.toggle("chosen", Boolean(part));
  if (!part) {
    at("right").replaceChildren(el("p", { class: "quiet" }, "Choose a part to see its kernels in both plans, and what they compute."));
    return;
  }
  const share = part.share === null ? "" : `, ${shareOf(part.share)} of the whole difference`;
  const sum = known(part.seconds) ? `: ${signed(part.seconds)}${share}${part.within_noise ? "; the measured intervals overlap" : ""}` : "";
  at("right").replaceChildren(el("h2", null, part.layer), el("p", null, `${part.change}${sum}`),
    ...["first", "second"].flatMap((side) => [el("h3", null, `${side}: ${all[side]}`), ...(part[side].length ? part[side].map(kernelOf) : [el("p", { class: "quiet" }, "no kernel")])]));
}

function kernelOf(kernel) {
  const interval = kernel.low < kernel.high ? ` (${duration(kernel.low)} to ${duration(kernel.high)})` : "";
  const threads = kernel.threads ? `, ${count(kernel.threads, "thread")}` : "";
  const device = kernel.device ? `, on ${kernel.device}` : "";
  return el("div", null, el("p", null, dot(kernel.backend), `${kernel.backend} ${kernel.label}${kernel.seconds ? `: ${duration(kernel.seconds)}${interval}` : ""}${threads}${device}`),
    el("p", { class: "quiet" }, kernel.bindings.join(", ")));
}

at("controls").addEventListener("input", (event) => {
  if (event.target.id === "function") location.hash = `${event.target.value}:`;
  else showParts();
});
at("controls").addEventListener("submit", (event) => {
  event.preventDefault();
  chooseNext();
});
at("strips").addEventListener("keydown", pressed);
window.addEventListener("hashchange", mark);
at("functions").hidden = functions.length < 2;
at("function").replaceChildren(...functions.map((each) => el("option", { value: each }, each)));
if (functions.length) open(functions[0]);
