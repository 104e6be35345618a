at("controls").addEventListener("input", (event) => {
  if (event.target.id === "function") location.hash = `${event.target.value}:`;
  else showList();
  if (event.target.id === "find") showFound();
});
at("controls").addEventListener("submit", (event) => {
  event.preventDefault();
  chooseNext();
});
at("more").addEventListener("click", () => {
  showMoreRows(10 * ROWS);
  markRows(chosen());
});
window.addEventListener("beforeprint", () => showMoreRows(rowsLeft.length));
at("ordering").addEventListener("input", showList);
at("moves").lastElementChild.addEventListener("click", () => fitKernels(plan.moves.kernels));
at("by").addEventListener("input", showTimes);
window.addEventListener("hashchange", mark);
at("functions").hidden = functions.length < 2;
at("function").replaceChildren(...functions.map((each) => el("option", { value: each }, all[each].label)));
listenToPicture();
if (functions.length) open(functions[0]);
