// Pictures of many kernels. An outline of few elements shows all kernels. Only a kernel that is in sight, and large
// enough to be read, has elements of its own; in a small picture every kernel has.
const MOST_WHOLE = 600, CHUNK = 100;
let isLarge = false, outline = null, detail = null, drawn = null, places = new Map(), pale = new Set();

// Paths of at most CHUNK parts each, so that the browser does not paint paths that are out of sight.
function paths(parts, attributes) {
  const found = [];
  for (let first = 0; first < parts.length; first += CHUNK) {
    found.push(draw("path", { ...attributes, d: parts.slice(first, first + CHUNK).join("") }));
  }
  return found;
}

function outlineOf() {
  const groups = new Map();
  for (const { kernel, x, y, width, height } of shape.boxes) {
    const { backend } = kernels[kernel].candidate, key = `${backend}${pale.has(kernel) ? " pale" : ""}`;
    if (!groups.has(key)) groups.set(key, { backend, isPale: pale.has(kernel), parts: [] });
    groups.get(key).parts.push(`M${x} ${y}h${width}v${height}h${-width}z`);
  }
  const boxPaths = [...groups.values()].flatMap(({ backend, isPale, parts }) =>
    paths(parts, { class: `box kernel${isPale ? " pale" : ""}`, style: `--own:${color(backend)}` }));
  return draw("g", { class: "outline", "aria-hidden": "true" }, ...paths(shape.lines.map((line) => line.path), { class: "line" }),
    draw("g", { class: "masses" }, ...boxPaths));
}

function drawLarge() {
  outline = outlineOf();
  detail = draw("g", null);
  drawn = null;
}

function redrawOutline() {
  const before = outline;
  outline = outlineOf();
  before.replaceWith(outline);
}

const inside = (box, area) => box.x < area.right && box.x + box.width > area.left && box.y < area.bottom && box.y + box.height > area.top;

// Called when the view has changed. The kernels in sight, the chosen one and the one at which the tab key stops get
// elements of their own. A drag also draws what is near, so that not every step draws again. A jump to another place,
// such as a click in the table, draws only what is in sight, since the user waits for it.
function drawInSight(isChanged) {
  const { width, height } = shape.window, isNear = view.scale >= READABLE;
  const sight = { left: -view.x / view.scale, top: -view.y / view.scale, right: (width - view.x) / view.scale, bottom: (height - view.y) / view.scale };
  const covers = drawn && drawn.isNear === isNear && (!isNear || (drawn.left <= sight.left && drawn.top <= sight.top && drawn.right >= sight.right && drawn.bottom >= sight.bottom));
  if (covers && !isChanged) return;
  const isDrag = drawn && drawn.isNear && isNear && drawn.left < sight.right && drawn.right > sight.left && drawn.top < sight.bottom && drawn.bottom > sight.top;
  const [more, higher] = isDrag ? [(sight.right - sight.left) / 4, (sight.bottom - sight.top) / 4] : [0, 0];
  drawn = { isNear, left: sight.left - more, top: sight.top - higher, right: sight.right + more, bottom: sight.bottom + higher };
  const kept = new Set([marked === null ? null : shownFor(marked), stop && stop.dataset.kernel ? Number(stop.dataset.kernel) : null]);
  const wanted = shape.boxes.filter((box) => kept.has(box.kernel) || (isNear && inside(box, drawn)));
  drawDetail(wanted.length ? wanted : shape.boxes.slice(0, 1), isNear);
}

function drawDetail(wanted, isNear) {
  const known = boxes, most = mostSeconds(), numbers = new Set(wanted.map((box) => box.kernel));
  for (const [number, element] of known) if (!numbers.has(number)) element.remove();
  boxes = new Map();
  const added = wanted.map((box) => known.get(box.kernel) || kernelBox(box, most));
  wanted.forEach((box, index) => boxes.set(box.kernel, added[index]));
  drawLines(isNear ? shape.lines.filter(({ from, to }) => numbers.has(from) || numbers.has(to)) : []);
  // Elements that are there already are not moved: one may have the focus.
  detail.append(...added.filter((element) => !element.isConnected));
  if (!stop || !stop.isConnected) setStop(added[0] || null);
  classify();
}

function drawLines(wanted) {
  const known = new Map(lines.map((line) => [line.of, line])), kept = new Set(wanted);
  for (const line of lines) if (!kept.has(line.of)) line.element.remove();
  lines = wanted.map((line) => known.get(line) || lineOf(line));
  detail.prepend(...lines.map((line) => line.element).filter((element) => !element.isConnected));
}

// At a small scale kernels have no elements to click: the nearest kernel within REACH pixels is chosen.
const REACH = 8;

function chooseAt(event) {
  const { left, top } = svg.getBoundingClientRect();
  const x = (event.clientX - left - view.x) / view.scale, y = (event.clientY - top - view.y) / view.scale;
  const beyond = (at, from, size) => Math.max(from - at, 0, at - from - size);
  const far = (box) => Math.hypot(beyond(x, box.x, box.width), beyond(y, box.y, box.height));
  const nearest = shape.boxes.reduce((best, box) => (far(box) < far(best) ? box : best));
  if (far(nearest) * view.scale <= REACH) location.hash = address(kernels[nearest.kernel]);
}
