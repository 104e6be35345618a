// The texts of a kernel, folded. A text is put into the page only when the user opens it.
function textsOf(kernel) {
  const { script, source } = kernel;
  const titles = [[script, "Operators as TVMScript"], [source, "What the program runs"]];
  const known = titles.filter(([index]) => index !== undefined && plan.texts[index] !== undefined);
  return known.map(([index, title]) => foldedText(title, plan.texts[index]));
}

function foldedText(title, text) {
  const body = el("div"), folded = el("details", { class: "text" }, el("summary", null, `${title} (${count(text.split("\n").length, "line")})`), body);
  folded.addEventListener("toggle", () => {
    if (folded.open && !body.firstChild) body.append(...shownText(title, text));
  });
  return folded;
}

function shownText(title, text) {
  const shown = el("pre", { tabindex: "0", role: "region", "aria-label": title }, text);
  const copy = el("button", { type: "button" }, "Copy"), said = el("span", { class: "quiet", role: "status" });
  copy.addEventListener("click", () => {
    // navigator.clipboard is not available to every page that is opened from a file. The user sees what is copied,
    // since it is selected.
    getSelection().selectAllChildren(shown);
    said.textContent = document.execCommand("copy") ? " copied" : " selected: copy it with Ctrl+C";
  });
  return [el("p", null, copy, said), shown];
}
