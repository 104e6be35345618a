// Memory over the run: a column for each kernel, in the order in which they run. The line shows the weights.
function bytes(number) {
  for (const [unit, factor] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (number >= factor) return `${(number / factor).toFixed(number < 10 * factor ? 2 : 1)} ${unit}`;
  }
  return `${number} bytes`;
}

function showMemory() {
  const { memory } = plan;
  at("memory").hidden = !memory;
  if (!memory) return;
  at("memory-says").textContent = memory.says;
  const most = Math.max(1, ...memory.spaces.flatMap((space) => space.curve));
  const shown = memory.spaces.filter((space) => space.curve.some((each) => each > 0));
  at("memory-curves").replaceChildren(...shown.flatMap((space) => [
    shown.length > 1 ? el("h3", null, space.title) : "", curveOf(memory, space, most)]));
}

function curveOf(memory, space, most) {
  const of = new Map(kernels.filter((k) => k.function).map((k) => [k.function, k]));
  const peak = Math.max(...space.curve);
  const size = Math.max(1, Math.ceil(space.curve.length / MOST_PARTS)), shown = [];
  // Where there are more kernels than columns, each column shows the one of its kernels at which most memory is in use.
  for (let first = 0; first < space.curve.length; first += size) {
    let most = first;
    for (let other = first; other < Math.min(first + size, space.curve.length); other++) if (space.curve[other] > space.curve[most]) most = other;
    shown.push(most);
  }
  const columns = shown.map((number) => {
    const nbytes = space.curve[number], called = memory.kernels[number], kernel = of.get(called);
    const own = { class: nbytes === peak ? "peak" : "", title: `${called}: ${bytes(nbytes)}`, style: `height:${(nbytes / most) * 100}%` };
    return kernel ? el("a", { ...own, href: address(kernel), tabindex: "-1" }) : el("i", own);
  });
  const line = el("b", { title: `weights: ${bytes(space.weights)}`, style: `height:${(space.weights / most) * 100}%` });
  return el("div", { class: "curve", role: "img", "aria-label": `${space.title}, ${bytes(peak)} at most` }, line, ...columns);
}
