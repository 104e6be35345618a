// The graph of the kernels. A kernel is a link, as in the table: choosing it opens the panel.
const svg = at("graph"), scene = at("scene");
const unfolded = new Set();
const view = { x: 0, y: 0, scale: 1 };
// Below this scale texts are too small to be read: only the counts of blocks are shown, enlarged.
const READABLE = 0.3, NEAR = 0.85;
let shape, boxes = new Map(), heads = new Map(), lines = [], stop = null, marked = null;

function draw(tag, attributes, ...children) {
  const made = document.createElementNS(svg.namespaceURI, tag);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Called when a function is opened: all blocks are folded, and the whole picture is in sight.
function showPicture() {
  unfolded.clear();
  marked = null;
  redraw();
  fit();
}

function redraw() {
  const window = svg.getBoundingClientRect();
  shape = { window, ...drawing(plan.picture, unfolded, (window.width || 4) / (window.height || 3)) };
  places = new Map(shape.boxes.map((box) => [box.kernel, box]));
  isLarge = shape.boxes.length > MOST_WHOLE;
  boxes = new Map();
  heads = new Map();
  lines = [];
  const frames = shape.folds.map(foldBox), ports = shape.ports.map(({ x, y }) => draw("circle", { class: "port", cx: x, cy: y, r: 3 }));
  if (isLarge) {
    drawLarge();
    scene.replaceChildren(...frames, outline, ...ports, detail, ...heads.values());
  } else {
    const most = mostSeconds();
    lines = shape.lines.map(lineOf);
    boxes = new Map(shape.boxes.map((box) => [box.kernel, kernelBox(box, most)]));
    scene.replaceChildren(...frames, ...lines.map((line) => line.element), ...ports, ...boxes.values(), ...heads.values());
  }
  svg.setAttribute("aria-label", `Graph of ${count(kernels.length, "kernel")}, ${count(shape.folds.length, "repeated block")}. The table of kernels has the same figures.`);
  at("unfold").textContent = shape.folds.some((fold) => !fold.open) ? "Unfold all" : "Fold all";
  at("unfold").hidden = at("fold-key").hidden = !shape.folds.length;
  setStop(boxes.values().next().value || null);
  markFound();
  showMarked();
}

const mostSeconds = () => kernels.reduce((most, kernel) => Math.max(most, kernel.seconds), 0);

const pen = document.createElement("canvas").getContext("2d"), widths = new Map();
const FONTS = { label: "600 12px system-ui, sans-serif", figure: "12px system-ui, sans-serif", minor: "11px system-ui, sans-serif" };

function widthOf(text, font) {
  const key = `${font} ${text}`;
  if (!widths.has(key)) {
    pen.font = FONTS[font];
    widths.set(key, pen.measureText(text).width);
  }
  return widths.get(key);
}

// As much of a text as the width allows. `head` is the share of the kept letters that is taken from its beginning.
function clipped(text, width, font, head = 1) {
  if (widthOf(text, font) <= width) return text;
  const without = (letters) => {
    const first = Math.ceil(letters * head);
    return `${text.slice(0, first)}…${text.slice(text.length - (letters - first))}`;
  };
  let letters = Math.max(1, Math.floor((text.length * width) / widthOf(text, font)));
  while (letters > 1 && widthOf(without(letters), font) > width) letters -= 1;
  return without(letters);
}

function kernelBox(box, most) {
  const kernel = kernels[box.kernel], { backend, label } = kernel.candidate, { width, height } = box;
  const called = plan.bindings[kernel.outlet].name, time = duration(kernel.seconds), share = percent(kernel.share);
  const device = plan.devices[kernel.function], maker = device ? `${backend}, ${device}` : backend;
  const link = draw("a", { href: address(kernel), class: "kernel", "data-kernel": kernel.number, tabindex: -1, transform: `translate(${box.x} ${box.y})`, style: `--own:${color(backend)}`, "aria-label": `${label}, ${maker}, ${time}, ${share}, ${called}` },
    draw("title", null, `${backend} ${label}${device ? ` on ${device}` : ""}: ${time}, ${share}\n${called}: ${plan.bindings[kernel.outlet].type}`),
    draw("rect", { class: "box", width, height, rx: 4 }),
    draw("rect", { class: "band", width: 6, height, rx: 3 }),
    draw("rect", { class: "heat", x: 6, y: height - 3, width: most ? (width - 6) * (kernel.seconds / most) : 0, height: 3 }),
    draw("text", { x: 12, y: 16, class: "label" }, clipped(label, width - 26 - widthOf(time, "figure"), "label")),
    draw("text", { x: width - 6, y: 16, class: "figure" }, time),
    draw("text", { x: 12, y: 32, class: "minor" }, clipped(called, width - 26 - widthOf(maker, "minor"), "minor", 0.3)),
    draw("text", { x: width - 6, y: 32, class: "figure minor" }, maker));
  return link;
}

function foldBox(fold) {
  const own = kernels.slice(fold.first, fold.first + fold.size * fold.count), { seconds, share } = together(own);
  const times = inPlace(own), says = `${duration(seconds)}, ${percent(share)}`, told = times ? `${says}, in place ${duration(times.seconds)}` : says, body = count(fold.size, "kernel");
  const head = draw("g", { class: "head", role: "button", tabindex: -1, "data-fold": fold.key, "aria-expanded": fold.open, transform: `translate(${fold.x} ${fold.y})`, "aria-label": `block of ${body}, ${fold.count} times, ${told}` },
    draw("title", null, `${fold.open ? "Fold" : "Unfold"}: a block of ${body} that is repeated ${fold.count} times; together ${told}`),
    draw("rect", { width: fold.width, height: HEAD - 4, rx: 4 }),
    draw("text", { x: 8, y: 13, class: "times" }, `${fold.open ? "▾" : "▸"} x${fold.count}`),
    draw("text", { x: fold.width - 8, y: 13, class: "figure" }, says));
  heads.set(fold.key, head);
  const behind = fold.open ? [] : [8, 4].map((by) => draw("rect", { class: "frame", x: fold.x + by, y: fold.y + by, width: fold.width, height: fold.height, rx: 6 }));
  return draw("g", null, ...behind, draw("rect", { class: "frame", x: fold.x, y: fold.y, width: fold.width, height: fold.height, rx: 6 }));
}

function lineOf(line) {
  const { path, from, to, values, shift } = line, element = draw("path", { class: "line", d: path });
  // `values` are those of a block's first copy: they have other names in the other copies.
  const told = shift ? [] : values.map((index) => `${plan.bindings[index].name}: ${plan.bindings[index].type}`);
  if (told.length) element.append(draw("title", null, told.join("\n")));
  return { of: line, element, from, to };
}

// The kernel that is drawn for this one: where its block is folded, the same kernel of the first copy.
function shownFor(number) {
  while (shape.standIn.has(number)) number = shape.standIn.get(number).kernel;
  return number;
}

function unfoldFor(number) {
  for (let hidden = shape.standIn.get(number); hidden; hidden = shape.standIn.get(number)) {
    unfolded.add(hidden.key);
    redraw();
  }
}

function toggle(key) {
  const place = () => heads.get(key).transform.baseVal.consolidate().matrix;
  const before = place();
  if (!unfolded.delete(key)) unfolded.add(key);
  redraw();
  const after = place();
  view.x += (before.e - after.e) * view.scale;
  view.y += (before.f - after.f) * view.scale;
  look();
  setStop(heads.get(key));
  heads.get(key).focus();
}

function toggleAll() {
  const closed = () => shape.folds.filter((fold) => !fold.open);
  if (closed().length) {
    for (let more = closed(); more.length; more = closed()) {
      more.forEach((fold) => unfolded.add(fold.key));
      redraw();
    }
  } else {
    unfolded.clear();
    redraw();
  }
  fit();
}

function markPicture(kernel) {
  marked = kernel ? kernel.number : null;
  // First, so that a large picture draws what is in sight only once.
  if (kernel) reveal(shownFor(marked));
  showMarked();
}

function showMarked() {
  if (isLarge && drawn && marked !== null && !boxes.has(shownFor(marked))) drawInSight(true);
  else classify();
  if (marked !== null && boxes.has(shownFor(marked))) setStop(boxes.get(shownFor(marked)));
}

// Marks the chosen kernel and its lines, and the kernels that are pale.
function classify() {
  const number = marked === null ? null : shownFor(marked);
  for (const [own, box] of boxes) {
    box.classList.toggle("here", own === number);
    box.classList.toggle("pale", pale.has(own));
  }
  for (const line of lines) line.element.classList.toggle("on", number !== null && (line.from === number || line.to === number));
}

// Kernels that do not match the form are pale.
function markFound() {
  const found = new Set(asked().map((kernel) => shownFor(kernel.number))), before = pale;
  pale = new Set(shape.boxes.map((box) => box.kernel).filter((number) => !found.has(number)));
  if (isLarge && (pale.size || before.size)) redrawOutline();
  classify();
}

const found = () => (at("find").value.trim() ? asked() : []);

function showFound() {
  const [first] = found();
  if (first) reveal(shownFor(first.number));
}

// Enter in the search field chooses the next kernel that is found.
function chooseNext() {
  const hits = found(), now = chosen();
  if (!hits.length) return;
  const next = hits[(hits.indexOf(now) + 1) % hits.length];
  unfoldFor(next.number);
  location.hash = address(next);
}
