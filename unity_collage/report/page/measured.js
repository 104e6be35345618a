// Predicted and measured times side by side. The report has all figures; only sums over kernels are computed here.
const signed = (seconds) => (seconds ? `${seconds < 0 ? "-" : "+"}${duration(Math.abs(seconds))}` : "0");
const known = (value) => value !== null && value !== undefined;

const hasTimes = () => Boolean(plan.in_place && plan.in_place.kernels.length);

// What these kernels take in place, and what is predicted for that. Null if one of them was not timed; a figure is null
// if one of them lacks it.
function inPlace(some) {
  const times = some.map((kernel) => kernel.time);
  if (!times.length || times.some((time) => !time)) return null;
  const sum = (key) => times.reduce((total, time) => (known(total) && known(time[key]) ? total + time[key] : null), 0);
  return { seconds: sum("seconds"), predicted: sum("predicted") };
}

const ratio = ({ seconds, predicted }) => (predicted ? `${(seconds / predicted).toFixed(2)}x` : "");

// Seconds between a row of the table and its prediction; -1 where one of them is not known.
function deviation(group) {
  const times = inPlace(group);
  return times && known(times.predicted) ? Math.abs(times.seconds - times.predicted) : -1;
}

function inPlaceCells(group) {
  const times = inPlace(group);
  if (!hasTimes()) return [];
  return [el("td", { class: "n" }, times ? duration(times.seconds) : "", times ? el("span", { class: "quiet" }, ` ${ratio(times)}`) : null)];
}

function inPlaceText({ time }) {
  if (!hasTimes()) return null;
  if (!time) return el("p", null, "In place: not timed alone, since it runs side by side with others, or not exactly once in a run.");
  const against = known(time.predicted) ? `, ${ratio(time)} the ${duration(time.predicted)} that are predicted with its launch` : "";
  return el("p", null, `In place: ${duration(time.seconds)} (${duration(time.low)} to ${duration(time.high)} in 90% of the runs)${against}`);
}

function showMeasured() {
  const found = plan.in_place;
  at("compared").hidden = !found;
  if (!found) return;
  at("compared-says").textContent = found.says;
  at("compared-sums").hidden = !found.rows.length;
  at("compared-sums").tBodies[0].replaceChildren(...found.rows.map(({ name: called, predicted, seconds }) => {
    const off = known(predicted) && known(seconds) ? seconds - predicted : null;
    return el("tr", null, el("th", { scope: "row" }, called), ...[
      known(predicted) ? lasting(predicted) : "", known(seconds) ? lasting(seconds) : "",
      known(off) ? signed(off) : "", known(off) && predicted ? `${off < 0 ? "-" : "+"}${percent(Math.abs(off / predicted))}` : "",
    ].map((text) => el("td", { class: "n" }, text)));
  }));
}

// The rest of a run can be negative: the medians of the kernels may add up to more than the median of the run.
const lasting = (seconds) => (seconds > 0 ? duration(seconds) : signed(seconds));
