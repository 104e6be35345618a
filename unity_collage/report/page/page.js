// The address behind # names a kernel by one of its bindings, such as main:lv3. So each choice has a link that can be
// sent.
const functions = Object.keys(all);
let name, plan, candidates, kernels;

const costOf = (candidate) => plan.costs[candidate.cost];
const address = (kernel) => `#${encodeURIComponent(name)}:${encodeURIComponent(plan.bindings[kernel.outlet].name)}`;
const short = (op) => op.split(".").pop();
const color = (backend) => colorOf(backend, plan.backends);
const names = (indexes) => indexes.map((index) => plan.bindings[index].name).join(", ");

function open(chosen) {
  name = chosen;
  plan = { kernels: [], candidates: [], costs: [], declined: [], left_behind: [], bindings: [], texts: [], ...all[chosen] };
  candidates = new Map(plan.candidates.map((candidate) => [candidate.id, candidate]));
  kernels = plan.kernels.map((kernel, number) => {
    const candidate = candidates.get(kernel.candidate);
    const hidden = new Set(candidate.hidden || []);
    const outlet = [...candidate.bindings].reverse().find((index) => !hidden.has(index));
    const seconds = costOf(candidate).seconds;
    const text = [candidate.label, candidate.backend, kernel.function || "", ...candidate.bindings.flatMap((i) => [plan.bindings[i].name, plan.bindings[i].op])];
    const share = shareOf(seconds);
    const time = (plan.in_place && plan.in_place.kernels[number]) || null;
    return { reads: [], rivals: [], ...kernel, number, time, candidate, outlet, seconds, share, text: text.join(" ").toLowerCase() };
  });
  plan.backends = [...new Set(plan.candidates.map((candidate) => candidate.backend))].sort();
  at("backend").replaceChildren(el("option", { value: "" }, "all"), ...plan.backends.map((b) => el("option", { value: b }, b)));
  showHead();
  showProof();
  showRest();
  showTimes();
  showMeasured();
  showMemory();
  showPicture();
  showList();
}

function showHead() {
  const measured = plan.candidates.filter((candidate) => costOf(candidate).seconds !== undefined).length;
  const views = kernels.filter((k) => k.candidate.backend === VIEW).length;
  const chosen = count(kernels.length - views, "kernel") + (views ? ` and ${count(views, "view")}` : "");
  at("headline").textContent = `${plan.label}: ${chosen} out of ${count(plan.candidates.length, "candidate")} (${measured} with a cost), predicted ${duration(plan.proof.seconds)}, launches and transitions included${plan.measured ? `; the whole program, measured: ${plan.measured}` : ""}`;
  const [says, show] = at("moves").children;
  says.textContent = plan.moves.says;
  show.hidden = !plan.moves.kernels.length;
  at("notice").textContent = plan.notice;
  at("notice").hidden = !plan.notice;
  showStrip();
  at("legend").replaceChildren(...plan.backends.map((backend) => {
    const own = kernels.filter((k) => k.candidate.backend === backend);
    return el("span", { class: "key" }, dot(backend), `${backend}: ${count(own.length, backend === VIEW ? "value" : "kernel")}, ${percent(together(own).share)}`);
  }));
}

// One part for each kernel. Where there are more than MOST_PARTS kernels, a part stands for several, so that it can be
// seen.
const MOST_PARTS = 500;
const kernelsAPart = () => Math.max(1, Math.ceil(kernels.length / MOST_PARTS));

function showStrip() {
  const size = kernelsAPart(), parts = [];
  for (let first = 0; first < kernels.length; first += size) parts.push(kernels.slice(first, first + size));
  at("strip").replaceChildren(...parts.map((own) => {
    const { seconds, share } = together(own), most = own.reduce((a, b) => (b.seconds > a.seconds ? b : a));
    const { backend, label } = most.candidate, more = own.length > 1 ? `${count(own.length, "kernel")}, the longest is ` : "";
    return el("a", { href: address(most), tabindex: "-1", class: kernels.length > 150 ? "dense" : "",
      title: `${more}${backend} ${label}; ${duration(seconds)}, ${percent(share)}`, style: `width:${share * 100}%;background:${color(backend)}` });
  }));
}

// The kernels that match the form.
function asked() {
  const backend = at("backend").value, text = at("find").value.trim().toLowerCase();
  return kernels.filter((kernel) => (!backend || kernel.candidate.backend === backend) && kernel.text.includes(text));
}

// Values by their key, in the order in which the keys first occur.
function groupedBy(key, some) {
  const found = new Map();
  for (const one of some) {
    const own = found.get(key(one));
    if (own) own.push(one);
    else found.set(key(one), [one]);
  }
  return found;
}

function groups() {
  const equal = at("equal").checked, found = groupedBy((kernel) => (equal ? kernel.candidate.cost : kernel.number), asked());
  const rows = [...found.values()].map((group) => ({ group, seconds: together(group).seconds }));
  const by = { time: ({ seconds }) => seconds, off: ({ group }) => deviation(group) }[at("order").value];
  return by ? rows.sort((a, b) => by(b) - by(a)) : rows;
}

// The most rows that are shown at once: a browser takes seconds for thousands of rows.
const ROWS = 100;
let rowsLeft = [];

function showMoreRows(number) {
  at("kernels").tBodies[0].append(...rowsLeft.splice(0, number).map((make) => make()));
  at("more").hidden = !rowsLeft.length;
  at("more").textContent = `Show ${Math.min(rowsLeft.length, 10 * ROWS)} more of ${count(rowsLeft.length, "row")}`;
}

// The part of the plan's cost, which is 0 where there are views only.
const shareOf = (seconds) => (plan.proof.seconds ? seconds / plan.proof.seconds : 0);

function showList() {
  const rows = groups(), most = rows.reduce((most, row) => Math.max(most, row.seconds), 0);
  const shown = rows.reduce((sum, row) => sum + row.group.length, 0);
  const seconds = rows.reduce((sum, row) => sum + row.seconds, 0);
  at("in-place").hidden = !hasTimes();
  at("count").textContent = `${count(shown, "kernel")}, ${percent(shareOf(seconds))} of the time`;
  at("kernels").tBodies[0].replaceChildren();
  rowsLeft = rows.map(({ group, seconds }) => () => {
    // Of equal kernels, the one with the smallest margin stands for all.
    const first = group.reduce((a, b) => (margin(b) < margin(a) ? b : a));
    const { backend, label } = first.candidate;
    const link = el("a", { href: address(first) }, label);
    const bar = el("span", { class: "bar", style: `width:${most ? (seconds / most) * 100 : 0}%;background:${color(backend)}` });
    return el("tr", { "data-kernels": group.map((k) => k.number).join(" ") },
      el("td", null, link, group.length > 1 ? el("span", { class: "quiet" }, ` x${group.length}`) : null),
      el("td", null, dot(backend), backend), el("td", { class: "n" }, duration(seconds)),
      el("td", { class: "n" }, percent(shareOf(seconds)), bar), ...inPlaceCells(group), el("td", null, nextBest(first)));
  });
  showMoreRows(ROWS);
  markFound();
  mark();
}

const margin = (kernel) => (kernel.margin === undefined ? Infinity : kernel.margin);

function nextBest(kernel) {
  if (kernel.ties) return `tie with ${candidates.get(kernel.ties[0][0]).backend}`;
  if (kernel.runner_up === undefined) return "none";
  const candidate = candidates.get(kernel.runner_up);
  const least = kernel.exact === false ? ">" : "";
  const more = kernel.margin ? `+${least}${duration(kernel.margin)}` : least ? "" : "equal";
  return `${candidate.backend}${candidate.label === kernel.candidate.label ? "" : ` ${candidate.label}`} ${more}`;
}

function chosen() {
  const [first, ...rest] = location.hash.slice(1).split(":");
  const wanted = { function: decodeURIComponent(first), binding: decodeURIComponent(rest.join(":")) };
  if (!functions.includes(wanted.function)) return null;
  if (wanted.function !== name) {
    at("function").value = wanted.function;
    open(wanted.function);
  }
  const index = plan.bindings.findIndex((binding) => binding.name === wanted.binding);
  const holders = kernels.filter((kernel) => kernel.candidate.bindings.includes(index));
  return holders.find((kernel) => kernel.outlet === index) || holders[0] || null;
}

function mark() {
  const kernel = chosen();
  markRows(kernel);
  markStrip(kernel);
  markPicture(kernel);
  showKernel(kernel);
}

function markStrip(kernel) {
  const parts = at("strip").children, before = at("strip").querySelector(".here");
  if (before) before.classList.remove("here");
  if (kernel) parts[Math.floor(kernel.number / kernelsAPart())].classList.add("here");
}

function markRows(kernel) {
  const number = kernel ? String(kernel.number) : "none";
  for (const row of at("kernels").tBodies[0].rows) row.classList.toggle("here", row.dataset.kernels.split(" ").includes(number));
}

function showKernel(kernel) {
  at("right").classList.toggle("chosen", Boolean(kernel));
  if (!kernel) {
    at("right").replaceChildren(el("p", { class: "quiet" }, "Choose a kernel to see why it won, by how much, and what would change the choice."));
    return;
  }
  const { candidate } = kernel, own = costOf(candidate), equal = kernels.filter((k) => k.candidate.cost === candidate.cost);
  const readers = kernels.filter((k) => k.reads.includes(kernel.number));
  const alone = " Costs are those of this kernel alone.";
  at("right").replaceChildren(...[
    el("h2", null, dot(candidate.backend), `${candidate.backend} ${candidate.label}`),
    el("p", null, `${duration(own.seconds)} a run${interval(own)}, ${percent(kernel.share)} of ${name}; rule ${candidate.rule}`),
    inPlaceText(kernel),
    kernel.function ? el("p", { class: "quiet" }, "function ", el("code", null, kernel.function), plan.devices[kernel.function] ? ` on ${plan.devices[kernel.function]}` : "") : null,
    equal.length > 1 ? el("p", { class: "quiet" }, `One of ${equal.length} equal kernels: `, ...links(equal), alone) : null,
    el("h3", null, "Why it won, and by how much"), el("p", { class: "say" }, kernel.why),
    el("h3", null, "What would change the choice"), rivals(kernel),
    el("h3", null, "What it computes"), bindings(candidate),
    el("p", null, "Reads from: ", ...links(kernel.reads.map((number) => kernels[number]), "the inputs of the function")),
    el("p", null, "Read by: ", ...links(readers, "no kernel: it is a result")),
    ...textsOf(kernel),
    el("h3", null, "Never in"), never(candidate),
  ].filter((part) => part !== null));
}

const interval = (found) => (found.runs ? ` (${duration(found.low)} to ${duration(found.high)}, ${count(found.runs, "run")}, ${found.origin})` : "");

function links(some, none) {
  if (!some.length) return [none || ""];
  const shown = some.slice(0, 12).flatMap((k) => [el("a", { href: address(k) }, plan.bindings[k.outlet].name), " "]);
  return some.length > 12 ? [...shown, `and ${some.length - 12} more`] : shown;
}

function bindings(candidate) {
  const hidden = new Set(candidate.hidden || []);
  const rows = candidate.bindings.map((index) => {
    const { name: called, op, type } = plan.bindings[index];
    return el("tr", null, el("td", null, called), el("td", null, short(op), hidden.has(index) ? " (computed again, not written)" : ""), el("td", null, type));
  });
  return el("table", { "aria-label": "What it computes" }, el("tbody", null, ...rows));
}

function rivals(kernel) {
  if (!kernel.rivals.length) return el("p", null, "Nothing: no other candidate with a cost computes any of its bindings.");
  const shown = [kernel.candidate, ...kernel.rivals.slice(0, 40).map((id) => candidates.get(id))];
  const most = Math.max(...shown.map((candidate) => costOf(candidate).high || costOf(candidate).seconds));
  const rows = shown.map((candidate, number) => {
    const cost = costOf(candidate), low = cost.low || cost.seconds, high = cost.high || cost.seconds;
    const range = el("i", { style: `left:${(low / most) * 100}%;width:${((high - low) / most) * 100}%;background:${color(candidate.backend)}` });
    const scale = el("div", { class: "range", title: `${duration(low)} to ${duration(high)}` }, range);
    const verdict = number ? `${candidate.regret ? `+${duration(candidate.regret)}: ` : ""}${candidate.says}` : "chosen";
    return el("tr", null, el("td", null, dot(candidate.backend), `${candidate.backend} ${candidate.label}`, el("div", { class: "quiet" }, names(candidate.bindings))),
      el("td", { class: "n" }, duration(cost.seconds), scale), el("td", null, verdict));
  });
  const head = el("tr", null, ...["candidate", "cost and its interval", "the plan with it"].map((text) => el("th", { scope: "col" }, text)));
  const more = kernel.rivals.length > 40 ? el("p", { class: "quiet" }, `and ${kernel.rivals.length - 40} more expensive ones, which the JSON report lists`) : null;
  return el("div", null, el("table", { "aria-label": "Candidates" }, el("thead", null, head), el("tbody", null, ...rows)), more || "");
}

function never(candidate) {
  const inside = new Set(candidate.bindings), touches = (indexes) => indexes.some((index) => inside.has(index));
  const refused = plan.declined.filter((d) => touches(d.bindings));
  const found = [
    ...refused.map((d) => [d.backend, `declined (${d.condition || "predicate"}): ${d.reason}`, d.bindings.filter((i) => inside.has(i))]),
    ...plan.candidates.filter((b) => costOf(b).seconds === undefined && touches(b.bindings)).map((b) => [b.backend, `${b.label}, ${b.verdict}: ${costOf(b).reason}`, b.bindings]),
  ];
  return found.length ? reasons(found) : el("p", { class: "quiet" }, "No backend declined any of its bindings.");
}

function reasons(found) {
  const grouped = new Map();
  for (const [backend, reason, indexes] of found) {
    const key = `${backend} ${reason}`, known = grouped.get(key) || { backend, reason, all: new Set() };
    indexes.forEach((index) => known.all.add(index));
    grouped.set(key, known);
  }
  const rows = [...grouped.values()].sort((a, b) => b.all.size - a.all.size).map(({ backend, reason, all: inside }) => {
    const shown = names([...inside].slice(0, 12)) + (inside.size > 12 ? `, and ${inside.size - 12} more` : "");
    return el("tr", null, el("td", { class: "name" }, dot(backend), backend), el("td", null, reason, el("div", { class: "quiet" }, shown)));
  });
  return el("table", { "aria-label": "Reasons" }, el("tbody", null, ...rows));
}

// The time of a launch, and the times of those backends whose launches take another time.
function launchText() {
  const others = Object.entries(plan.launches || {}).map(([backend, seconds]) => `; ${backend} ${duration(seconds)}`);
  return duration(plan.proof.launch_seconds || 0) + others.join("");
}

function showProof() {
  const { proof } = plan, gap = proof.gap || 0;
  const facts = [["cost", duration(proof.seconds)], ["lower bound", duration(proof.lower_bound)], ["gap", percent(gap)],
    ["proof", proof.proved ? "no valid plan is cheaper" : `none is more than ${percent(proof.unproved || 0)} cheaper`],
    ["search", proof.algorithm],
    ["examined", count(proof.visited || 0, "state")], ["each launch", launchText()]];
  at("proof").replaceChildren(el("h2", null, "Certificate"), el("p", null, plan.says),
    el("dl", null, ...facts.flatMap(([term, fact]) => [el("dt", null, term), el("dd", null, fact)])),
    ...plan.remarks.map((remark) => el("p", { class: "quiet" }, remark)));
}

function showRest() {
  const left = new Map();
  for (const index of plan.left_behind) {
    const { op, host } = plan.bindings[index];
    const key = `${short(op)}: ${host ? "the VM evaluates it for free" : "no backend has a cost, TVM compiles it as it is"}`;
    left.set(key, [...(left.get(key) || []), index]);
  }
  at("left-title").textContent = `${count(plan.left_behind.length, "binding")} in no kernel`;
  at("left-behind").replaceChildren(el("ul", null, ...[...left].map(([why, indexes]) => el("li", null, `${why} (${indexes.length}) `, el("span", { class: "quiet" }, names(indexes.slice(0, 20)))))));
  at("declined-title").textContent = `${count(plan.declined.length, "reason")} why a backend declined`;
  at("declined").replaceChildren(reasons(plan.declined.map((d) => [d.backend, `${d.condition || "predicate"}: ${d.reason}`, d.bindings])));
  const withoutCost = plan.candidates.filter((candidate) => costOf(candidate).seconds === undefined);
  at("without-cost-title").textContent = `${count(withoutCost.length, "candidate")} without a cost`;
  at("without-cost").replaceChildren(reasons(withoutCost.map((candidate) => [candidate.backend, `${candidate.label}, ${candidate.verdict}: ${costOf(candidate).reason}`, candidate.bindings])));
}
