// Zooming and panning of the picture: by wheel, by drag, and by keys.
let touched = false;

function look() {
  touched = true;
  scene.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
  svg.classList.toggle("far", view.scale < READABLE);
  // Every element inherits this property, so a change of it makes the browser compute all styles again. A pan does not
  // change it.
  if (view.scale < READABLE) svg.style.setProperty("--far", `${Math.min(120, 13 / view.scale)}px`);
  if (isLarge) drawInSight(false);
}

// Shows what is between these corners as large as the window allows, at a scale of 1 at most.
function fitTo(left, top, right, bottom) {
  const { width, height } = shape.window, margin = 24;
  view.scale = Math.min(1, Math.max(width - 2 * margin, 1) / Math.max(right - left, 1), Math.max(height - 2 * margin, 1) / Math.max(bottom - top, 1));
  view.x = width / 2 - view.scale * (left + right) / 2;
  view.y = height / 2 - view.scale * (top + bottom) / 2;
  look();
}

function fit() {
  fitTo(0, 0, shape.width, shape.height);
  touched = false;
}

// Divides the picture into columns again for a window of another size, unless the user has chosen what is in sight.
function resized() {
  const { width, height } = svg.getBoundingClientRect();
  // A page that is being printed has another size, too, and showOnPaper shows the whole picture.
  if (!shape || touched || svg.hasAttribute("viewBox") || (width === shape.window.width && height === shape.window.height)) return;
  redraw();
  fit();
}

function fitKernels(numbers) {
  const wanted = new Set(numbers.map(shownFor)), own = shape.boxes.filter((box) => wanted.has(box.kernel));
  if (!own.length) return;
  fitTo(Math.min(...own.map((b) => b.x)), Math.min(...own.map((b) => b.y)), Math.max(...own.map((b) => b.x + b.width)), Math.max(...own.map((b) => b.y + b.height)));
}

// Moves a kernel into sight, at a scale at which it can be read.
function reveal(number) {
  const box = places.get(number), { width, height } = shape.window;
  if (!box) return;
  const x = view.x + view.scale * (box.x + box.width / 2), y = view.y + view.scale * (box.y + box.height / 2);
  const readable = view.scale >= 0.6 || !width;
  if (readable && x > 60 && x < width - 60 && y > 30 && y < height - 30) return;
  if (!readable) view.scale = NEAR;
  view.x = width / 2 - view.scale * (box.x + box.width / 2);
  view.y = height / 2 - view.scale * (box.y + box.height / 2);
  look();
}

function zoom(factor, x, y) {
  const { width, height } = shape.window;
  const [atX, atY] = [x === undefined ? width / 2 : x, y === undefined ? height / 2 : y];
  const scale = Math.min(4, Math.max(0.005, view.scale * factor)), change = scale / view.scale;
  Object.assign(view, { scale, x: atX - (atX - view.x) * change, y: atY - (atY - view.y) * change });
  look();
}

function pan(x, y) {
  view.x += x;
  view.y += y;
  look();
}

// On paper the whole picture is shown, with its texts if they can be read.
function showOnPaper() {
  svg.setAttribute("viewBox", `-12 -24 ${shape.width + 24} ${shape.height + 48}`);
  scene.removeAttribute("transform");
  // The texts of a large picture would be too small on paper.
  svg.classList.toggle("far", isLarge);
}

// The tab key stops at one kernel or block of the picture; the arrow keys move from there.
function setStop(element) {
  if (stop) stop.setAttribute("tabindex", -1);
  stop = element;
  if (stop) stop.setAttribute("tabindex", 0);
}

const ARROWS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

// The nearest kernel or block in this direction. The distance to the side counts twice.
function neighbour(from, [dx, dy]) {
  const titles = shape.folds.map(({ key, x, y, width }) => ({ key, x, y, width, height: HEAD }));
  const own = from.dataset.kernel === undefined ? titles.find(({ key }) => key === from.dataset.fold) : places.get(Number(from.dataset.kernel));
  const middle = ({ x, y, width, height }) => [x + width / 2, y + height / 2], [x, y] = middle(own);
  let best = null, least = Infinity;
  for (const other of [...shape.boxes, ...titles]) {
    const [otherX, otherY] = middle(other), along = (otherX - x) * dx + (otherY - y) * dy;
    const aside = Math.abs((otherX - x) * dy) + Math.abs((otherY - y) * dx), far = along + 2 * aside;
    if (other !== own && along > 1 && far < least) [best, least] = [other, far];
  }
  return best;
}

function goTo(place) {
  const isKernel = place.kernel !== undefined;
  if (isKernel) reveal(place.kernel);
  const element = isKernel ? boxes.get(place.kernel) : heads.get(place.key);
  setStop(element);
  element.focus({ preventScroll: true });
}

function pressed(event) {
  const arrow = ARROWS[event.key], inside = event.target.closest(".kernel, .head");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (arrow && inside && !event.shiftKey) {
    const next = neighbour(inside, arrow);
    if (next) goTo(next);
  } else if (arrow) pan(-arrow[0] * 80, -arrow[1] * 80);
  else if (event.key === "+" || event.key === "=") zoom(1.25);
  else if (event.key === "-") zoom(0.8);
  else if (event.key === "0") fit();
  else if ((event.key === "Enter" || event.key === " ") && inside && inside.dataset.fold) toggle(inside.dataset.fold);
  else return;
  event.preventDefault();
}

function listenToPicture() {
  let start = null, moved = false;
  svg.addEventListener("keydown", pressed);
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { left, top } = svg.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.clientX - left, event.clientY - top);
  }, { passive: false });
  svg.addEventListener("pointerdown", (event) => {
    if (event.button === 0) start = { x: event.clientX, y: event.clientY };
    moved = false;
  });
  svg.addEventListener("pointermove", (event) => {
    if (!start) return;
    if (!moved && Math.hypot(event.clientX - start.x, event.clientY - start.y) < 4) return;
    if (!moved) svg.setPointerCapture(event.pointerId);
    moved = true;
    pan(event.clientX - start.x, event.clientY - start.y);
    start = { x: event.clientX, y: event.clientY };
  });
  for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, () => (start = null));
  svg.addEventListener("dragstart", (event) => event.preventDefault());
  svg.addEventListener("click", (event) => {
    const head = event.target.closest(".head");
    if (moved) event.preventDefault();
    else if (head) toggle(head.dataset.fold);
    else if (isLarge && !event.target.closest("a")) chooseAt(event);
  });
  at("nearer").addEventListener("click", () => zoom(1.25));
  at("farther").addEventListener("click", () => zoom(0.8));
  at("fit").addEventListener("click", fit);
  at("unfold").addEventListener("click", toggleAll);
  window.addEventListener("beforeprint", showOnPaper);
  window.addEventListener("afterprint", () => (svg.removeAttribute("viewBox"), look()));
  new ResizeObserver(resized).observe(svg);
}
