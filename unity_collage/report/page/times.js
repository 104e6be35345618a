// Where the time goes: by block of the picture, by backend, or by kind of kernel. With launches and transitions, the
// times add up to the cost of the plan.
function together(some) {
  return { seconds: some.reduce((sum, k) => sum + k.seconds, 0), share: some.reduce((sum, k) => sum + k.share, 0) };
}

// The repeated blocks of the picture, and the kernels between them.
function blocks() {
  const found = [];
  let between = null;
  for (const item of plan.picture.frames[0].items) {
    if (item.kernel === undefined) {
      found.push({ times: item.count, own: kernels.slice(item.first, item.first + item.size * item.count) });
      between = null;
    } else {
      if (!between) found.push((between = { times: 1, own: [] }));
      between.own.push(kernels[item.kernel]);
    }
  }
  return found.map(({ times, own }) => {
    const called = (kernel) => plan.bindings[kernel.outlet].name, [first, last] = [called(own[0]), called(own[own.length - 1])];
    const size = count(own.length / times, "kernel");
    return { name: `${size}${times > 1 ? ` x${times}` : ""}`, more: first === last ? first : `${first} to ${last}`, own };
  });
}

function grouped(key) {
  const rows = [...groupedBy(key, kernels)].map(([called, own]) => ({ name: called, more: count(own.length, "kernel"), own, seconds: together(own).seconds }));
  return rows.sort((a, b) => b.seconds - a.seconds);
}

function showTimes() {
  const by = at("by").value;
  const rows = by === "block" ? blocks() : grouped((kernel) => kernel.candidate[by]);
  const longest = ({ own }) => Math.max(together(own).seconds, (inPlace(own) || { seconds: 0 }).seconds);
  const shown = rows.slice(0, 60), most = Math.max(0, ...rows.map(longest));
  at("in-place-part").hidden = !hasTimes();
  at("bars").replaceChildren(...shown.map(({ name: called, more, own }) => {
    const { seconds, share } = together(own);
    const show = el("button", { type: "button", title: `show in the picture: ${more}` }, called);
    show.addEventListener("click", () => fitKernels(own.map((kernel) => kernel.number)));
    return el("tr", null, el("th", { scope: "row" }, show, el("div", { class: "quiet" }, more)),
      el("td", { class: "n" }, duration(seconds)), el("td", { class: "n" }, percent(share)), ...inPlaceCells(own), el("td", { class: "parts" }, parts(own, most), measuredBar(own, most)));
  }));
  const rest = plan.proof.seconds - together(kernels).seconds;
  at("rest").textContent = [
    rows.length > shown.length ? `${count(rows.length - shown.length, "more row")} not shown. ` : "",
    rest > 0 ? `Launches and transitions between backends: ${duration(rest)}, ${percent(rest / plan.proof.seconds)}.` : "",
  ].join("");
}

// The bar below the bar of costs, if all of these kernels were timed in place.
function measuredBar(own, most) {
  const times = inPlace(own);
  return times && el("div", { class: "measured", title: `in place: ${duration(times.seconds)}`, style: `width:${(times.seconds / most) * 100}%` });
}

// One bar with a part for each backend.
function parts(own, most) {
  const bar = el("div", { class: "parts" });
  for (const backend of plan.backends) {
    const { seconds } = together(own.filter((kernel) => kernel.candidate.backend === backend));
    if (seconds) bar.append(el("i", { title: `${backend}: ${duration(seconds)}`, style: `width:${(seconds / most) * 100}%;background:${color(backend)}` }));
  }
  return bar;
}
